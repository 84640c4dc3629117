//! The kernels that decode language models, written in [`ptx_gen`].
//!
//! Each file is one kernel: its formula, its arguments, its launch contract, its program, and the same on the
//! CPU the obvious way, which is the specification. [`ALL`] lists every shipped variant; snapshots, `ptxas`, the
//! emulator, `check` and benchmarks walk it.
//!
//! Weights are the bytes of a GGUF file, row by row; activations and sums are `f32`. Every kernel runs from sm_75
//! up, and none assumes a size that its contract does not check.

#![forbid(unsafe_code)]

pub mod case;
pub mod reduce;
pub mod state;

pub use case::{Case, Comparison, Random, Variant, compare};

/// Every shipped variant, in the order of a forward pass.
pub static ALL: &[&dyn Variant] = &[];
