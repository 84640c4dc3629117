//! Kernels over a paged cache: each token of a batch has its own sequence, and the page table says
//! where its keys and values are.
//!
//! Three kernels of the pipeline use the cache: [`Qkv`](super::Qkv) and
//! [`HeadNorm`](super::HeadNorm) append to it, and
//! [`PipelinedAttention`](super::PipelinedAttention) reads it. [`Paged`] of such a kernel emits the
//! same program, except for the addresses of cache rows. Its results have the same bits as those of
//! the kernel itself over a cache with the same rows.
//!
//! The kernels read the page table and the states before they wait for their predecessor, so no
//! kernel that they overlap may write those. A step therefore begins with a kernel that overlaps
//! nothing. No two tokens of a batch that are not done may belong to one sequence.

mod cases;
mod kernel;

pub(super) use cases::PagedCase;
pub use kernel::*;
