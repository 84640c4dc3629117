//! Sums over positions: the online softmax of a warp (Milakov and Gimelshein, 2018,
//! arXiv:1805.02867), and the merging of partial results.

use super::definition::PipelinedAttention;
use crate::shared::reduce::lanes_max;
use ptx_gen::*;
use std::array::from_fn;

/// A partial result over some positions, for one query: the maximum in log2, the sum of the
/// weights, and four of the weighted values.
pub(super) struct SoftmaxPartial<'k> {
    pub(super) max: F32<'k>,
    pub(super) weights: F32<'k>,
    pub(super) values: [F32<'k>; 4],
}

impl<'k> SoftmaxPartial<'k> {
    /// Merges partial results at their common maximum, in their order. A partial result whose
    /// maximum is `f32::MIN` has no weight.
    pub(super) fn of(partials: &[SoftmaxPartial<'k>]) -> SoftmaxPartial<'k> {
        let max = partials
            .iter()
            .map(|partial| partial.max)
            .reduce(|a, b| a.max(b))
            .expect("there are partials");
        let factors: Vec<_> = partials
            .iter()
            .map(|partial| (partial.max - max).ex2())
            .collect();
        let sum = |of: &dyn Fn(&SoftmaxPartial<'k>) -> F32<'k>| {
            let rest = partials.iter().zip(&factors).skip(1);
            rest.fold(of(&partials[0]) * factors[0], |sum, (partial, &factor)| {
                of(partial).fma(factor, sum)
            })
        };
        let values = from_fn(|i| sum(&|partial| partial.values[i]));
        SoftmaxPartial {
            max,
            weights: sum(&|partial| partial.weights),
            values,
        }
    }
}

/// Rounds four values to `f16`. Returns the rounded values and their residuals, two to a word.
pub(super) fn halves(v: [F32<'_>; 4]) -> [[U32<'_>; 2]; 2] {
    let high = v.map(|v| v.cvt::<f16>());
    let residual = |i: usize| {
        let rest = v[i] - high[i].cvt::<f32>();
        rest.cvt::<f16>()
    };
    let low: [_; 4] = from_fn(residual);
    [high, low].map(|four| {
        let first_two = four[0].pack(four[1]).bits();
        let last_two = four[2].pack(four[3]).bits();
        [first_two, last_two]
    })
}

/// The running sums of a warp. For query `g = lane / 4`, a lane has the maximum and its share of
/// the sum of the weights. For each 16 dimensions, it has the weighted values of queries `2t` and
/// `2t + 1` at the dimensions `g` and `g + 8`, where `t = lane % 4`.
pub(super) struct OnlineSoftmax<'k> {
    pub(super) max: Var<'k, f32>,
    pub(super) weights: Var<'k, f32>,
    pub(super) values: Vec<Sums<'k, f32>>,
}

impl<'k> OnlineSoftmax<'k> {
    /// Creates empty sums. The maximum starts at `f32::MIN` instead of minus infinity, because
    /// infinity minus infinity would be NaN.
    pub(super) fn new(k: Builder<'k>, def: &PipelinedAttention) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        OnlineSoftmax {
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values,
        }
    }

    /// Converts scores to weights relative to the new maximum, and rescales the sums to it. Returns
    /// the weights as rounded values and residuals.
    pub(super) fn weigh(&mut self, k: Builder<'k>, scores: [F32<'k>; 4]) -> [[U32<'k>; 2]; 2] {
        let most = scores
            .into_iter()
            .reduce(|a, b| a.max(b))
            .expect("there are four");
        let max = lanes_max(3, most).max(&self.max);
        let shrink = (self.max.get() - max).ex2();
        self.max.set(max);
        let weights = scores.map(|score| (score - max).ex2());
        self.weights *= shrink;
        self.weights += (weights[0] + weights[1]) + (weights[2] + weights[3]);

        // The sums belong to other queries than the scores of a lane. Their factors come from the
        // lanes that have those queries.
        let own = (k.lane() & 3) * 8;
        let shrink = [shrink.shfl_idx(own), shrink.shfl_idx(own + 4)];
        for values in &mut self.values {
            for (i, value) in values.0.iter_mut().enumerate() {
                *value *= shrink[i % 2];
            }
        }

        halves(weights)
    }

    /// Adds the weighted values of a tile. `tile` is the lane's address for `ldmatrix`.
    pub(super) fn add(&mut self, tile: Ptr<'k, f16, Shared>, [high, low]: [[U32<'k>; 2]; 2]) {
        for (step, sums) in (0..).zip(&mut self.values) {
            let [a0, a1, a2, a3] = tile.at(16 * step).ldmatrix4_trans();
            let a = LeftFragment([a0, a1, a2, a3]);
            sums.add_f16(a, RightFragment(high));
            sums.add_f16(a, RightFragment(low));
        }
    }
}
