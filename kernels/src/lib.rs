//! GPU kernels for running and fine-tuning language models, written in [`ptx_gen`].
//!
//! A file describes one kernel: its formula, its arguments, its launch contract (the checks before
//! a launch), its program, and a naive CPU reference. The reference is the specification of the
//! kernel. [`ALL`] lists every shipped variant. The snapshot tests, `ptxas`, the emulator,
//! `warpwright check` and the benchmarks all walk that list.
//!
//! There are several families:
//!
//! - [`simple`]: kernels that read weights row by row, as a GGUF file stores them. They run on
//!   sm_75 and newer.
//! - [`pipeline`]: decoding one token, or a few tokens of one sequence. Kernels overlap and read
//!   weights as packed tiles. They run on sm_80 and newer.
//! - [`matmul`] and [`prompt`]: matmuls and attention for a chunk of a prompt, on tensor cores.
//! - [`batch`]: attention and token choice for one step of many sequences.
//! - [`sample`]: sampling from the logits.
//! - [`train`]: the operations of a training step, forward and backward.
//! - [`read`] and [`multiply`]: measurements of the memory and the tensor cores, as upper bounds
//!   for the others.
//!
//! Activations and sums are `f32` unless a kernel documents otherwise. No kernel assumes a size
//! that its launch contract does not check.
//!
//! # Example: launch shape and PTX of one kernel
//! ```
//! use ptx_gen::{AnyKernel, Target, print};
//! use warpwright_kernels::RmsNorm;
//!
//! let program = RmsNorm { threads: 256 }.build().unwrap();
//! let ptx = print(&program, Target::named("sm_75").unwrap()).unwrap();
//! assert!(ptx.contains(".visible .entry rms_norm_256("));
//! ```

#![forbid(unsafe_code)]

mod add_normed;
pub mod advance;
pub mod batch;
pub mod cache;
pub mod case;
mod contract;
pub mod format;
mod list;
pub mod matmul;
pub mod multiply;
mod overlap;
pub mod pipeline;
pub mod prompt;
pub mod read;
pub mod reduce;
pub mod sample;
mod shared_rows;
pub mod simple;
pub mod state;
mod tiled;
pub mod train;

pub use add_normed::{AddNormed, AddNormedArgs};
pub use advance::Advance;
pub use case::{Case, Comparison, Random, Variant, compare};
pub use format::Format;
pub use format::tile::{RowOrder, Tile};
pub use list::ALL;
pub use multiply::Multiply;
pub use overlap::Overlap;
pub use pipeline::{EmbedRows, EmbedTiled, Pack};
pub use read::Read;
pub use simple::argmax::{ArgmaxBlocks, ArgmaxFinal};
pub use simple::attention::{Attention, AttentionCombine};
pub use simple::embed::{Embed, EmbeddingScale};
pub use simple::gemv::{Gemv, GemvAdd, GemvBias, Team};
pub use simple::log_likelihood::LogLikelihood;
pub use simple::rms_norm::RmsNorm;
pub use simple::rope::{Pairing, Rope};
pub use simple::swiglu::{Activation, SwiGlu};
pub use tiled::ProductTile;
