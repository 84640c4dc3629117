//! The arithmetic of a QLoRA training step in `f64`, which is the reference of the training
//! kernels.
//!
//! QLoRA ([Dettmers et al., 2023](https://arxiv.org/abs/2305.14314)) trains low-rank adapters over
//! frozen 4-bit weights. Each file has one operation, forward and backward, as pure functions over
//! slices. Matrices are row-major. A gradient `dx` is the gradient of the loss with respect to `x`.
//! Functions do not round, except where an argument says how tensors are [stored](Storage), and in
//! [`nf4`] and [`nested`], which define their arithmetic in `f32`.
//!
//! Slices must have the lengths in the documentation. Functions do not check them, but index the
//! slices and may panic.
//!
//! Some files also have simple kernels in `f32` that compute the formulas literally. [`flash`] has
//! the attention kernels in `bf16` on tensor cores, and [`half`] has the `bf16` kernels of all
//! other operations.

pub mod attention;
mod buffers;
pub mod cross_entropy;
pub mod dropout;
pub mod embed;
pub mod flash;
pub mod half;
pub mod linear;
pub mod lora;
pub mod nested;
pub mod nf4;
pub mod optimizer;
pub mod products;
pub mod rms_norm;
pub mod rope;
mod storage;
pub mod swiglu;
pub(crate) mod variants;

pub use storage::Storage;
