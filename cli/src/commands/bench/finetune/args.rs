//! The options of `bench finetune`.

use clap::{ValueEnum, value_parser};

use crate::commands::bench::files::JsonArg;
use crate::commands::bench::options::BenchDevice;
use crate::commands::bench::subject::ModelOrShape;
use crate::training::Recompute;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) model: ModelOrShape,
    /// Number of rows in a step
    #[arg(
        long,
        value_name = "N,N,..",
        required = true,
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..=256)
    )]
    pub(super) batch: Vec<u32>,
    /// Number of tokens in a row
    #[arg(
        long,
        value_name = "N,N,..",
        value_delimiter = ',',
        default_value = "512",
        value_parser = value_parser!(u32).range(2..)
    )]
    pub(super) seq: Vec<u32>,
    /// Rank of the LoRA adapters, which all projections have
    #[arg(long, value_name = "RANK", default_value_t = 16)]
    pub(super) rank: usize,
    /// Activations that the backward pass recomputes
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Recompute::None)]
    pub(super) recompute: Recompute,
    /// In bf16: variants of kernels to compare with those that finetune uses
    #[arg(long, value_enum, value_name = "FORM,FORM,..", value_delimiter = ',')]
    pub(super) forms: Vec<KernelForm>,
    /// Number of timed rounds, each with ten steps
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(super) rounds: u32,
    /// Also measure each kernel of a step
    #[arg(long)]
    pub(super) profile: bool,
    #[command(flatten)]
    pub(super) device: BenchDevice,
    #[command(flatten)]
    pub(super) json: JsonArg,
}

/// A variant of kernels that a training step can use.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum KernelForm {
    /// Idle warps of a product unpack the NF4 matrix of the next one, even for few tokens
    UnpackAhead,
    /// A separate kernel unpacks each NF4 matrix, even for many tokens
    UnpackApart,
    /// Attention uses mma, one warp at a time, instead of wgmma for heads of 64 and 128
    AttentionByMma,
}

impl KernelForm {
    /// Returns the note about this variant in the name of a measurement.
    pub(super) fn note(self) -> &'static str {
        match self {
            KernelForm::UnpackAhead => ", NF4 unpacked ahead",
            KernelForm::UnpackApart => ", NF4 unpacked apart",
            KernelForm::AttentionByMma => ", attention by mma",
        }
    }
}
