//! Chunked passes: the forward pass over many tokens at once, up to [`CHUNK`], on tensor cores.
//!
//! A pass reads the pipeline's tiles. Its kernels are in `warpwright_kernels::matmul`. A layer
//! consists of a norm, the matmuls of queries, keys and values, a kernel that rotates them and
//! appends to the cache, attention, the output projection, a second norm, gate and up, and the down
//! projection. The inputs of matmuls are binary16 values with a power-of-two scale per token. The
//! residual stream is `f32`.
//!
//! Only the last token of a prompt's chunk feeds the LM head. The last layer therefore computes
//! only keys and values for all other tokens: see [`step::WantedRows`].
//!
//! The length of a chunk is an argument of its kernels. The tile width of a matmul depends on the
//! length and on the device: see [`products`].

pub(crate) mod experts;
pub(crate) mod kernels;
pub(crate) mod list;
pub(crate) mod loaded;
pub(crate) mod lora;
pub(crate) mod panels;
pub(crate) mod products;
pub(crate) mod prompt;
mod span;
pub(crate) mod step;
pub(crate) mod weights;
pub(crate) mod workspace;

/// The maximum number of tokens per chunk.
pub(crate) const CHUNK: u32 = 2048;
/// The minimum number of tokens per chunk. Shorter remainders are left to the pipeline, which
/// processes eight tokens at a time. On an H200, a chunk is already faster for 25 tokens of a model
/// with 7 M parameters. The break-even point of large models was not measured.
pub(crate) const LEAST: u32 = 16;
