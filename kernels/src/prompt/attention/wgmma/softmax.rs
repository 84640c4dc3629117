//! Online softmax (Milakov and Gimelshein, 2018, arXiv:1805.02867) over the sums of a warpgroup. A
//! lane has the two queries `g` and `g + 8` of its warp, where `g = lane / 4`.

use crate::shared::reduce::{lanes_max, lanes_sum};
use ptx_gen::*;

/// The mask of the lanes that share a query.
const QUAD: u32 = 3;
/// The number of chains of dependent operations that run in parallel.
const CHAINS: usize = 4;

/// The running maximum and sum of a lane's queries.
pub(super) struct Softmax<'k> {
    k: Builder<'k>,
    /// The maximum of the scores. It starts at `f32::MIN`, because infinity minus infinity would be
    /// NaN.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the sum of the weights.
    weights: [Var<'k, f32>; 2],
}

/// Returns which of the lane's queries sum `i` belongs to.
fn query(i: usize) -> usize {
    i / 2 % 2
}

impl<'k> Softmax<'k> {
    /// Returns the state before the first step.
    pub(super) fn new(k: Builder<'k>) -> Self {
        Softmax {
            k,
            max: [0, 1].map(|_| k.var(f32::MIN)),
            weights: [0, 1].map(|_| k.var(0.0)),
        }
    }

    /// Replaces scores by weights relative to the new maxima. Returns the factors of the earlier
    /// sums.
    pub(super) fn weigh(&mut self, scores: &mut Accumulators<'k, f32>) -> [F32<'k>; 2] {
        let maxima = [0, 1].map(|r| {
            let own = chains(of_query(&scores.0, r).map(Var::get), |a, b| a.max(b));
            lanes_max(QUAD, own).max(&self.max[r])
        });

        self.k.section(
            "prompt/wgmma/weights",
            "weights relative to the maximum so far",
        );
        for (i, score) in scores.0.iter_mut().enumerate() {
            score.set((score.get() - maxima[query(i)]).ex2());
        }

        [0, 1].map(|r| {
            let factor = (self.max[r].get() - maxima[r]).ex2();
            let sum = chains(of_query(&scores.0, r).map(Var::get), |a, b| a + b);
            let so_far = self.weights[r].get();
            self.weights[r].set(so_far.fma(factor, sum));
            self.max[r].set(maxima[r]);
            factor
        })
    }

    /// Returns the results of the lane's queries for each eight dimensions, two adjacent dimensions
    /// to a word.
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

/// Multiplies sums by the factors of their queries, unless all factors of the warp are 1.
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

/// Returns the elements that belong to query `r`.
fn of_query<T>(all: &[T], r: usize) -> impl Iterator<Item = &T> {
    all.iter()
        .enumerate()
        .filter(move |(i, _)| query(*i) == r)
        .map(|(_, v)| v)
}

/// Combines every fourth element, then the four results, which shortens the dependency chain.
fn chains<'k>(
    all: impl Iterator<Item = F32<'k>>,
    combine: impl Fn(F32<'k>, F32<'k>) -> F32<'k>,
) -> F32<'k> {
    let mut chains: Vec<F32> = vec![];
    for (i, v) in all.enumerate() {
        if i < CHAINS {
            chains.push(v);
        } else {
            chains[i % CHAINS] = combine(chains[i % CHAINS], v);
        }
    }
    chains
        .into_iter()
        .reduce(combine)
        .expect("there are positions and dimensions")
}
