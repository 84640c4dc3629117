//! NF4, the 4-bit NormalFloat of QLoRA ([Dettmers et al., 2023](https://arxiv.org/abs/2305.14314)),
//! with the packing and the arithmetic of bitsandbytes, bit for bit.
//!
//! A weight `[n, k]` is a sequence of blocks of 64 elements in row-major order, and a block may
//! cross rows. A block has the largest magnitude of its elements, `absmax`, and a 4-bit code for
//! each element. The first of two neighbors is in the high nibble of the byte. All arithmetic is
//! `f32`. An element is `VALUES[code] * absmax`. The code of `w` is the number of thresholds below
//! `w * (1 / absmax)`.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

/// The number of elements that share an `absmax`.
pub const BLOCK: usize = 64;

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

/// Returns the midpoints of neighboring values, rounded to `f32`.
pub fn thresholds() -> [f32; 15] {
    from_fn(|i| (VALUES[i] + VALUES[i + 1]) / 2.0)
}

/// A weight in NF4. Its `absmax` may be [nested](super::nested).
#[derive(Clone, PartialEq, Debug)]
pub struct Nf4<A = Vec<f32>> {
    /// `[ceil(weights / 2)]`: two codes per byte, the first in the high nibble.
    pub packed: Vec<u8>,
    /// `[ceil(weights / 64)]`: the largest magnitude of each block.
    pub absmax: A,
}

/// Quantizes weights. A weight that is not finite gives a meaningless code.
///
/// # Example
///
/// The largest magnitude of a block gets the first or the last code:
///
/// ```
/// use warpwright_kernels::train::nf4::{dequantize, quantize};
///
/// let nf4 = quantize(&[2.0, -2.0]);
/// assert_eq!(nf4.packed, [0xf0]);
/// assert_eq!(dequantize(&nf4.packed, &nf4.absmax), [2.0, -2.0]);
/// ```
pub fn quantize(weights: &[f32]) -> Nf4 {
    let thresholds = thresholds();
    let absmax: Vec<f32> = weights
        .chunks(BLOCK)
        .map(|block| block.iter().fold(0.0, |m, w| w.abs().max(m)))
        .collect();
    let code = |(i, w): (usize, &f32)| {
        let x = w * inverse(absmax[i / BLOCK]);
        // The comparison is strict, so a value at a threshold takes the lower code.
        thresholds.iter().filter(|&&t| x > t).count() as u8
    };
    let codes: Vec<u8> = weights.iter().enumerate().map(code).collect();
    let packed = codes
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair.get(1).unwrap_or(&0))
        .collect();
    Nf4 { packed, absmax }
}

/// Returns the elements of `packed` `[len / 2]` with `absmax` `[len / 64]`.
///
/// A `bf16` weight is the rounded result.
pub fn dequantize(packed: &[u8], absmax: &[f32]) -> Vec<f32> {
    let codes = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    codes
        .enumerate()
        .map(|(i, code)| VALUES[usize::from(code)] * absmax[i / BLOCK])
        .collect()
}

/// Returns `1 / absmax`, or 0 for a block of zeros.
pub(super) fn inverse(absmax: f32) -> f32 {
    if absmax > 0.0 { absmax.recip() } else { 0.0 }
}

args! {
    /// Arguments of [`Nf4Dequantize`].
    pub struct Nf4DequantizeArgs {
        /// `[n / 2]`: two codes per byte, at an address that is a multiple of 4
        packed: In<u8>,
        /// `[ceil(n / 64)]`: the largest magnitude of each block
        absmax: In<f32>,
        /// `[n]`: the elements
        w: Out<f32>,
        /// The number of elements, a multiple of 8.
        n: u32,
    }
}

/// Kernel that unpacks elements to `f32`, with 8 per thread. It gives the bits of [`dequantize`].
pub struct Nf4Dequantize {
    /// The number of threads of a block.
    pub threads: u32,
}

