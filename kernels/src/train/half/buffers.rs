//! Conversions between `bf16` buffers of a case and `f64`, and random buffers.

use crate::shared::Random;
use ptx_gen::bf16;

/// Returns the elements of a buffer as `f64`.
pub(crate) fn wide(buffer: &[bf16]) -> Vec<f64> {
    buffer.iter().map(|x| x.to_f32().into()).collect()
}

/// Stores numbers in a buffer.
pub(crate) fn narrow(numbers: &[f64], buffer: &mut [bf16]) {
    for (to, &x) in buffer.iter_mut().zip(numbers) {
        *to = bf16::from_f32(x as f32);
    }
}

/// Returns random numbers from -1 to 1.
pub(crate) fn units(random: &mut Random, n: usize) -> Vec<bf16> {
    (0..n).map(|_| bf16::from_f32(random.unit())).collect()
}
