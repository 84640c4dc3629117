//! A warpgroup that multiplies.

use super::block::WgmmaBlock;
use super::definition::{GROUP_QUERIES, KEYS, WARP_QUERIES};
use super::ring::Cursor;
use super::softmax::{Softmax, rescale};
use crate::prompt::attention::store::Results;
use ptx_gen::*;

/// The state of a warpgroup that multiplies.
pub(super) struct Consumer<'b, 'a, 'k> {
    block: &'b WgmmaBlock<'a, 'k>,
    k: Builder<'k>,
    group: U32<'k>,
    /// The index in the block of the warp's first query.
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
    /// Creates the state of a warpgroup.
    pub(super) fn new(block: &'b WgmmaBlock<'a, 'k>, group: U32<'k>) -> Self {
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

    /// Attends to all steps and stores the results.
    pub(super) fn attend(mut self) {
        let k = self.k;

        k.section("prompt/wgmma/first_scores", "scores of the first step");
        let keys = self.next();
        k.wgmma_fence();
        self.multiply_queries(keys);
        k.wgmma_wait(0);
        self.release(keys);
        self.mask(self.block.start);

        // There are no earlier sums to rescale, so the factors are not needed.
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

    /// Computes scores and weights of a step, and concurrently the weighted values of the previous
    /// step.
    fn step(&mut self, step: U32<'k>) {
        let k = self.k;

        k.section(
            "prompt/wgmma/step",
            "scores of a step, weighted values of the previous step",
        );
        let keys = self.next();
        k.wgmma_fence();
        self.multiply_queries(keys);
        let values = self.next();
        self.multiply_values(values);

        // The scores are complete. The second matmul keeps running during the softmax.
        k.wgmma_wait(1);
        self.release(keys);
        self.mask(step);
        let factors = self.softmax.weigh(&mut self.scores);
        k.wgmma_wait(0);
        self.release(values);

        // The accumulators may be changed only after the second matmul is complete.
        rescale(k, &mut self.values, factors);
        self.pack();
    }

    /// Waits for the next tile and returns its index.
    fn next(&mut self) -> U32<'k> {
        let tile = self.at.tile.get();
        self.block.ring.full(tile).wait(&self.at.parity);
        self.at.advance();
        tile
    }

    /// Releases a tile that the warp has read.
    fn release(&self, tile: U32<'k>) {
        self.k
            .when(self.k.lane().eq(0), || self.block.ring.empty(tile).arrive());
    }

    /// Returns the address of the warpgroup's queries.
    fn queries(&self) -> Ptr<'k, u8, Shared> {
        self.block
            .queries
            .row(self.group, self.block.def.group_bytes())
    }

    /// Issues the matmul of the queries by the keys of a tile.
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

    /// Issues the matmul of the weights by the values of a tile, and adds it to the sums.
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

    /// Sets the scores of masked positions to minus infinity.
    fn mask(&mut self, step: U32<'k>) {
        let k = self.k;
        let plain = self.block.plain;
        let first = self.block.item.position + self.row;
        let late = (step + (KEYS - 1)).gt(first);
        let start = plain.start(first + (WARP_QUERIES - 1));
        let apart = start.map_or(late, |start| late | step.lt(start));
        k.when(apart, || {
            k.section(
                "prompt/wgmma/mask",
                "mask positions that come later or are before the window",
            );

            // The distance from the lane's first key to its first query.
            let g = k.lane() >> 2;
            let t = k.lane() & 3;
            let distance = (first + g - step - t * 2).bits::<i32>();
            for (i, score) in (0..).zip(&mut self.scores.0) {
                let eight = i / 4;
                let r = i / 2 % 2;
                let second = i % 2;
                let counts = plain.counts(distance, 8 * r - (8 * eight + second));
                score.set(counts.select(score.get(), f32::NEG_INFINITY));
            }
        });
    }

    /// Rounds the weights to `f16`.
    fn pack(&mut self) {
        let words = self.weights.iter_mut().flatten();
        for (word, pair) in words.zip(self.scores.0.chunks(2)) {
            word.set(pair[0].get().pack_f16(pair[1].get()));
        }
    }

    /// Stores the results through the shared memory of the warpgroup's queries.
    fn store(&self) {
        let &WgmmaBlock {
            plain: def,
            a,
            queries: memory,
            head,
            item,
            ..
        } = self.block;
        let k = self.k;
        let row = self.row;

        k.section(
            "prompt/wgmma/release_queries",
            "wait until all warps are done with the queries",
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
