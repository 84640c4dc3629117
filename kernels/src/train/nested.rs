//! Nested quantization of the `absmax` of [`nf4`], which QLoRA calls double quantization ([Dettmers
//! et al., 2023](https://arxiv.org/abs/2305.14314)), bit for bit as in bitsandbytes.
//!
//! An `absmax` is `map[code] * scale + offset` in `f32`, with a rounding after each operation. The
//! offset is the mean of all `absmax`. A block of 256 has a scale, which is the largest magnitude
//! after the offset is subtracted. The map is the signed 8-bit dynamic type of 8-bit optimizers
//! ([Dettmers et al., 2021](https://arxiv.org/abs/2110.02861)).

use super::nf4::{self, WORD, inverse};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// The number of `absmax` values that share a scale.
pub const BLOCK: usize = 256;
/// The number of values of [`dynamic_map`].
const MAP: usize = 256;

/// The quantized `absmax` values of a weight.
#[derive(Clone, PartialEq, Debug)]
pub struct Nested {
    /// `[absmax]`: indices of [`dynamic_map`].
    pub codes: Vec<u8>,
    /// `[ceil(absmax / 256)]`: the scale of each block.
    pub scales: Vec<f32>,
    /// The mean of all `absmax` values.
    pub offset: f32,
}

/// Returns the 256 values of the signed 8-bit dynamic type, in rising order.
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

/// Quantizes the `absmax` values of a weight.
pub fn quantize(absmax: &[f32]) -> Nested {
    let map = dynamic_map();
    let midpoint = |pair: &[f32]| ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
    let midpoints: Vec<f32> = map.windows(2).map(midpoint).collect();
    let offset = (absmax.iter().map(|&a| f64::from(a)).sum::<f64>() / absmax.len() as f64) as f32;
    let mut codes = Vec::new();
    let mut scales = Vec::new();
    for block in absmax.chunks(BLOCK) {
        let scale = block.iter().fold(0f32, |m, a| (a - offset).abs().max(m));
        let code =
            |a: &f32| midpoints.partition_point(|m| *m < (a - offset) * inverse(scale)) as u8;
        codes.extend(block.iter().map(code));
        scales.push(scale);
    }

    Nested {
        codes,
        scales,
        offset,
    }
}

/// Returns the `absmax` values that `nested` stands for.
pub fn dequantize(nested: &Nested) -> Vec<f32> {
    unnested(
        [&nested.scales, &dynamic_map()],
        &nested.codes,
        nested.offset,
    )
}

args! {
    /// A weight in NF4 with nested `absmax`, as the arguments of kernels.
    pub struct NestedArgs {
        /// `[n / 2]`: two codes per byte, at an address that is a multiple of 4
        packed: In<u8>,
        /// `[ceil(n / 64)]`: the codes of the `absmax` values
        codes: In<u8>,
        /// `[ceil(n / 64 / 256)]`: the scales
        scales: In<f32>,
        /// `[256]`: the values of [`dynamic_map`]
        map: In<f32>,
    }
}

args! {
    /// Arguments of [`NestedDequantize`].
    pub struct NestedDequantizeArgs {
        /// The weight.
        from: NestedArgs,
        /// `[n]`: the elements
        w: Out<f32>,
        /// The number of elements, a multiple of 8.
        n: u32,
        /// The offset, which is added to each `absmax`.
        offset: f32,
    }
}

/// Kernel that unpacks a weight with nested `absmax`, with 8 elements per thread. It gives the bits
/// of [`nf4::dequantize`] after [`dequantize`].
pub struct NestedDequantize {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for NestedDequantize {
    type Args<S: Side> = NestedDequantizeArgs<S>;

    fn name(&self) -> String {
        format!("train_nested_dequantize_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &NestedDequantizeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &NestedDequantizeArgs { n, .. } = a;
        self.multiple("n", n, WORD)?;
        check_lengths(self, n, a.from)?;
        check_lengths! { self, a:
            w == n,
        }
        Ok(Grid::line(n.div_ceil(WORD * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: NestedDequantizeArgs<Dev<'k>>) {
        let NestedArgs {
            packed,
            codes,
            scales,
            map,
        } = a.from;
        nf4::unpack(k, self.threads, a.n, packed, a.w, |block| {
            let value = map.at(codes.at(block).ld()).ld();
            let scale = scales.at(block / BLOCK as u32).ld();
            value * scale + a.offset
        });
    }

    fn reference(&self, a: NestedDequantizeArgs<Cpu<'_>>) {
        a.w.copy_from_slice(&numbers(&a.from, a.offset));
    }
}

/// Checks the lengths of the buffers of a weight with `n` elements.
pub(super) fn check_lengths(
    kernel: &impl KernelDef,
    n: u32,
    NestedArgs {
        packed,
        codes,
        scales,
        map,
    }: NestedArgs<Shape>,
) -> Result<(), ShapeError> {
    let blocks = n.div_ceil(nf4::BLOCK as u32);
    kernel.length("packed", packed, "n / 2", &[n / 2])?;
    kernel.length("codes", codes, "ceil(n / 64)", &[blocks])?;
    kernel.length(
        "scales",
        scales,
        "ceil(n / 64 / 256)",
        &[blocks.div_ceil(BLOCK as u32)],
    )?;
    kernel.exactly("map", map, MAP)
}

/// Returns the elements of a weight.
pub(super) fn numbers(from: &NestedArgs<Cpu<'_>>, offset: f32) -> Vec<f32> {
    nf4::dequantize(
        from.packed,
        &unnested([from.scales, from.map], from.codes, offset),
    )
}

/// Returns `absmax` values from their codes, the scales and the map.
fn unnested([scales, map]: [&[f32]; 2], codes: &[u8], offset: f32) -> Vec<f32> {
    let scaled = codes
        .iter()
        .enumerate()
        .map(|(i, &code)| map[usize::from(code)] * scales[i / BLOCK]);
    scaled.map(|a| a + offset).collect()
}

/// Returns a case with `n` elements and the output `w`. The cases cover less than a block of
/// scales, a whole block and several.
pub(super) fn case(seed: u64, n: u32, w: CpuArg) -> Case {
    let mut random = Random(seed);
    let packed = (0..n / 2).map(|_| random.bits() as u8).collect();
    let absmax: Vec<f32> = random
        .units(n.div_ceil(nf4::BLOCK as u32) as usize)
        .iter()
        .map(|a| a.abs())
        .collect();
    let Nested {
        codes,
        scales,
        offset,
    } = quantize(&absmax);
    let args = vec![
        CpuArg::U8(packed),
        CpuArg::U8(codes),
        CpuArg::F32(scales),
        CpuArg::F32(dynamic_map().into()),
        w,
        CpuArg::scalar(n),
        CpuArg::scalar(offset),
    ];
    Case {
        label: format!("n={n}"),
        args,
        bound: 0.0,
    }
}

impl Variant for NestedDequantize {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let of = |n: u32| case(seed, n, CpuArg::F32(vec![0.0; n as usize]));
        [8, 72, WORD * self.threads + 200, 64 * 256 + 72]
            .map(of)
            .into()
    }
}
