//! Chunked prefill: the forward pass over a chunk of a prompt at once, up to [`CHUNK`] tokens, on tensor cores.
//!
//! It reads the pipeline's tiles. Its kernels are `warpwright_kernels::matmul`: a layer is a norm, the products of
//! queries, keys and values, a kernel that rotates them and appends to the cache, attention, the output projection, a
//! norm, gate and up, and the down projection. The activations of products are binary16 with a power of two for each
//! token, the residual stream is `f32`.
//!
//! A prompt's chunk is read at its last token alone, so the last layer stops at keys and values for the others: see
//! [`step::Wanted`].
//!
//! The chunk's length is an argument of its kernels, and how many tokens a block takes depends on it, and on the device:
//! see [`products`].

pub(crate) mod kernels;
pub(crate) mod list;
pub(crate) mod products;
pub(crate) mod prompt;
mod span;
pub(crate) mod step;
pub(crate) mod weights;
pub(crate) mod workspace;

/// Tokens of a chunk, at most.
pub(crate) const CHUNK: u32 = 2048;
/// Fewer tokens are left to the pipeline, eight at once. On an H200, 25 tokens of a model of 7M are already faster as a
/// chunk; where the two meet for large models was not measured.
pub(crate) const LEAST: u32 = 16;
