//! Options and words about training that `finetune` and `bench finetune` share.

use clap::ValueEnum;
use warpwright_train::step::{Precision, Recomputation};

/// The number of tokens whose logits are in memory at the same time.
pub(crate) const HEAD_CHUNK: usize = 512;

/// The value of --recompute.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Recompute {
    /// Nothing, which needs the most memory
    None,
    /// Outputs of norms and SwiGLU: saves about a third of the activations, and is hardly slower
    Cheap,
    /// Everything in a layer except its input: saves much memory, and is slower
    Layer,
}

impl From<Recompute> for Recomputation {
    fn from(choice: Recompute) -> Recomputation {
        match choice {
            Recompute::None => Recomputation::None,
            Recompute::Cheap => Recomputation::Cheap,
            Recompute::Layer => Recomputation::Layers,
        }
    }
}

/// Formats a number of bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Returns the name of a precision in --precision.
pub(crate) fn precision(of: Precision) -> &'static str {
    match of {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}
