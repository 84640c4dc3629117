//! The kernels that decode language models, written in [`ptx_gen`].
//!
//! Each file is one kernel: its formula, its arguments, its launch contract, its program, and the same on the
//! CPU the obvious way, which is the specification. [`ALL`] lists every shipped variant; snapshots, `ptxas`, the
//! emulator, `check` and benchmarks walk it.
//!
//! Weights are the bytes of a GGUF file, row by row; activations and sums are `f32`. Every kernel runs from sm_75
//! up, and none assumes a size that its contract does not check.

#![forbid(unsafe_code)]

pub mod advance;
pub mod argmax;
pub mod case;
mod contract;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod state;
pub mod swiglu;

pub use advance::Advance;
pub use argmax::{ArgmaxBlocks, ArgmaxFinal};
pub use case::{Case, Comparison, Random, Variant, compare};
pub use rms_norm::RmsNorm;
pub use rope::{Pairing, Rope};
pub use swiglu::SwiGlu;

/// Every shipped variant, in the order of a forward pass.
pub static ALL: &[&dyn Variant] = &[
    &RmsNorm { threads: 256 },
    &RmsNorm { threads: 1024 },
    &Rope { pairing: Pairing::Interleaved },
    &Rope { pairing: Pairing::HalfSplit },
    &SwiGlu { threads: 256 },
    &ArgmaxBlocks { threads: 256 },
    &ArgmaxFinal,
    &Advance,
];
