//! The arithmetic of a QLoRA training step in `f64`: what the kernels of training are compared with.
//!
//! QLoRA ([Dettmers et al., 2023](https://arxiv.org/abs/2305.14314)) trains low-rank adapters over frozen weights of 4
//! bits. Each file is one operation, forward and backward, as pure functions over slices. Matrices are row-major; a
//! gradient `dx` is that of the loss with respect to `x`. Nothing here rounds, except where an argument says how
//! tensors are [stored](Storage), and in [`nf4`] and [`nested`], whose arithmetic is `f32` by definition.
//!
//! Slices must have the lengths that the documentation gives; the functions index them without other checks.
//!
//! Some files also hold kernels in `f32`, whose references these functions are: simple ones, to begin with, that compute
//! each formula as it stands. [`flash`] has kernels of attention in `bf16` on tensor cores,
//! [`half`] those of all other operations.

pub mod adamw;
pub mod attention;
pub mod clip;
pub mod cross_entropy;
pub mod dropout;
pub mod embed;
pub mod flash;
pub mod half;
pub mod linear;
pub mod lora;
pub mod micro_batch;
pub mod nested;
pub mod nf4;
pub mod philox;
pub mod products;
pub mod rms_norm;
pub mod rope;
pub mod schedule;
pub mod state;
mod storage;
pub mod swiglu;

pub use storage::Storage;

/// The numbers of a buffer.
fn wide(buffer: &[f32]) -> Vec<f64> {
    buffer.iter().copied().map(f64::from).collect()
}

/// Stores numbers in a buffer.
fn narrow(numbers: &[f64], buffer: &mut [f32]) {
    buffer
        .iter_mut()
        .zip(numbers)
        .for_each(|(to, &x)| *to = x as f32);
}
