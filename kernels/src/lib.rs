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
//! - [`measure`]: measurements of the memory and the tensor cores, as upper bounds for the others.
//! - [`mod@format`]: the formats of weights, which every family reads.
//!
//! [`shared`] has the helpers that several families use, and [`harness`] the test cases, the
//! comparison with the reference, and the list of all variants. A family knows nothing of the list:
//! each owns its variants, and the list concatenates them.
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

pub mod batch;
pub mod format;
pub mod harness;
pub mod matmul;
pub mod measure;
pub mod pipeline;
pub mod prompt;
pub mod sample;
pub mod shared;
pub mod simple;
pub mod train;

pub use format::Format;
pub use format::tile::{RowOrder, Tile};
pub use harness::{ALL, Case, Comparison, Variant, compare};
pub use measure::{Multiply, Read};
pub use pipeline::{AddNormed, AddNormedArgs, Advance, EmbedRows, EmbedTiled, Pack};
pub use shared::constant::Constant;
pub use shared::{Overlap, ProductTile, Random};
pub use simple::add_bias::AddBias;
pub use simple::argmax::{ArgmaxBlocks, ArgmaxFinal};
pub use simple::attention::{Attention, AttentionCombine, AttentionCombineSinks};
pub use simple::choose_experts::{ChooseExperts, Weighting};
pub use simple::embed::{Embed, EmbeddingScale};
pub use simple::experts::{AddExpertBias, AddExperts, AddGated, CombineExperts, ExpertGemv};
pub use simple::gemv::{Gemv, GemvAdd, GemvBias, Team};
pub use simple::layer_norm::LayerNorm;
pub use simple::log_likelihood::LogLikelihood;
pub use simple::rms_norm::RmsNorm;
pub use simple::rope::{Pairing, Rope};
pub use simple::soft_cap::SoftCap;
pub use simple::swiglu::{Activation, ClampedSwiGlu, SwiGlu};
