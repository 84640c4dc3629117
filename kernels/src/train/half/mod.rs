//! Kernels of a training step in `bf16`.
//!
//! Tensors in memory are `bf16`, and sums are `f32`. A tensor is rounded once, when it is stored.
//! The references are the functions of the parent module's files.
//!
//! Matrices are row-major and reach the tensor cores of sm_90a through tensor maps, which need rows
//! of a multiple of 16 bytes.

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

use crate::shared::Random;
use ptx_gen::bf16;

/// Returns the elements of a buffer as `f64`.
fn wide(buffer: &[bf16]) -> Vec<f64> {
    buffer.iter().map(|x| x.to_f32().into()).collect()
}

/// Stores numbers in a buffer.
fn narrow(numbers: &[f64], buffer: &mut [bf16]) {
    for (to, &x) in buffer.iter_mut().zip(numbers) {
        *to = bf16::from_f32(x as f32);
    }
}

/// Returns random numbers from -1 to 1.
fn units(random: &mut Random, n: usize) -> Vec<bf16> {
    (0..n).map(|_| bf16::from_f32(random.unit())).collect()
}
