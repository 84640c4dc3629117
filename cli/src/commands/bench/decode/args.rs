//! The options of `bench decode`.

use std::path::PathBuf;

use clap::value_parser;

use crate::commands::bench::files::JsonArg;
use crate::commands::bench::options::RoundArgs;
use crate::commands::bench::subject::ModelOrWeights;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) model: ModelOrWeights,
    /// Number of positions that the first token of a round attends [default: 128,4096 if they fit]
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) ctx: Vec<u32>,
    /// LoRA adapter to apply in a second measurement, after one without it
    #[arg(
        long,
        visible_alias = "lora",
        value_name = "FOLDER",
        conflicts_with_all = ["shape", "plot"]
    )]
    pub(super) adapter: Option<PathBuf>,
    #[command(flatten)]
    pub(super) rounds: RoundArgs,
    /// SVG file for a chart of the rates
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: JsonArg,
}