/// The number of elements of a thread: the codes of a word. They share an `absmax`.
pub(super) const WORD: u32 = 8;

impl KernelDef for Nf4Dequantize {
    type Args<S: Side> = Nf4DequantizeArgs<S>;

    fn name(&self) -> String {
        format!("train_nf4_dequantize_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &Nf4DequantizeArgs<Shape>) -> Result<Grid, ShapeError> {
        let &Nf4DequantizeArgs { n, .. } = a;
        self.multiple("n", n, WORD)?;
        self.length("packed", a.packed, "n / 2", &[n / 2])?;
        self.length(
            "absmax",
            a.absmax,
            "ceil(n / 64)",
            &[n.div_ceil(BLOCK as u32)],
        )?;
        check_lengths! { self, a:
            w == n,
        }
        Ok(Grid::line(n.div_ceil(WORD * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: Nf4DequantizeArgs<Dev<'k>>) {
        unpack(k, self.threads, a.n, a.packed, a.w, |block| {
            a.absmax.at(block).ld()
        });
    }

    fn reference(&self, a: Nf4DequantizeArgs<Cpu<'_>>) {
        a.w.copy_from_slice(&dequantize(a.packed, a.absmax));
    }
}

/// Unpacks `n` elements. `absmax` returns the `absmax` of a block.
pub(super) fn unpack<'k>(
    k: Builder<'k>,
    threads: u32,
    n: U32<'k>,
    packed: Ptr<'k, u8, ReadOnly>,
    w: Ptr<'k, f32, WriteOnly>,
    absmax: impl Fn(U32<'k>) -> F32<'k>,
) {
    let values = values(k);

    k.section(
        "train/nf4/weights",
        "w = value * absmax; the first of two codes is in the high nibble",
    );
    let i = (k.ctaid() * threads + k.tid()) * WORD;
    k.when(i.lt(n), || {
        let word = packed.cast::<u32>().at(i / WORD).ld();
        // A word never crosses a block, so its eight codes share one `absmax`.
        let absmax = absmax(i / BLOCK as u32);
        let of = |j: u32| values.at(code(word, j)).ld() * absmax;
        for half in [0, 4] {
            w.at(i + half).st4(from_fn(|j| of(half + j as u32)));
        }
    });
}

/// Stores the values of NF4 in shared memory.
///
/// Codes differ between lanes. Loads from constant memory would be serialized, unlike loads from
/// shared memory.
pub(crate) fn values<'k>(k: Builder<'k>) -> Ptr<'k, f32, Shared> {
    k.section("train/nf4/values", "the values, in shared memory");
    let values = k.shared::<f32>("values", VALUES.len() as u32);
    k.when(k.tid().eq(0), || {
        for i in 0..4 {
            values
                .at(4 * i)
                .st4(from_fn(|j| k.val(VALUES[4 * i as usize + j])));
        }
    });
    k.barrier();
    values
}

/// Returns code `j` of a word with eight codes.
pub(crate) fn code(word: U32<'_>, j: u32) -> U32<'_> {
    // The first code of a byte is in its high nibble.
    word.bfe(8 * (j / 2) + 4 * (1 - j % 2), 4)
}

impl Variant for Nf4Dequantize {
    /// Returns cases with fewer elements than a block, with a block of elements that ends inside a
    /// block of threads, and with several blocks of both.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |n: u32| {
            let mut random = Random(seed);
            let packed = (0..n / 2).map(|_| random.bits() as u8).collect();
            let mut absmax = random.units(n.div_ceil(BLOCK as u32) as usize);
            absmax[0] = 0.0;
            let args = vec![
                CpuArg::U8(packed),
                CpuArg::F32(absmax),
                CpuArg::F32(vec![0.0; n as usize]),
                CpuArg::scalar(n),
            ];
            Case {
                label: format!("n={n}"),
                args,
                bound: 0.0,
            }
        };
        [8, 72, 640, WORD * self.threads, WORD * self.threads + 200]
            .map(case)
            .into()
    }
}
