//! Online softmax over the sums of a warpgroup's products: of two queries for each lane, `g` and `g + 8` of its warp.

use crate::reduce::{lanes_max, lanes_sum};
use ptx_gen::*;

/// Lanes that share a query.
const QUAD: u32 = 3;
/// Chains of dependent operations that run beside each other.
const CHAINS: usize = 4;

/// The running maximum and sum of a lane's queries.
pub(super) struct Softmax<'k> {
    k: Builder<'k>,
    /// The maximum of the scores. `f32::MIN` stands for none: infinity minus infinity would be NaN.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the sum of the weights.
    weights: [Var<'k, f32>; 2],
}

/// Which query sum `i` is of.
fn query(i: usize) -> usize {
    i / 2 % 2
}

impl<'k> Softmax<'k> {
    pub(super) fn new(k: Builder<'k>) -> Self {
        Softmax {
            k,
            max: [0, 1].map(|_| k.var(f32::MIN)),
            weights: [0, 1].map(|_| k.var(0.0)),
        }
    }

    /// Turns scores into weights relative to the new maxima. Gives the factors of what was summed before.
    pub(super) fn weigh(&mut self, scores: &mut Accumulators<'k, f32>) -> [F32<'k>; 2] {
        let maxima = [0, 1].map(|r| {
            let own = chains(of_query(&scores.0, r).map(Var::get), |a, b| a.max(b));
            lanes_max(QUAD, own).max(&self.max[r])
        });
        self.k.section(
            "prompt/wgmma/weights",
            "weights, relative to the maximum so far",
        );
        for (i, score) in scores.0.iter_mut().enumerate() {
            score.set((score.get() - maxima[query(i)]).ex2());
        }
        [0, 1].map(|r| {
            let factor = (self.max[r].get() - maxima[r]).ex2();
            let sum = chains(of_query(&scores.0, r).map(Var::get), |a, b| a + b);
            self.weights[r].set(self.weights[r].get().fma(factor, sum));
            self.max[r].set(maxima[r]);
            factor
        })
    }

    /// The results of the lane's queries, two neighbouring dimensions to a word, for each eight dimensions.
    pub(super) fn results(&self, values: &Accumulators<'k, f32>) -> [Vec<U32<'k>>; 2] {
        [0, 1].map(|r| {
            let reciprocal = lanes_sum(QUAD, self.weights[r].get()).rcp();
            let all: Vec<F32> = of_query(&values.0, r)
                .map(|value| value.get() * reciprocal)
                .collect();
            all.chunks(2)
                .map(|pair| pair[0].pack_f16(pair[1]))
                .collect()
        })
    }
}

/// Multiplies sums by the factors of their queries, unless all of the warp's are 1.
pub(super) fn rescale<'k>(
    k: Builder<'k>,
    values: &mut Accumulators<'k, f32>,
    factors: [F32<'k>; 2],
) {
    let risen = (factors[0].ne(1.0) | factors[1].ne(1.0)).any();
    k.when(risen, || {
        k.section(
            "prompt/wgmma/rescale",
            "a maximum has risen: rescale the sums",
        );
        for (i, value) in values.0.iter_mut().enumerate() {
            *value *= factors[query(i)];
        }
    });
}

fn of_query<T>(all: &[T], r: usize) -> impl Iterator<Item = &T> {
    all.iter()
        .enumerate()
        .filter(move |(i, _)| query(*i) == r)
        .map(|(_, v)| v)
}

/// Combines every fourth, then those of each.
fn chains<'k>(
    all: impl Iterator<Item = F32<'k>>,
    combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>,
) -> F32<'k> {
    let mut chains: Vec<F32> = vec![];
    for (i, v) in all.enumerate() {
        match i < CHAINS {
            true => chains.push(v),
            false => chains[i % CHAINS] = combine(chains[i % CHAINS], v),
        }
    }
    chains
        .into_iter()
        .reduce(combine)
        .expect("there are positions and dimensions")
}
