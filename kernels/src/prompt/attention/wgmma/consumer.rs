//! A warpgroup that multiplies.

use super::ring::Cursor;
use super::softmax::{Softmax, rescale};
use super::{Block, GROUP_QUERIES, KEYS, WARP_QUERIES};
use crate::prompt::attention::store::Results;
use ptx_gen::*;

pub(super) struct Consumer<'b, 'a, 'k> {
    block: &'b Block<'a, 'k>,
    k: Builder<'k>,
    group: U32<'k>,
    /// The first of the warp's queries in the block.
    row: U32<'k>,
    at: Cursor<'k>,
    scores: Accumulators<'k, f32>,
    /// The weights of a step: a left matrix for each 16 positions.
    weights: Vec<[Var<'k, u32>; 4]>,
    softmax: Softmax<'k>,
    values: Accumulators<'k, f32>,
    always: Pred<'k>,
    never: Pred<'k>,
}

impl<'b, 'a, 'k> Consumer<'b, 'a, 'k> {
    pub(super) fn new(block: &'b Block<'a, 'k>, group: U32<'k>) -> Self {
        let k = block.k;
        Consumer {
            block,
            k,
            group,
            row: group * GROUP_QUERIES + (k.warp() & 3) * WARP_QUERIES,
            at: Cursor::start(k),
            scores: Accumulators::zero(k, KEYS),
            weights: (0..KEYS / 16)
                .map(|_| [0; 4].map(|zero| k.var(zero)))
                .collect(),
            softmax: Softmax::new(k),
            values: Accumulators::zero(k, block.def.head_dim),
            always: k.always(),
            never: k.val(0u32).ne(0),
        }
    }

    pub(super) fn attend(mut self) {
        let k = self.k;
        k.section("prompt/wgmma/first_scores", "scores of the first step");
        let keys = self.next();
        k.wgmma_fence();
        self.multiply_queries(keys);
        k.wgmma_wait(0);
        self.release(keys);
        self.mask(self.block.start);
        let _ = self.softmax.weigh(&mut self.scores);
        self.pack();
        self.block.each_further(|step| self.step(step));
        k.section(
            "prompt/wgmma/last_values",
            "weighted values of the last step",
        );
        let values = self.next();
        k.wgmma_fence();
        self.multiply_values(values);
        k.wgmma_wait(0);
        self.store();
    }

    /// Scores and weights of a step, and beside them the weighted values of the step before.
    fn step(&mut self, step: U32<'k>) {
        let k = self.k;
        k.section(
            "prompt/wgmma/step",
            "scores of a step, weighted values of the step before",
        );
        let keys = self.next();
        k.wgmma_fence();
        self.multiply_queries(keys);
        let values = self.next();
        self.multiply_values(values);
        k.wgmma_wait(1);
        self.release(keys);
        self.mask(step);
        let factors = self.softmax.weigh(&mut self.scores);
        k.wgmma_wait(0);
        self.release(values);
        rescale(k, &mut self.values, factors);
        self.pack();
    }

    /// Waits for the next tile.
    fn next(&mut self) -> U32<'k> {
        let tile = self.at.tile.get();
        self.block.ring.full(tile).wait(&self.at.parity);
        self.at.advance();
        tile
    }

    /// Says that the warp has done with a tile.
    fn release(&self, tile: U32<'k>) {
        self.k
            .when(self.k.lane().eq(0), || self.block.ring.empty(tile).arrive());
    }

    fn queries(&self) -> Ptr<'k, u8, Shared> {
        self.block
            .queries
            .row(self.group, self.block.def.group_bytes())
    }

    fn multiply_queries(&mut self, tile: U32<'k>) {
        let dim = self.block.def.head_dim;
        let queries =
            Descriptor::<f16>::by_columns(self.queries(), GROUP_QUERIES, dim, Swizzle::B128);
        let keys =
            Descriptor::<f16>::by_columns(self.block.ring.tile(tile), KEYS, dim, Swizzle::B128);
        for from in (0..dim).step_by(16) {
            let add = if from == 0 { self.never } else { self.always };
            self.scores
                .multiply(queries.inner(from), keys.inner(from), add);
        }
        self.k.wgmma_commit();
    }

    fn multiply_values(&mut self, tile: U32<'k>) {
        let dim = self.block.def.head_dim;
        let values =
            Descriptor::<f16>::by_rows(self.block.ring.tile(tile), KEYS, dim, Swizzle::B128);
        for (i, weights) in (0..).zip(&self.weights) {
            let weights = LeftFragment::of(weights);
            self.values
                .multiply_registers::<f16, f16>(weights, values.inner(16 * i), self.always);
        }
        self.k.wgmma_commit();
    }

    /// Scores of positions that do not count become minus infinity.
    fn mask(&mut self, step: U32<'k>) {
        let (k, plain) = (self.k, self.block.plain);
        let first = self.block.item.position + self.row;
        let late = (step + (KEYS - 1)).gt(first);
        let start = plain.start(first + (WARP_QUERIES - 1));
        let apart = start.map_or(late, |start| late | step.lt(start));
        k.when(apart, || {
            k.section(
                "prompt/wgmma/mask",
                "leave out what comes later, or before the window",
            );
            // From the lane's first key to its first query.
            let (g, t) = (k.lane() >> 2, k.lane() & 3);
            let distance = (first + g - step - t * 2).bits::<i32>();
            for (i, score) in (0..).zip(&mut self.scores.0) {
                let (eight, r, second) = (i / 4, i / 2 % 2, i % 2);
                let counts = plain.counts(distance, 8 * r - (8 * eight + second));
                score.set(counts.select(score.get(), f32::NEG_INFINITY));
            }
        });
    }

    /// The weights as binary16.
    fn pack(&mut self) {
        let words = self.weights.iter_mut().flatten();
        for (word, pair) in words.zip(self.scores.0.chunks(2)) {
            word.set(pair[0].get().pack_f16(pair[1].get()));
        }
    }

    /// Results take the place of the warpgroup's queries.
    fn store(&self) {
        let &Block {
            plain: def,
            a,
            queries: memory,
            head,
            item,
            ..
        } = self.block;
        let (k, row) = (self.k, self.row);
        k.section(
            "prompt/wgmma/release_queries",
            "all warps have done with the queries",
        );
        k.when(self.group.eq(0), || k.barrier_part(1, 128))
            .otherwise(|| k.barrier_part(2, 128));
        let to = Results {
            k,
            def,
            a,
            memory,
            row,
            queries: WARP_QUERIES,
            item,
            head,
        };
        to.store(std::iter::once(self.softmax.results(&self.values)));
    }
}
