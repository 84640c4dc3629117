//! Scores of a warp's queries, their weights, and the sums of weighted values.

use super::definition::ROWS;
use crate::shared::reduce::tree;

use crate::shared::reduce::{lanes_max, lanes_sum};
use crate::shared::shared_rows::Matrices;
use ptx_gen::*;

/// The mask of the lanes that share a query.
const QUAD: u32 = 3;

/// The running sums of 16 queries. A lane has the queries `g` and `g + 8`, where `g = lane / 4`.
pub(super) struct Tile<'k> {
    /// The maximum of the scores. It starts at `f32::MIN`, because infinity minus infinity would be
    /// NaN.
    max: [Var<'k, f32>; 2],
    /// The lane's share of the sum of the weights.
    weights: [Var<'k, f32>; 2],
    /// The weighted values, for each eight dimensions.
    values: Vec<Sums<'k, f32>>,
}

/// The scores of a warp's queries in a step, for each 16 queries and each eight keys.
pub(super) struct Weights<'k> {
    k: Builder<'k>,
    scores: Vec<Vec<Sums<'k, f32>>>,
}

impl<'k> Weights<'k> {
    /// Returns zero scores.
    pub(super) fn zero(k: Builder<'k>, tiles: usize, keys: u32) -> Self {
        let tile = |_| (0..keys / 8).map(|_| Sums::zero(k)).collect();
        Weights {
            k,
            scores: (0..tiles).map(tile).collect(),
        }
    }

    /// Multiplies queries by keys and adds the results to the scores.
    pub(super) fn multiply(&mut self, queries: &Matrices<'k>, keys: &Matrices<'k>, head_dim: u32) {
        for pair in 0..head_dim / 16 {
            let load = |i: usize| LeftFragment(queries.at(ROWS * i as u32, pair).ldmatrix4());
            // Queries are loaded once per 16 dimensions and used for all keys.
            let left: Vec<LeftFragment> = (0..self.scores.len()).map(load).collect();
            for sixteen in 0..self.scores[0].len() / 2 {
                let [b0, b1, b2, b3] = keys.at(16 * sixteen as u32, pair).ldmatrix4();
                for (scores, &a) in self.scores.iter_mut().zip(&left) {
                    scores[2 * sixteen].add_f16(a, RightFragment([b0, b1]));
                    scores[2 * sixteen + 1].add_f16(a, RightFragment([b2, b3]));
                }
            }
        }
    }

