//! What is summed over positions: by a warp, and of parts.

use super::AttentionChained;
use crate::reduce::lanes_max;
use ptx_gen::*;
use std::array::from_fn;

/// Of some positions, for one query: the maximum in log2, the sum of the weights, and four of the weighted values.
pub(super) struct Total<'k> {
    pub(super) max: F32<'k>,
    pub(super) weights: F32<'k>,
    pub(super) values: [F32<'k>; 4],
}

impl<'k> Total<'k> {
    /// All of them, at their common maximum, added in their order. Those whose maximum is the least float count
    /// nothing.
    pub(super) fn of(parts: &[Total<'k>]) -> Total<'k> {
        let max = parts.iter().map(|part| part.max).reduce(|a, b| a.max(b)).expect("there are parts");
        let factors: Vec<_> = parts.iter().map(|part| (part.max - max).ex2()).collect();
        let sum = |of: &dyn Fn(&Total<'k>) -> F32<'k>| {
            let rest = parts.iter().zip(&factors).skip(1);
            rest.fold(of(&parts[0]) * factors[0], |sum, (part, &factor)| of(part).fma(factor, sum))
        };
        let values = from_fn(|i| sum(&|part| part.values[i]));
        Total { max, weights: sum(&|part| part.weights), values }
    }
}

/// Quotient and remainder by a number known now, where `v * by` is below 2^32: `ptxas` divides by a literal as slowly
/// as by anything else.
pub(super) fn divided(v: U32<'_>, by: u32) -> (U32<'_>, U32<'_>) {
    if by.is_power_of_two() {
        return (v >> by.ilog2(), v & (by - 1));
    }
    let quotient = v.mul_hi((u32::MAX / by) + 1);
    (quotient, v - quotient * by)
}

/// Four numbers as halves, and what rounding them lost as halves: two to a word.
pub(super) fn halves(v: [F32<'_>; 4]) -> [[U32<'_>; 2]; 2] {
    let high = v.map(|v| v.cvt::<f16>());
    let low: [_; 4] = from_fn(|i| (v[i] - high[i].cvt::<f32>()).cvt::<f16>());
    [high, low].map(|h| [h[0].pack(h[1]).bits(), h[2].pack(h[3]).bits()])
}

/// What a warp has summed: for query `g = lane / 4` the maximum and this lane's part of the weights, and 16
/// dimensions each the weighted values of queries `2t` and `2t + 1`, dimensions `g` and `g + 8`.
pub(super) struct Sum<'k> {
    pub(super) max: Var<'k, f32>,
    pub(super) weights: Var<'k, f32>,
    pub(super) values: Vec<Sums<'k, f32>>,
}

impl<'k> Sum<'k> {
    /// The least float stands for no maximum yet: infinity less itself would be NaN.
    pub(super) fn new(k: Builder<'k>, def: &AttentionChained) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        Sum { max: k.var(f32::MIN), weights: k.var(0.0), values }
    }

    /// The weights of these scores, relative to the new maximum, to which it brings the sums.
    pub(super) fn weigh(&mut self, k: Builder<'k>, scores: [F32<'k>; 4]) -> [[U32<'k>; 2]; 2] {
        let most = scores.into_iter().reduce(|a, b| a.max(b)).expect("there are four");
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

    /// Adds the values of a tile, weighted. `tile` is where the lane finds its matrices.
    pub(super) fn add(&mut self, tile: Ptr<'k, f16, Shared>, [high, low]: [[U32<'k>; 2]; 2]) {
        for (step, sums) in (0..).zip(&mut self.values) {
            let [a0, a1, a2, a3] = tile.at(16 * step).ldmatrix4_trans();
            let a = A([a0, a1, a2, a3]);
            sums.add_f16(a, B(high));
            sums.add_f16(a, B(low));
        }
    }
}
