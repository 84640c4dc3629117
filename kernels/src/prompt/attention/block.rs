//! The program of a block: it copies steps of keys and values, and each warp attends to them.

use super::definition::{PromptAttention, PromptAttentionArgs, ROWS, WARPS};
use super::rows::{ItemRows, Pages};
use super::scores::{Tile, Weights};
use super::store::Results;
use crate::shared::cache::PAGE;
use crate::shared::shared_rows::{Copier, Matrices, SharedRows};
use ptx_gen::*;

/// The values that the threads of a block compute at the start.
pub(super) struct PromptBlock<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) def: &'a PromptAttention,
    pub(super) a: &'a PromptAttentionArgs<Dev<'k>>,
    pub(super) rows: SharedRows,
    pub(super) memory: Ptr<'k, u8, Shared>,
    pub(super) head: U32<'k>,
    item: ItemRows<'k>,
    pages: Pages<'k>,
    copier: Copier<'k>,
}

/// The positions of a warp's queries.
struct WarpPositions<'k> {
    first: U32<'k>,
    /// The last position, which may be past the item.
    last: U32<'k>,
}

impl<'a, 'k> PromptBlock<'a, 'k> {
    /// Computes the values of the block.
    pub(super) fn new(
        k: Builder<'k>,
        def: &'a PromptAttention,
        a: &'a PromptAttentionArgs<Dev<'k>>,
        item: ItemRows<'k>,
    ) -> Self {
        PromptBlock {
            k,
            def,
            a,
            rows: def.rows(),
            memory: k.tile_memory("memory"),
            head: k.ctaid(),
            item,
            pages: Pages::new(a, item),
            copier: Copier::new(k, def.rows(), 32 * WARPS),
        }
    }

