//! Online softmax of 16 queries; a lane has queries `g` and `g + 8`.

use super::fragments::{self, Tile};
use crate::reduce::{lanes_max, lanes_sum};
use ptx_gen::*;
use std::f32::consts::LN_2;

/// Lanes that share a query.
pub(super) const QUAD: u32 = 3;

/// The running maximum and sum.
pub(super) struct Softmax<'k> {
    k: Builder<'k>,
    /// The maximum of the scores, in log2 units. `f32::MIN` stands for none: infinity minus infinity would be NaN.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the sum of the weights.
    sum: [Var<'k, f32>; 2],
}

impl<'k> Softmax<'k> {
    pub(super) fn new(k: Builder<'k>) -> Self {
        Softmax { k, max: [0, 1].map(|_| k.var(f32::MIN)), sum: [0, 1].map(|_| k.var(0.0)) }
    }

    /// The weights of a step, relative to the maximum so far, as left matrices. Where it has risen, the sums so far are
    /// rescaled. Scores times `factor` are in log2 units.
    pub(super) fn weigh(&mut self, scores: &Tile<'k>, factor: f32, values: &mut Tile<'k>) -> Vec<A<'k>> {
        let max = [0, 1].map(|r| self.next_max(scores, r, factor));
        let risen = (max[0].gt(&self.max[0]) | max[1].gt(&self.max[1])).any();
        self.k.when(risen, || {
            self.k.note("flash: a maximum has risen, rescale the sums");
            self.rescale(max, values);
        });
        self.k.note("flash: weights of 16 queries");
        let weights = fragments::map(scores, |score, i, _| score.fma(factor, -max[i / 2]).ex2());
        for (r, sum) in self.sum.iter_mut().enumerate() {
            let all = weights.iter().flat_map(|w| [w[2 * r], w[2 * r + 1]]).collect();
            *sum += tree(all, |a, b| a + b);
        }
        fragments::rounded(&weights)
    }

    fn next_max(&self, scores: &Tile<'k>, r: usize, factor: f32) -> F32<'k> {
        let scores = scores.iter().flat_map(|sums| [0, 1].map(|i| sums.0[2 * r + i].get()));
        (lanes_max(QUAD, tree(scores.collect(), |a, b| a.max(b))) * factor).max(&self.max[r])
    }

    fn rescale(&mut self, max: [F32<'k>; 2], values: &mut Tile<'k>) {
        let factors = [0, 1].map(|r| (self.max[r].get() - max[r]).ex2());
        for sums in values {
            sums.0.iter_mut().enumerate().for_each(|(i, value)| *value *= factors[i / 2]);
        }
        for r in 0..2 {
            self.sum[r] *= factors[r];
            self.max[r].set(max[r]);
        }
    }

    /// What the weighted values of query `g + 8 r` are to be multiplied by, and the natural logarithm of the sum of the
    /// exponentials of its scores.
    pub(super) fn end(&self, r: usize) -> (F32<'k>, F32<'k>) {
        let sum = lanes_sum(QUAD, self.sum[r].get());
        (sum.rcp(), (self.max[r].get() + sum.lg2()) * LN_2)
    }
}

/// Adds neighbours, then their sums, and so on.
fn tree<'k>(mut all: Vec<F32<'k>>, combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>) -> F32<'k> {
    while all.len() > 1 {
        all = all.chunks(2).map(|two| two.iter().copied().reduce(&combine).expect("one or two")).collect();
    }
    all[0]
}
