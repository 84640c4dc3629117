//! Kernels of a training step in `bf16`: tensors in memory are `bf16`, sums `f32`, and each tensor is rounded once, when it
//! is stored. References are the functions of the parent modules.
//!
//! Matrices are row-major, and reach the tensor cores of sm_90a through tensor maps; rows are multiples of 16 bytes.

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

use crate::case::Random;
use ptx_gen::bf16;

/// The numbers of a buffer.
fn wide(buffer: &[bf16]) -> Vec<f64> {
    buffer.iter().map(|x| x.to_f32().into()).collect()
}

/// Stores numbers in a buffer.
fn narrow(numbers: &[f64], buffer: &mut [bf16]) {
    buffer
        .iter_mut()
        .zip(numbers)
        .for_each(|(to, &x)| *to = bf16::from_f32(x as f32));
}

/// Numbers from -1 to 1.
fn units(random: &mut Random, n: usize) -> Vec<bf16> {
    (0..n).map(|_| bf16::from_f32(random.unit())).collect()
}
