//! Sums over positions: the online softmax of a warp (Milakov and Gimelshein, 2018,
//! arXiv:1805.02867), and the addition of partial results.

use super::definition::BatchAttention;
use super::tile::Matrices;
use crate::shared::reduce::{lanes_max, lanes_sum};
use ptx_gen::*;
use std::array::from_fn;

/// The mask of the lanes that share a query.
const QUAD: u32 = 3;

/// A partial result over some positions, for one query: the maximum in log2, the sum of the
/// weights, and four of the weighted values.
pub(super) struct SplitPartial<'k> {
    pub(super) max: F32<'k>,
    pub(super) weights: F32<'k>,
    pub(super) values: [F32<'k>; 4],
}

impl<'k> SplitPartial<'k> {
    /// Adds partial results at their common maximum, in their order. A partial result whose maximum
    /// is `f32::MIN` has no weight.
    pub(super) fn sum(partials: &[SplitPartial<'k>]) -> SplitPartial<'k> {
        let max = partials
            .iter()
            .map(|p| p.max)
            .reduce(|a, b| a.max(b))
            .expect("there are partials");
        let factors: Vec<_> = partials.iter().map(|p| (p.max - max).ex2()).collect();
        let add = |of: &dyn Fn(&SplitPartial<'k>) -> F32<'k>| {
            let rest = partials.iter().zip(&factors).skip(1);
            rest.fold(of(&partials[0]) * factors[0], |sum, (p, &factor)| {
                of(p).fma(factor, sum)
            })
        };
        SplitPartial {
            max,
            weights: add(&|p| p.weights),
            values: from_fn(|i| add(&|p| p.values[i])),
        }
    }

    /// Returns the weighted mean of the values.
    pub(super) fn result(&self) -> [F32<'k>; 4] {
        let factor = self.weights.rcp();
        self.values.map(|v| v * factor)
    }
}

/// A partial result in variables.
pub(super) struct RunningSoftmax<'k> {
    max: Var<'k, f32>,
    weights: Var<'k, f32>,
    values: [Var<'k, f32>; 4],
}

impl<'k> RunningSoftmax<'k> {
    /// Returns a partial result without positions. The maximum starts at `f32::MIN` instead of
    /// minus infinity, because infinity minus infinity would be NaN.
    pub(super) fn none(k: Builder<'k>) -> Self {
        RunningSoftmax {
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values: from_fn(|_| k.var(0.0)),
        }
    }

    /// Returns the current values.
    pub(super) fn get(&self) -> SplitPartial<'k> {
        let values = from_fn(|i| self.values[i].get());
        SplitPartial {
            max: self.max.get(),
            weights: self.weights.get(),
            values,
        }
    }

    /// Replaces the values.
    pub(super) fn set(&mut self, to: SplitPartial<'k>) {
        self.max.set(to.max);
        self.weights.set(to.weights);
        for (value, v) in self.values.iter_mut().zip(to.values) {
            value.set(v);
        }
    }

    /// Loads maximum, sum and values where `there` is true.
    pub(super) fn load(
        &mut self,
        there: Pred<'k>,
        outcome: Ptr<'k, f32, ReadWrite>,
        values: Ptr<'k, f32, ReadWrite>,
    ) {
        outcome.fresh().ld_if(there, &mut self.max);
        outcome.fresh().at(1).ld_if(there, &mut self.weights);
        values.fresh().ld4_if(there, &mut self.values);
    }
}

/// The running sums of a warp for eight queries. For query `g = lane / 4`, a lane has the maximum
/// and its share of the sum of the weights. For each 16 dimensions, it has the weighted values of
/// queries `2t` and `2t + 1` at the dimensions `g` and `g + 8`, where `t = lane % 4`.
pub(super) struct OnlineSoftmax<'k> {
    k: Builder<'k>,
    max: Var<'k, f32>,
    weights: Var<'k, f32>,
    values: Vec<Sums<'k, f32>>,
}

impl<'k> OnlineSoftmax<'k> {
    /// Returns empty sums.
    pub(super) fn new(k: Builder<'k>, def: &BatchAttention) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        OnlineSoftmax {
            k,
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values,
        }
    }

    /// Converts scores to weights relative to the new maximum, and rescales the sums. Returns the
    /// weights as a right matrix.
    pub(super) fn weigh(&mut self, scores: [F32<'k>; 4]) -> RightFragment<U32<'k>> {
        let most = scores
            .into_iter()
            .reduce(|a, b| a.max(b))
            .expect("there are four");
        let max = lanes_max(QUAD, most).max(&self.max);

        // Maxima rarely rise after the first tiles, so rescaling is a branch of the whole warp.
        let risen = max.gt(&self.max).any();
        self.k
            .when(risen, || self.rescale((self.max.get() - max).ex2()));
        self.max.set(max);
        let weights = scores.map(|score| (score - max).ex2());
        self.weights += (weights[0] + weights[1]) + (weights[2] + weights[3]);
        RightFragment([
            weights[0].pack_f16(weights[1]),
            weights[2].pack_f16(weights[3]),
        ])
    }

    /// Multiplies the sums by the factor of a new maximum.
    fn rescale(&mut self, factor: F32<'k>) {
        self.k.section(
            "batch/attention/rescale",
            "a maximum has risen: rescale the sums",
        );
        self.weights *= factor;

        // The sums belong to other queries than the scores of a lane. Their factors come from the
        // lanes that have those queries.
        let own = (self.k.lane() & 3) * 8;
        let factors = [factor.shfl_idx(own), factor.shfl_idx(own + 4)];
        for values in &mut self.values {
            for (i, value) in values.0.iter_mut().enumerate() {
                *value *= factors[i % 2];
            }
        }
    }

    /// Stores maximum and sum of each query, and the values, in rows of `row` elements. The whole
    /// warp must call it.
    pub(super) fn store(
        &self,
        outcome: Ptr<'k, f32, Shared>,
        values: Ptr<'k, f32, Shared>,
        row: u32,
    ) {
        let g = self.k.lane() >> 2;
        let t = self.k.lane() & 3;
        let weights = lanes_sum(QUAD, self.weights.get());
        self.k
            .when(t.eq(0), || outcome.at(g * 2).st2([self.max.get(), weights]));
        let to = values.row(t, 8 * row).at(g);
        for (sixteen, values) in (0..).zip(&self.values) {
            for (offset, value) in [0, row, 8, row + 8].into_iter().zip(&values.0) {
                to.at(16 * sixteen + offset).st(value);
            }
        }
    }
}

/// Adds the weighted values of a tile to the sums of each set of queries.
pub(super) fn add_values<'k>(
    sets: &mut [OnlineSoftmax<'k>],
    tile: &Matrices<'k>,
    weights: &[RightFragment<U32<'k>>],
) {
    for pair in 0..sets[0].values.len() {
        let [a0, a1, a2, a3] = tile.at(pair as u32).ldmatrix4_trans();
        for (set, &weights) in sets.iter_mut().zip(weights) {
            set.values[pair].add_f16(LeftFragment([a0, a1, a2, a3]), weights);
        }
    }
}
