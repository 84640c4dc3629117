//! Nested quantization of the `absmax` of [`nf4`](super::nf4) ([Dettmers et al.,
//! 2023](https://arxiv.org/abs/2305.14314), "double quantization"), bit for bit as bitsandbytes has it.
//!
//! `absmax = map[code] * scale + offset` in `f32`, product and sum rounded apart. The offset is the mean of all; a block
//! of 256 has a scale, the largest magnitude of what is left; the map is the signed 8-bit dynamic type of 8-bit
//! optimizers ([Dettmers et al., 2021](https://arxiv.org/abs/2110.02861)).

use super::nf4::inverse;

/// `absmax` values that share a scale.
pub const BLOCK: usize = 256;

/// Quantized `absmax`.
#[derive(Clone, PartialEq, Debug)]
pub struct Nested {
    /// `[absmax]`: indices of [`dynamic_map`].
    pub codes: Vec<u8>,
    /// `[ceil(absmax / 256)]`
    pub scales: Vec<f32>,
    /// The mean of all.
    pub offset: f32,
}

/// The 256 values of the signed 8-bit dynamic type, ascending.
///
/// Seven decades, from `10^-6` to 1, hold 1, 2, 4, .. 64 values of either sign: the midpoints of equal intervals from a
/// tenth of the decade to the whole of it. Zero and one complete them.
pub fn dynamic_map() -> [f32; 256] {
    let mut values = vec![0.0, 1.0];
    for (i, decade) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0].into_iter().enumerate() {
        let intervals = 1 << i;
        let step = (1.0 - 0.1) / f64::from(intervals);
        let edge = |j: u32| if j == intervals { 1.0 } else { (f64::from(j) * step + 0.1) as f32 };
        let means = (0..intervals).map(|j| decade * ((edge(j) + edge(j + 1)) / 2.0));
        values.extend(means.flat_map(|mean: f32| [mean, -mean]));
    }
    values.sort_by(f32::total_cmp);
    values.try_into().expect("2 and twice 127")
}

/// Quantizes the `absmax` of a weight.
pub fn quantize(absmax: &[f32]) -> Nested {
    let map = dynamic_map();
    let midpoint = |pair: &[f32]| ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
    let midpoints: Vec<f32> = map.windows(2).map(midpoint).collect();
    let offset = (absmax.iter().map(|&a| f64::from(a)).sum::<f64>() / absmax.len() as f64) as f32;
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in absmax.chunks(BLOCK) {
        let scale = block.iter().fold(0f32, |m, a| (a - offset).abs().max(m));
        let code = |a: &f32| midpoints.partition_point(|m| *m < (a - offset) * inverse(scale)) as u8;
        codes.extend(block.iter().map(code));
        scales.push(scale);
    }
    Nested { codes, scales, offset }
}

/// The `absmax` values that `nested` stands for.
pub fn dequantize(nested: &Nested) -> Vec<f32> {
    let map = dynamic_map();
    let scaled =
        nested.codes.iter().enumerate().map(|(i, &code)| map[usize::from(code)] * nested.scales[i / BLOCK]);
    scaled.map(|a| a + nested.offset).collect()
}