    /// Replaces each score by the result of `masked`, which gets a distance and the score. The
    /// distance is the score's query relative to the lane's first query, less its key relative to
    /// the lane's first key.
    pub(super) fn mask(&mut self, masked: impl Fn(i32, F32<'k>) -> F32<'k>) {
        for (tile, scores) in (0..).zip(&mut self.scores) {
            self.k
                .section("prompt/attention/tile_scores", "scores of 16 queries");
            for (eight, sums) in (0..).zip(scores) {
                for (i, score) in (0..).zip(&mut sums.0) {
                    let further = 16 * tile + i / 2 * 8 - (8 * eight + i % 2);
                    score.set(masked(further, score.get()));
                }
            }
        }
    }

    /// Converts scores to weights relative to the new maxima, and rescales the sums. Returns a left
    /// matrix for each 16 queries and each 16 keys.
    pub(super) fn weigh(self, tiles: &mut [Tile<'k>]) -> Vec<Vec<LeftFragment<'k>>> {
        let next = |(tile, scores): (&Tile<'k>, &Vec<Sums<'k, f32>>)| {
            [0, 1].map(|r| tile.next_max(scores, r))
        };
        let maxima: Vec<[F32; 2]> = tiles.iter().zip(&self.scores).map(next).collect();
        let rises = tiles
            .iter()
            .zip(&maxima)
            .flat_map(|(tile, max)| [0, 1].map(|r| max[r].gt(&tile.max[r])));

        // The vote makes the branch uniform in the warp.
        let risen = rises.reduce(|a, b| a | b).expect("there are queries").any();
        let weights = tiles.iter_mut().zip(&self.scores).zip(&maxima);
        let weigh = |((tile, scores), &max): ((&mut Tile<'k>, &Vec<_>), _)| {
            self.k
                .section("prompt/attention/tile_weights", "weights of 16 queries");
            tile.weigh(scores, max)
        };
        let weights: Vec<_> = weights.map(weigh).collect();
        self.k.when(risen, || {
            self.k.section(
                "prompt/attention/rescale",
                "a maximum has risen: rescale the sums",
            );
            for (tile, &max) in tiles.iter_mut().zip(&maxima) {
                tile.rescale(max);
            }
        });
        for (tile, (max, (_, sums))) in tiles.iter_mut().zip(maxima.into_iter().zip(&weights)) {
            tile.advance(max, *sums);
        }

        weights.into_iter().map(|(weights, _)| weights).collect()
    }
}

impl<'k> Tile<'k> {
    /// Returns empty sums.
    pub(super) fn new(k: Builder<'k>, head_dim: u32) -> Self {
        Tile {
            max: [0, 1].map(|_| k.var(f32::MIN)),
            weights: [0, 1].map(|_| k.var(0.0)),
            values: (0..head_dim / 8).map(|_| Sums::zero(k)).collect(),
        }
    }

    /// Returns the largest score of query `r` so far, including the scores of a step.
    fn next_max(&self, scores: &[Sums<'k, f32>], r: usize) -> F32<'k> {
        let scores = scores
            .iter()
            .flat_map(|sums| [0, 1].map(|i| sums.0[2 * r + i].get()));
        let largest = tree(scores.collect(), |a, b| a.max(b));
        lanes_max(QUAD, largest).max(&self.max[r])
    }

    /// Returns the weights of a step as left matrices, and the sums of the lane's weights.
    fn weigh(
        &mut self,
        scores: &[Sums<'k, f32>],
        max: [F32<'k>; 2],
    ) -> (Vec<LeftFragment<'k>>, [F32<'k>; 2]) {
        let mut all = [vec![], vec![]];
        let mut words = [vec![], vec![]];
        for sums in scores {
            for r in 0..2 {
                // The weights are summed before they are rounded to `f16`.
                let weight = |i: usize| (sums.0[2 * r + i].get() - max[r]).ex2();
                let [low, high] = [0, 1].map(weight);
                words[r].push(low.pack_f16(high));
                all[r].push(low + high);
            }
        }

        let left = |i: usize| {
            LeftFragment([
                words[0][2 * i],
                words[1][2 * i],
                words[0][2 * i + 1],
                words[1][2 * i + 1],
            ])
        };
        let weights = (0..scores.len() / 2).map(left).collect();
        let sums = all.map(|all| tree(all, |a, b| a + b));
        (weights, sums)
    }

    /// Returns the factors that rescale the old sums.
    fn factors(&self, max: [F32<'k>; 2]) -> [F32<'k>; 2] {
        [0, 1].map(|r| (self.max[r].get() - max[r]).ex2())
    }

    /// Rescales the sums to new maxima.
    fn rescale(&mut self, max: [F32<'k>; 2]) {
        let factors = self.factors(max);
        for sums in &mut self.values {
            for (i, value) in sums.0.iter_mut().enumerate() {
                *value *= factors[i / 2];
            }
        }
        for (weights, factor) in self.weights.iter_mut().zip(factors) {
            *weights *= factor;
        }
    }

    /// Sets the new maxima and adds the weights of a step.
    fn advance(&mut self, max: [F32<'k>; 2], sums: [F32<'k>; 2]) {
        for (old, max) in self.max.iter_mut().zip(max) {
            old.set(max);
        }
        for (weights, sum) in self.weights.iter_mut().zip(sums) {
            *weights += sum;
        }
    }

    /// Adds the weighted values of a step.
    pub(super) fn add(&mut self, weights: &[LeftFragment<'k>], values: &Matrices<'k>) {
        for (sixteen, &a) in (0..).zip(weights) {
            for (pair, sums) in (0..).zip(self.values.chunks_mut(2)) {
                let [b0, b1, b2, b3] = values.at(16 * sixteen, pair).ldmatrix4_trans();
                sums[0].add_f16(a, RightFragment([b0, b1]));
                sums[1].add_f16(a, RightFragment([b2, b3]));
            }
        }
    }

    /// Returns the results of query `g + 8 r` for each eight dimensions, two adjacent dimensions to
    /// a word.
    pub(super) fn results(&self, r: usize) -> Vec<U32<'k>> {
        let reciprocal = lanes_sum(QUAD, self.weights[r].get()).rcp();
        let word = |sums: &Sums<'k, f32>| {
            let [low, high] = [0, 1].map(|i| sums.0[2 * r + i].get() * reciprocal);
            low.pack_f16(high)
        };
        self.values.iter().map(word).collect()
    }
}