    /// Returns the index of the warp's first query in the block.
    pub(super) fn warp_row(&self) -> U32<'k> {
        self.k.warp() * self.def.warp_queries()
    }

    /// Divides the sums by their weights and stores the results.
    pub(super) fn store(&self, tiles: Vec<Tile<'k>>) {
        let &PromptBlock {
            k,
            def,
            a,
            memory,
            head,
            item,
            ..
        } = self;
        let row = self.warp_row();
        let results = |tile: &Tile<'k>| {
            k.section("prompt/attention/results", "results of 16 queries");
            [tile.results(0), tile.results(1)]
        };
        let to = Results {
            k,
            def,
            a,
            memory,
            row,
            queries: def.warp_queries(),
            item,
            head,
        };
        to.store(tiles.iter().map(results));
    }

    /// Computes the sums of the warp's queries.
    pub(super) fn attend(&self) -> Vec<Tile<'k>> {
        let k = self.k;
        let def = self.def;

        k.section("prompt/attention/copy_queries", "copy the queries");
        self.copy_queries();

        k.section(
            "prompt/attention/first_copies",
            "copy keys and values of the first step",
        );
        let keys = def.keys();
        let start = self
            .def
            .start(self.item.position)
            .map(|start| start & !(keys - 1));
        let start = start.unwrap_or_else(|| k.val(0));
        let end = self.item.end();
        self.copy_step(start, self.pages.of(start));
        let mut page = k.var(self.pages.of(start + keys));
        k.commit_copies();
        let mut tiles: Vec<_> = (0..def.warp_queries() / ROWS)
            .map(|_| Tile::new(k, def.head_dim))
            .collect();
        let positions = self.warp_positions();
        k.for_each(start, end, keys, |step| {
            k.section("prompt/attention/step", "wait for a step and copy the next");

            // After the barrier, the copies of all threads have arrived, and the other half of the
            // buffer is free.
            k.wait_copies(0);
            k.barrier();
            k.when((step + keys).lt(end), || {
                self.copy_step(step + keys, page.get());
                page.set(self.pages.of(step + 2 * keys));
            });
            k.commit_copies();

            // The condition is uniform in the warp. A warp whose queries are all masked has no
            // work.
            k.when(self.counts(&positions, step), || {
                self.step(&mut tiles, &positions, step)
            });
        });
        tiles
    }

    /// Returns the positions of the warp's queries.
    fn warp_positions(&self) -> WarpPositions<'k> {
        let first = self.item.position + self.warp_row();
        WarpPositions {
            first,
            last: first + (self.def.warp_queries() - 1),
        }
    }

    /// Returns whether a query of the warp attends to a position of a step.
    fn counts(&self, positions: &WarpPositions<'k>, step: U32<'k>) -> Pred<'k> {
        let end = self.item.end();
        let causal = step.le(positions.last.min(end - 1)) & positions.first.lt(end);
        let start = self.def.start(positions.first);
        start.map_or(causal, |start| causal & (step + self.def.keys()).gt(start))
    }

    /// Copies the queries. Rows past the last query repeat it.
    fn copy_queries(&self) {
        let a = self.a;
        let dim = self.def.head_dim;
        self.copier
            .copy(self.def.queries, self.memory, |row, further| {
                let token = self.item.row(row + further);
                a.q.row(token * a.heads + self.head, 2 * dim)
                    .row(self.copier.unit, 16)
            });
    }

    /// Copies keys and values of a step, which lie in one page. Positions past the item repeat its
    /// last one.
    fn copy_step(&self, step: U32<'k>, page: U32<'k>) {
        let k = self.k;
        let a = self.a;
        let keys = self.def.keys();
        let dim = self.def.head_dim;
        let caches = [a.k_cache, a.v_cache];
        let to = self.stage(step);
        let end = self.item.end();
        let kv_head = self.head / (a.heads / a.kv_heads);
        let first = page.mad(a.kv_heads, kv_head) * PAGE;
        let first = if keys == PAGE {
            first
        } else {
            first + (step & (PAGE - 1))
        };
        let from = |cache: Ptr<'k, f16, ReadOnly>, row: U32<'k>| {
            cache.row(first + row, 2 * dim).row(self.copier.unit, 16)
        };
        k.when((step + keys).le(end), || {
            k.section(
                "prompt/attention/all_positions",
                "copy all positions of the step",
            );
            for (cache, to) in caches.into_iter().zip(to) {
                self.copier
                    .copy(keys, to, |row, further| from(cache, row).at(further * dim));
            }
        })
        .otherwise(|| {
            k.section(
                "prompt/attention/last_positions",
                "copy positions up to the item's last, which is repeated",
            );
            // Positions after the item may be unwritten and NaN, which a weight of 0 would not
            // remove.
            let last = end - 1 - step;
            for (cache, to) in caches.into_iter().zip(to) {
                self.copier.copy(keys, to, |row, further| {
                    from(cache, (row + further).min(last))
                });
            }
        });
    }

    /// Returns the addresses of keys and values of a step in shared memory.
    fn stage(&self, step: U32<'k>) -> [Ptr<'k, u8, Shared>; 2] {
        let keys = self.def.keys();
        let keys_bytes = keys * self.rows.bytes;
        let odd = (step / keys) & 1;
        let first = self
            .memory
            .at(self.def.queries * self.rows.bytes)
            .row(odd, 2 * keys_bytes);
        [first, first.at(keys_bytes)]
    }

    /// Attends to a step.
    fn step(&self, tiles: &mut [Tile<'k>], positions: &WarpPositions<'k>, step: U32<'k>) {
        let k = self.k;
        let def = self.def;
        let lane = k.lane();
        let [keys, values] = self.stage(step);

        // `tall` addresses rows 0 to 15 of the first unit, then of the second. `wide` addresses
        // both units of rows 0 to 7, then of rows 8 to 15.
        let tall = self.rows.place(lane & 15, lane >> 4);
        let wide = self
            .rows
            .place((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
        let queries = self.memory.row(self.warp_row(), self.rows.bytes);
        let queries = Matrices::new(self.rows, queries, tall);

        k.section(
            "prompt/attention/scores",
            "scores: multiply queries by keys",
        );
        let mut weights = Weights::zero(k, tiles.len(), def.keys());
        weights.multiply(
            &queries,
            &Matrices::new(self.rows, keys, wide),
            def.head_dim,
        );
        self.mask(&mut weights, positions, step);

        k.section(
            "prompt/attention/weights",
            "weights relative to the maximum so far",
        );
        let weights = weights.weigh(tiles);

        k.section("prompt/attention/values", "add the weighted values");
        let values = Matrices::new(self.rows, values, tall);
        for (tile, weights) in tiles.iter_mut().zip(weights) {
            tile.add(&weights, &values);
        }
    }

    /// Sets the scores of masked positions to minus infinity.
    fn mask(&self, weights: &mut Weights<'k>, positions: &WarpPositions<'k>, step: U32<'k>) {
        let k = self.k;
        let def = self.def;
        let late = (step + (def.keys() - 1)).gt(positions.first);
        let start = self.def.start(positions.last);
        let apart = start.map_or(late, |start| late | step.lt(start));
        k.when(apart, || {
            k.section(
                "prompt/attention/mask",
                "mask positions that come later or are before the window",
            );

            // The distance from the lane's first key to its first query.
            let g = k.lane() >> 2;
            let t = k.lane() & 3;
            let distance = (positions.first + g - step - t * 2).bits::<i32>();
            weights.mask(|further, score| {
                def.counts(distance, further)
                    .select(score, f32::NEG_INFINITY)
            });
        });
    }
}
