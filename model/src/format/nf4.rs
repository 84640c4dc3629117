//! NF4, the 4-bit NormalFloat of QLoRA ([Dettmers et al., 2023](https://arxiv.org/abs/2305.14314)),
//! as bitsandbytes stores it.
//!
//! A matrix is a sequence of blocks of 64 weights in row-major order. A block has the largest
//! magnitude of its weights, `absmax`, and a 4-bit code for each weight. The first of two neighbors
//! is in the high nibble of the byte. A weight is `VALUES[code] * absmax`, in `f32`.
//!
//! The `absmax` values may be quantized again (double quantization). Each is then `map[code] *
//! scale + offset`, where a scale belongs to 256 of them, and the map is [`dynamic_map`].
//!
//! This is the meaning of a file. The kernels of a training step have their own CPU reference,
//! because a reference belongs next to its kernel. The tests of the trainer compare the two.

/// The number of weights that share an `absmax`.
pub const BLOCK: usize = 64;

/// The number of `absmax` values that share a scale, if they are nested.
pub const NESTED_BLOCK: usize = 256;

/// The value of each code: quantiles of the normal distribution, scaled to [-1, 1], with the digits
/// of bitsandbytes.
pub const VALUES: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A matrix in NF4, with the bytes of its file.
#[derive(Clone, PartialEq, Debug)]
pub struct Nf4Matrix {
    /// `[ceil(weights / 2)]`: two codes per byte, the first in the high nibble.
    pub packed: Vec<u8>,
    /// The largest magnitude of each block.
    pub absmax: Nf4Absmax,
}

/// The `absmax` values of a matrix, in one of the two forms that files have.
#[derive(Clone, PartialEq, Debug)]
pub enum Nf4Absmax {
    /// `[ceil(weights / 64)]`: the values in `f32`.
    F32(Vec<f32>),
    /// The values quantized with [`dynamic_map`].
    Nested {
        /// `[ceil(weights / 64)]`: indices of [`dynamic_map`].
        codes: Vec<u8>,
        /// `[ceil(codes / 256)]`: the scale of each block.
        scales: Vec<f32>,
        /// The mean of all `absmax` values.
        offset: f32,
    },
}

/// Returns the weights of `packed` `[len / 2]` with `absmax` `[len / 64]`.
pub(crate) fn dequantize(packed: &[u8], absmax: &[f32]) -> Vec<f32> {
    let codes = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    codes
        .enumerate()
        .map(|(i, code)| VALUES[usize::from(code)] * absmax[i / BLOCK])
        .collect()
}

/// Returns the 256 values of the signed 8-bit dynamic type of 8-bit optimizers ([Dettmers et al.,
/// 2021](https://arxiv.org/abs/2110.02861)), in rising order.
///
/// Seven decades, from `10^-6` to 1, hold 1, 2, 4, .. 64 values of each sign. They are the
/// midpoints of equal intervals that cover the decade from a tenth of its end to its end. Zero and
/// one complete the map.
pub fn dynamic_map() -> [f32; 256] {
    let mut values = vec![0.0, 1.0];
    for (i, decade) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        .into_iter()
        .enumerate()
    {
        let intervals = 1 << i;
        let step = (1.0 - 0.1) / f64::from(intervals);
        let edge = |j: u32| {
            if j == intervals {
                1.0
            } else {
                (f64::from(j) * step + 0.1) as f32
            }
        };
        let means = (0..intervals).map(|j| decade * ((edge(j) + edge(j + 1)) / 2.0));
        values.extend(means.flat_map(|mean: f32| [mean, -mean]));
    }

    values.sort_by(f32::total_cmp);
    values.try_into().expect("2 and twice 127")
}
