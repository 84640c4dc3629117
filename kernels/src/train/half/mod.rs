//! Kernels of a training step in `bf16`.
//!
//! Tensors in memory are `bf16`, and sums are `f32`. A tensor is rounded once, when it is stored.
//! The references are the functions of the parent module's files.
//!
//! Matrices are row-major and reach the tensor cores of sm_90a through tensor maps, which need rows
//! of a multiple of 16 bytes.

pub(crate) mod buffers;
pub mod convert;
pub mod cross_entropy;
pub mod embed;
pub mod linear;
pub mod lora;
pub mod nested;
pub mod norm;
pub mod rotate;
mod rows;
pub mod swiglu;
pub(crate) mod variants;
