//! The kernels that decode language models, written in [`ptx_gen`].
//!
//! Each file is one kernel: its formula, its arguments, its launch contract, its program, and a naive CPU reference,
//! which is the specification. [`ALL`] lists every shipped variant; snapshots, `ptxas`, the emulator, `check` and
//! benchmarks walk it.
//!
//! The [`simple`] kernels read weights as a GGUF file stores them, row by row, and run on sm_75 and newer. The kernels of
//! the overlapped pipeline ([`pipeline`]) read packed tiles and run on sm_80 and newer. Activations and sums are `f32`.
//! No kernel assumes a size that its contract does not check.
//!
//! [`train`] is the arithmetic of a training step, and simple kernels of its operations.

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
