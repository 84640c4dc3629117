//! The parts of references that the kernels of the pipeline share.

use crate::format::{Format, tile};

/// Returns the sums of the rows in double precision, over the dequantized tiles.
pub(super) fn exact64<'a>(
    format: Format,
    w: &[u8],
    x: &'a [f64],
) -> impl Iterator<Item = f64> + 'a {
    let weights = tile::dequantize(format, w, x.len());
    let rows = weights
        .chunks(x.len().max(1))
        .map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum());
    rows.collect::<Vec<f64>>().into_iter()
}

/// Returns the sums of the rows in double precision, for `f32` activations.
pub(super) fn exact(format: Format, w: &[u8], x: &[f32]) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    exact64(format, w, &x).collect()
}

/// Returns `x * gamma / rms(x)` in double precision, followed by zeros up to the length `n` of a
/// padded row.
pub(super) fn padded_normed(x: &[f32], gamma: &[f32], epsilon: f32, n: u32) -> Vec<f64> {
    let mut normed = normed(x, gamma, epsilon);
    normed.resize(n as usize, 0.0);
    normed
}

/// Returns `x * gamma / rms(x)` in double precision.
pub(crate) fn normed(x: &[f32], gamma: &[f32], epsilon: f32) -> Vec<f64> {
    let square = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / x.len() as f64;
    let factor = 1.0 / (square + f64::from(epsilon)).sqrt();
    x.iter()
        .zip(gamma)
        .map(|(&x, &g)| f64::from(x) * f64::from(g) * factor)
        .collect()
}
