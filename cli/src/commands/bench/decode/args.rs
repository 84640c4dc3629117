//! The options of `bench decode`.

use std::path::PathBuf;

use clap::value_parser;
use warpwright_engine::Tuning;

use crate::commands::bench::files::JsonArg;
use crate::commands::bench::setup::{self, BenchDevice, DecoderSettings, SampleArg};
use crate::commands::bench::subject::ModelOrWeights;
use crate::model::options::Launch;

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
    /// Number of tokens in a round
    #[arg(
        long,
        value_name = "N",
        default_value_t = setup::DEFAULT_TOKENS,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) tokens: u32,
    /// Number of timed rounds for each context
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) sample: SampleArg,
    /// LoRA adapter to apply in a second measurement, after one without it
    #[arg(
        long,
        visible_alias = "lora",
        value_name = "FOLDER",
        conflicts_with_all = ["shape", "plot"]
    )]
    pub(super) adapter: Option<PathBuf>,
    #[command(flatten)]
    pub(super) device: BenchDevice,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    pub(super) launch: Launch,
    /// Division of the overlapping kernels into blocks, such as 4x2_first or qkv=4x2_first
    #[arg(help_heading = "Device", long, value_name = "PLAN")]
    pub(super) plan: Option<Tuning>,
    /// Number of tokens in one launch of a graph
    #[arg(
        help_heading = "Device",
        long,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) tokens_per_launch: Option<u32>,
    /// SVG file for a chart of the rates
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: JsonArg,
}

impl Args {
    pub(super) fn settings(&self) -> DecoderSettings {
        DecoderSettings {
            tokens: self.tokens,
            plan: self.plan,
            tokens_per_launch: self.tokens_per_launch,
            choice: self.sample.choice(),
        }
    }
}
