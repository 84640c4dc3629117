//! The online softmax (Milakov and Gimelshein 2018) of 16 queries. A lane has the queries `g` and
//! `g + 8`.
use super::fragments::{self, Tile};
use crate::shared::reduce::{lanes_max, lanes_sum, tree};
use ptx_gen::*;
use std::f32::consts::LN_2;

/// The bits in which the numbers of the four lanes that share a query differ.
pub(super) const QUAD: u32 = 3;

/// The running maximum and sum of a lane's two queries.
pub(super) struct Softmax<'k> {
    /// The maximum of the scores in log2 units. It starts at `f32::MIN`, because infinity minus
    /// infinity would be NaN.
    max: [Var<'k, f32>; 2],
    /// The sum of the lane's weights.
    sum: [Var<'k, f32>; 2],
}

impl<'k> Softmax<'k> {
    pub(super) fn new(k: Builder<'k>) -> Self {
        Softmax {
            max: [0, 1].map(|_| k.var(f32::MIN)),
            sum: [0, 1].map(|_| k.var(0.0)),
        }
    }

    /// Returns the weights of a step as left operands, and the lane's sums of them before the
    /// rounding.
    fn weigh(
        scores: &Tile<'k>,
        max: [F32<'k>; 2],
        factor: f32,
    ) -> (Vec<LeftFragment<'k>>, [F32<'k>; 2]) {
        let weights = fragments::map(scores, |score, i, _| score.fma(factor, -max[i / 2]).ex2());
        let all = |r: usize| {
            weights
                .iter()
                .flat_map(|w| [w[2 * r], w[2 * r + 1]])
                .collect()
        };
        let operands = fragments::rounded(&weights);
        let sums = [0, 1].map(|r| tree(all(r), |a, b| a + b));
        (operands, sums)
    }

    /// Returns the new maximum of query `g + 8 r`.
    fn next_max(&self, scores: &Tile<'k>, r: usize, factor: f32) -> F32<'k> {
        let scores = scores
            .iter()
            .flat_map(|sums| [0, 1].map(|i| sums.0[2 * r + i].get()));
        let largest = lanes_max(QUAD, tree(scores.collect(), |a, b| a.max(b)));
        (largest * factor).max(&self.max[r])
    }

    /// Rescales the sums to the new maxima.
    fn rescale(&mut self, max: [F32<'k>; 2], values: &mut Tile<'k>) {
        let factors = [0, 1].map(|r| (self.max[r].get() - max[r]).ex2());
        for sums in values {
            for (i, value) in sums.0.iter_mut().enumerate() {
                *value *= factors[i / 2];
            }
        }
        for (sum, factor) in self.sum.iter_mut().zip(factors) {
            *sum *= factor;
        }
    }

    /// Stores the new maxima and adds the sums of a step.
    fn advance(&mut self, max: [F32<'k>; 2], sums: [F32<'k>; 2]) {
        for (old, max) in self.max.iter_mut().zip(max) {
            old.set(max);
        }
        for (sum, more) in self.sum.iter_mut().zip(sums) {
            *sum += more;
        }
    }

    /// Returns the factor of the weighted values of query `g + 8 r`, and the natural logarithm of
    /// the sum of the exponentials of its scores.
    pub(super) fn end(&self, r: usize) -> (F32<'k>, F32<'k>) {
        let sum = lanes_sum(QUAD, self.sum[r].get());
        let factor = sum.rcp();
        let lse = (self.max[r].get() + sum.lg2()) * LN_2;
        (factor, lse)
    }
}

/// Returns the weights of a step for each 16 queries, relative to the maxima so far, as left
/// operands.
///
/// If a maximum has risen, the sums so far are rescaled. Scores times `factor` are in log2 units.
pub(super) fn weigh<'k>(
    k: Builder<'k>,
    softmax: &mut [Softmax<'k>],
    scores: &[Tile<'k>],
    factor: f32,
    values: &mut [Tile<'k>],
) -> Vec<Vec<LeftFragment<'k>>> {
    k.section("train/flash/maxima", "flash: the new maxima");
    let next = |(softmax, scores): (&Softmax<'k>, &Tile<'k>)| {
        [0, 1].map(|r| softmax.next_max(scores, r, factor))
    };
    let maxima: Vec<[F32; 2]> = softmax.iter().zip(scores).map(next).collect();
    let rises = softmax
        .iter()
        .zip(&maxima)
        .flat_map(|(old, max)| [0, 1].map(|r| max[r].gt(&old.max[r])));

    // Maxima rarely rise after the first steps. A branch of the whole warp then skips the
    // rescaling.
    let risen = rises.reduce(|a, b| a | b).expect("there are queries").any();
    let weigh = |(scores, &max): (&Tile<'k>, &[F32<'k>; 2])| {
        k.section("train/flash/weights", "flash: weights of 16 queries");
        Softmax::weigh(scores, max, factor)
    };
    let (weights, sums): (Vec<_>, Vec<_>) = scores.iter().zip(&maxima).map(weigh).unzip();
    k.when(risen, || {
        k.section(
            "train/flash/rescale",
            "flash: a maximum has risen, rescale the sums",
        );
        for ((softmax, &max), values) in softmax.iter_mut().zip(&maxima).zip(values) {
            softmax.rescale(max, values);
        }
    });
    for (softmax, (max, sums)) in softmax.iter_mut().zip(maxima.into_iter().zip(sums)) {
        softmax.advance(max, sums);
    }

    weights
}
