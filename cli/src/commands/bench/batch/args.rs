//! The options of `bench batch`.

use clap::value_parser;
use warpwright_engine::BatchRounding;

use crate::commands::bench::files::JsonArg;
use crate::commands::bench::options::{BenchDevice, DEFAULT_TOKENS, DecoderSettings, SampleArg};
use crate::commands::bench::subject::ModelOrWeights;

/// The largest number of sequences in a batch.
pub(super) const MAX_BATCH: u32 = 256;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) model: ModelOrWeights,
    /// Number of sequences in each batch to measure
    #[arg(
        long,
        alias = "batch",
        value_name = "N,N,..",
        required = true,
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..=i64::from(MAX_BATCH))
    )]
    pub(super) sequences: Vec<u32>,
    /// Number of positions that the first token of each sequence attends
    #[arg(
        long,
        value_name = "N,N,..",
        default_value = "512",
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) ctx: Vec<u32>,
    /// Number of steps in a round, each with a token of every sequence
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_TOKENS,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) tokens: u32,
    /// Number of timed rounds for each batch and context
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) rounds: u32,
    /// Maximum number of sequences that are decoded by the kernels of a single one, 0 for none
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = value_parser!(u32).range(0..=8)
    )]
    pub(super) lone_rows: u32,
    /// Use kernels with which a sequence has the same bits next to any others
    #[arg(long)]
    pub(super) deterministic: bool,
    #[command(flatten)]
    pub(super) sample: SampleArg,
    /// Add a prompt of N tokens while the sequences decode
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(2..))]
    pub(super) join: Option<u32>,
    /// With --join: number of prompt tokens in a step
    #[arg(long, value_name = "N", requires = "join", default_value_t = 192, value_parser = value_parser!(u32).range(1..=1024))]
    pub(super) join_chunk: u32,
    /// Also measure each kernel of a step
    #[arg(long)]
    pub(super) profile: bool,
    #[command(flatten)]
    pub(super) device: BenchDevice,
    #[command(flatten)]
    pub(super) json: JsonArg,
}

impl Args {
    pub(super) fn rounding(&self) -> BatchRounding {
        if self.deterministic {
            BatchRounding::Same
        } else {
            BatchRounding::Fastest
        }
    }

    pub(super) fn settings(&self) -> DecoderSettings {
        DecoderSettings {
            tokens: self.tokens,
            choice: self.sample.choice(),
            ..DecoderSettings::default()
        }
    }
}
