//! Sums over positions: the online softmax of a warp, and merging partial results.

use super::PipelinedAttention;
use crate::reduce::lanes_max;
use ptx_gen::*;
use std::array::from_fn;

/// A partial result over some positions, for one query: the maximum in log2, the sum of the weights, and four of the
/// weighted values.
pub(super) struct SoftmaxPartial<'k> {
    pub(super) max: F32<'k>,
    pub(super) weights: F32<'k>,
    pub(super) values: [F32<'k>; 4],
}

impl<'k> SoftmaxPartial<'k> {
    /// Merges partial results at their common maximum, in their order. Those whose maximum is `f32::MIN` have no
    /// weight.
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

/// Quotient and remainder by a literal, where `v * by` is below 2^32. `ptxas` does not optimize division by a
/// literal.
pub(crate) fn divided(v: U32<'_>, by: u32) -> (U32<'_>, U32<'_>) {
    if by.is_power_of_two() {
        return (v >> by.ilog2(), v & (by - 1));
    }
    let quotient = v.mul_hi((u32::MAX / by) + 1);
    (quotient, v - quotient * by)
}

/// Four numbers as f16, and their rounding residuals as f16: two to a word.
pub(super) fn halves(v: [F32<'_>; 4]) -> [[U32<'_>; 2]; 2] {
    let high = v.map(|v| v.cvt::<f16>());
    let low: [_; 4] = from_fn(|i| (v[i] - high[i].cvt::<f32>()).cvt::<f16>());
    [high, low].map(|h| [h[0].pack(h[1]).bits(), h[2].pack(h[3]).bits()])
}

/// The running sums of a warp: for query `g = lane / 4` the maximum and this lane's share of the weights; and for
/// each 16 dimensions the weighted values of queries `2t` and `2t + 1`, dimensions `g` and `g + 8`.
pub(super) struct OnlineSoftmax<'k> {
    pub(super) max: Var<'k, f32>,
    pub(super) weights: Var<'k, f32>,
    pub(super) values: Vec<Sums<'k, f32>>,
}

impl<'k> OnlineSoftmax<'k> {
    /// `f32::MIN` stands for "no maximum yet": infinity minus infinity would be NaN.
    pub(super) fn new(k: Builder<'k>, def: &PipelinedAttention) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        OnlineSoftmax {
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values,
        }
    }

    /// Converts scores to weights relative to the new maximum, and rescales the sums to it.
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
