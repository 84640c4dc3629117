//! Sums over positions: the online softmax of a warp, and adding partial results.

use super::BatchAttention;
use super::tile::Matrices;
use crate::reduce::{lanes_max, lanes_sum};
use ptx_gen::*;
use std::array::from_fn;

/// Lanes that share a query.
const QUAD: u32 = 3;

/// A partial result over some positions, for one query: the maximum in log2, the sum of the weights, and four of the
/// weighted values.
pub(super) struct Partial<'k> {
    pub(super) max: F32<'k>,
    pub(super) weights: F32<'k>,
    pub(super) values: [F32<'k>; 4],
}

impl<'k> Partial<'k> {
    /// Adds partial results at their common maximum, in their order. Those whose maximum is `f32::MIN` have no weight.
    pub(super) fn sum(partials: &[Partial<'k>]) -> Partial<'k> {
        let max = partials
            .iter()
            .map(|p| p.max)
            .reduce(|a, b| a.max(b))
            .expect("there are partials");
        let factors: Vec<_> = partials.iter().map(|p| (p.max - max).ex2()).collect();
        let add = |of: &dyn Fn(&Partial<'k>) -> F32<'k>| {
            let rest = partials.iter().zip(&factors).skip(1);
            rest.fold(of(&partials[0]) * factors[0], |sum, (p, &factor)| {
                of(p).fma(factor, sum)
            })
        };
        Partial {
            max,
            weights: add(&|p| p.weights),
            values: from_fn(|i| add(&|p| p.values[i])),
        }
    }

    /// The weighted mean of the values.
    pub(super) fn result(&self) -> [F32<'k>; 4] {
        let factor = self.weights.rcp();
        self.values.map(|v| v * factor)
    }
}

/// A partial result that changes.
pub(super) struct Running<'k> {
    max: Var<'k, f32>,
    weights: Var<'k, f32>,
    values: [Var<'k, f32>; 4],
}

impl<'k> Running<'k> {
    /// `f32::MIN` stands for "no maximum yet": infinity minus infinity would be NaN.
    pub(super) fn none(k: Builder<'k>) -> Self {
        Running {
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values: from_fn(|_| k.var(0.0)),
        }
    }

    /// What is there now.
    pub(super) fn get(&self) -> Partial<'k> {
        let values = from_fn(|i| self.values[i].get());
        Partial {
            max: self.max.get(),
            weights: self.weights.get(),
            values,
        }
    }

    pub(super) fn set(&mut self, to: Partial<'k>) {
        self.max.set(to.max);
        self.weights.set(to.weights);
        self.values
            .iter_mut()
            .zip(to.values)
            .for_each(|(value, v)| value.set(v));
    }

    /// Loads maximum and sum, and values, where `there` holds.
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

/// The running sums of a warp for eight queries: for query `g = lane / 4` the maximum and this lane's share of the
/// weights; and for each 16 dimensions the weighted values of queries `2t` and `2t + 1`, dimensions `g` and `g + 8`,
/// where `t = lane % 4`.
pub(super) struct OnlineSoftmax<'k> {
    k: Builder<'k>,
    max: Var<'k, f32>,
    weights: Var<'k, f32>,
    values: Vec<Sums<'k, f32>>,
}

impl<'k> OnlineSoftmax<'k> {
    pub(super) fn new(k: Builder<'k>, def: &BatchAttention) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        OnlineSoftmax {
            k,
            max: k.var(f32::MIN),
            weights: k.var(0.0),
            values,
        }
    }

    /// Scores to weights relative to the new maximum, to which the sums are rescaled: a right matrix.
    pub(super) fn weigh(&mut self, scores: [F32<'k>; 4]) -> RightFragment<U32<'k>> {
        let most = scores
            .into_iter()
            .reduce(|a, b| a.max(b))
            .expect("there are four");
        let max = lanes_max(QUAD, most).max(&self.max);
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

    fn rescale(&mut self, factor: F32<'k>) {
        self.k.section(
            "batch/attention/rescale",
            "a maximum has risen: rescale the sums",
        );
        self.weights *= factor;
        let own = (self.k.lane() & 3) * 8;
        let factors = [factor.shfl_idx(own), factor.shfl_idx(own + 4)];
        for values in &mut self.values {
            for (i, value) in values.0.iter_mut().enumerate() {
                *value *= factors[i % 2];
            }
        }
    }

    /// Stores maximum and sum, for each query, and values, in rows of `row` numbers. Whole warp.
    pub(super) fn store(
        &self,
        outcome: Ptr<'k, f32, Shared>,
        values: Ptr<'k, f32, Shared>,
        row: u32,
    ) {
        let (g, t) = (self.k.lane() >> 2, self.k.lane() & 3);
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
