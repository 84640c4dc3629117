//! Dropout on the inputs of adapters ([Hinton et al., 2012](https://arxiv.org/abs/1207.0580)), with
//! random numbers from counters.
//!
//! Element `e = row k + column` of an input `[tokens, k]` takes word `e mod 4` of
//! [`philox4x32`]`((e / 4, 0, stream, micro), seed)`. It is kept if `word >> 8 >= round(p 2^24)`.
//! The mask of an element depends only on its place, so the backward pass computes it again and no
//! mask is stored.

use super::buffers::{narrow, wide};
use super::optimizer::state::{COUNTERS, MICRO};
use super::products::add_scaled;
use crate::harness::{Case, Variant};
use crate::shared::philox::{on_device, philox4x32};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

/// The dropout mask of one input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask {
    /// The threshold of [`threshold`]: an element whose 24 bits are below it is dropped.
    pub threshold: u32,
    /// The key of the random numbers.
    pub seed: u64,
    /// The number of the input: `7 layer + projection`.
    pub stream: u32,
    /// The index of the micro-batch over all steps.
    pub micro: u32,
}

/// Returns `round(p 2^24)` for the probability `p` of dropping an element.
///
/// # Example
///
/// ```
/// use warpwright_kernels::train::dropout::threshold;
///
/// assert_eq!(threshold(0.5), 1 << 23);
/// ```
pub fn threshold(p: f64) -> u32 {
    (p * f64::from(1 << 24)).round_ties_even() as u32
}

impl Mask {
    /// Returns true for each of the elements `4 i` to `4 i + 3` that is kept.
    pub fn keeps(&self, i: u32) -> [bool; 4] {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        philox4x32([i, 0, self.stream, self.micro], key).map(|word| word >> 8 >= self.threshold)
    }

    /// Returns `x * m`: the kept elements, and zeros. They are not divided by `1 - p`.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let four = |(i, x): (usize, &[f64])| {
            let keeps = self.keeps(i as u32);
            let kept = x
                .iter()
                .zip(keeps)
                .map(|(&x, keep)| if keep { x } else { 0.0 });
            kept.collect::<Vec<_>>()
        };
        x.chunks(4).enumerate().flat_map(four).collect()
    }
}

args! {
    /// Arguments of [`AddMasked`].
    pub struct AddMaskedArgs {
        /// `[n]`: an input `[tokens, k]`, or a gradient of its shape
        x: In<f32>,
        /// `[n]`: the kept elements of `x` are added to it.
        sum: InOut<f32>,
        /// `[4]`: the counters of [`state`](super::optimizer::state)
        counters: In<u32>,
        /// `[2]`: the words of the key
        seed: In<u32>,
        /// The number of elements, a multiple of 4.
        n: u32,
        /// The number of the input, as in [`Mask::stream`].
        stream: u32,
        /// The threshold from [`threshold`].
        threshold: u32,
    }
}

/// Kernel that adds the elements that the mask of the current micro-batch keeps, with 4 elements
/// per thread. Its reference is [`Mask::apply`].
pub struct AddMasked {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for AddMasked {
    type Args<S: Side> = AddMaskedArgs<S>;

    fn name(&self) -> String {
        format!("train_add_masked_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &AddMaskedArgs<Shape>) -> Result<Grid, ShapeError> {
        let &AddMaskedArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        check_lengths! { self, a:
            x == n,
            sum == n,
        }
        self.exactly("counters", a.counters, COUNTERS)?;
        self.exactly("seed", a.seed, 2)?;
        Ok(Grid::line(n.div_ceil(4 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddMaskedArgs<Dev<'k>>) {
        let group = k.ctaid() * self.threads + k.tid();
        let i = group * 4;
        // One call of Philox gives the four words of a thread's elements.
        k.when(i.lt(a.n), || {
            k.section(
                "train/dropout/random",
                "four words for four elements, by their place",
            );
            let counter = [group, k.val(0u32), a.stream, a.counters.at(MICRO).ld()];
            let words = on_device(counter, [0, 1].map(|word| a.seed.at(word).ld()));
            let x = a.x.at(i).ld4();
            let sum = a.sum.at(i).ld4();
            a.sum.at(i).st4(from_fn(|j| {
                let kept = (words[j] >> 8).ge(a.threshold);
                sum[j] + kept.select(x[j], 0.0)
            }));
        });
    }

    fn reference(&self, a: AddMaskedArgs<Cpu<'_>>) {
        let seed = u64::from(a.seed[0]) | u64::from(a.seed[1]) << 32;
        let mask = Mask {
            threshold: a.threshold,
            seed,
            stream: a.stream,
            micro: a.counters[MICRO as usize],
        };
        let mut sum = wide(a.sum);
        add_scaled(1.0, &mask.apply(&wide(a.x)), &mut sum);
        narrow(&sum, a.sum);
    }
}

impl Variant for AddMasked {
    /// Returns cases that keep all elements, or drop a tenth or a half, for several inputs and
    /// micro-batches. Some blocks are partial.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 4 * self.threads;
        let case = |(n, p, stream, micro): (u32, f64, u32, u32)| {
            let mut random = Random(seed);
            let args = vec![
                CpuArg::F32(random.units(n as usize)),
                CpuArg::F32(random.units(n as usize)),
                CpuArg::U32(vec![17, micro, 3, 0]),
                CpuArg::U32(vec![random.bits() as u32, random.bits() as u32]),
                CpuArg::scalar(n),
                CpuArg::scalar(stream),
                CpuArg::scalar(threshold(p)),
            ];
            Case {
                label: format!("n={n} p={p} stream={stream} micro={micro}"),
                args,
                bound: 6e-8,
            }
        };
        [
            (4, 0.0, 0, 0),
            (edge, 0.1, 6, 1),
            (edge + 36, 0.5, 200, 70_000),
        ]
        .map(case)
        .into()
    }
}
