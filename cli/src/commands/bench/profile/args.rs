//! The options of `bench profile`.

use std::path::PathBuf;

use clap::value_parser;

use crate::commands::bench::files::JsonArg;
use crate::commands::bench::options::RoundArgs;
use crate::commands::bench::subject::ModelOrWeights;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) model: ModelOrWeights,
    /// Number of positions that the first token attends [default: 128]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(super) ctx: Option<u32>,
    #[command(flatten)]
    pub(super) rounds: RoundArgs,
    /// SVG file for a chart of the kernels over time
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: JsonArg,
}
