//! The program of a block: it copies steps of keys and values, and each warp attends to them.

use super::scores::{Tile, Weights};
use super::shared::{Copier, Matrices, Rows};
use super::store::Results;
use super::{PromptAttention, PromptAttentionArgs, ROWS, WARPS};
use ptx_gen::*;

/// Values that the threads of a block compute at the start.
pub(super) struct Block<'a, 'k> {
    pub(super) k: Builder<'k>,
    pub(super) def: &'a PromptAttention,
    pub(super) a: &'a PromptAttentionArgs<Dev<'k>>,
    pub(super) rows: Rows,
    pub(super) memory: Ptr<'k, u8, Shared>,
    pub(super) head: U32<'k>,
    /// The row of the head's first key in the cache.
    cached: U32<'k>,
    /// The first token.
    first: U32<'k>,
    /// The first position after the chunk.
    end: U32<'k>,
    copier: Copier<'k>,
}

/// The positions of a warp.
struct WarpPositions<'k> {
    first: U32<'k>,
    /// The last, past the chunk perhaps.
    last: U32<'k>,
}

impl<'a, 'k> Block<'a, 'k> {
    pub(super) fn new(k: Builder<'k>, def: &'a PromptAttention, a: &'a PromptAttentionArgs<Dev<'k>>) -> Self {
        let (rows, memory, head) = (def.rows(), k.tile_memory("memory"), k.ctaid());
        let parts = (a.tokens + (def.queries - 1)) / def.queries;
        Block {
            k,
            def,
            a,
            rows,
            memory,
            head,
            cached: head / (a.heads / a.kv_heads) * a.ctx,
            first: (parts - 1 - k.ctaid_y()) * def.queries,
            end: a.position + a.tokens,
            copier: Copier::new(k, rows, 32 * WARPS),
        }
    }

    /// The first of the warp's queries in the block.
    pub(super) fn warp_row(&self) -> U32<'k> {
        self.k.warp() * self.def.warp_queries()
    }

    /// The first token of the warp.
    pub(super) fn warp_token(&self) -> U32<'k> {
        self.first + self.warp_row()
    }

    /// Divides and stores.
    pub(super) fn store(&self, tiles: Vec<Tile<'k>>) {
        let &Block { k, def, a, memory, head, .. } = self;
        let (row, token) = (self.warp_row(), self.warp_token());
        let results = |tile: &Tile<'k>| {
            k.note("results of 16 queries");
            [tile.results(0), tile.results(1)]
        };
        let to = Results { k, def, a, memory, row, queries: def.warp_queries(), token, head };
        to.store(tiles.iter().map(results));
    }

    /// The sums of the warp's queries.
    pub(super) fn attend(&self) -> Vec<Tile<'k>> {
        let (k, def, a) = (self.k, self.def, self.a);
        k.note("copy the queries");
        self.copy_queries();
        k.note("copy keys and values of the first step");
        let keys = def.keys();
        let start = self.def.start(a.position + self.first).map(|start| start & !(keys - 1));
        let start = start.unwrap_or_else(|| k.val(0));
        let end = (a.position + self.first + def.queries).min(self.end);
        self.copy_step(start);
        k.commit_copies();
        let mut tiles: Vec<_> = (0..def.warp_queries() / ROWS).map(|_| Tile::new(k, def.head_dim)).collect();
        let positions = self.warp_positions();
        k.for_each(start, end, keys, |step| {
            k.note("a step: wait for it, and copy the next");
            k.wait_copies(0);
            k.barrier();
            k.when((step + keys).lt(end), || self.copy_step(step + keys));
            k.commit_copies();
            k.when(self.counts(&positions, step), || self.step(&mut tiles, &positions, step));
        });
        tiles
    }

    fn warp_positions(&self) -> WarpPositions<'k> {
        let first = self.a.position + self.warp_token();
        WarpPositions { first, last: first + (self.def.warp_queries() - 1) }
    }

    /// Whether some position of a step counts for some query of the warp.
    fn counts(&self, positions: &WarpPositions<'k>, step: U32<'k>) -> Pred<'k> {
        let causal = step.le(positions.last.min(self.end - 1)) & positions.first.lt(self.end);
        let start = self.def.start(positions.first);
        start.map_or(causal, |start| causal & (step + self.def.keys()).gt(start))
    }

    /// Queries past the last repeat it.
    fn copy_queries(&self) {
        let (a, dim) = (self.a, self.def.head_dim);
        self.copier.copy(self.def.queries, self.memory, |row, further| {
            let token = (self.first + row + further).min(a.tokens - 1);
            a.q.row(token * a.heads + self.head, 2 * dim).row(self.copier.unit, 16)
        });
    }

    /// Keys and values of a step; positions past the chunk repeat its last one.
    fn copy_step(&self, step: U32<'k>) {
        let (k, a, keys) = (self.k, self.a, self.def.keys());
        let caches = [a.k_cache, a.v_cache];
        let to = self.stage(step);
        let dim = self.def.head_dim;
        let whole = (step + keys).le(self.end);
        let from = |cache: Ptr<'k, f16, Read>, position: U32<'k>| {
            cache.row(self.cached + position, 2 * dim).row(self.copier.unit, 16)
        };
        k.when(whole, || {
            k.note("all positions of the step");
            for (cache, to) in caches.into_iter().zip(to) {
                self.copier.copy(keys, to, |row, further| from(cache, step + row).at(further * dim));
            }
        })
        .otherwise(|| {
            k.note("positions up to the chunk's last, which is repeated");
            for (cache, to) in caches.into_iter().zip(to) {
                self.copier
                    .copy(keys, to, |row, further| from(cache, (step + row + further).min(self.end - 1)));
            }
        });
    }

    /// Where keys and values of a step are.
    fn stage(&self, step: U32<'k>) -> [Ptr<'k, u8, Shared>; 2] {
        let keys = self.def.keys();
        let keys_bytes = keys * self.rows.bytes;
        let odd = (step / keys) & 1;
        let first = self.memory.at(self.def.queries * self.rows.bytes).row(odd, 2 * keys_bytes);
        [first, first.at(keys_bytes)]
    }

    fn step(&self, tiles: &mut [Tile<'k>], positions: &WarpPositions<'k>, step: U32<'k>) {
        let (k, def) = (self.k, self.def);
        let lane = k.lane();
        let [keys, values] = self.stage(step);
        // Rows 0 to 15 of the first unit, then of the second; or both units of rows 0 to 7, then of rows 8 to 15.
        let tall = self.rows.place(lane & 15, lane >> 4);
        let wide = self.rows.place((lane & 7) + (lane >> 4) * 8, (lane >> 3) & 1);
        let queries = self.memory.row(self.warp_row(), self.rows.bytes);
        let queries = Matrices::new(self.rows, queries, tall);
        k.note("scores: queries times keys");
        let mut weights = Weights::zero(k, tiles.len(), def.keys());
        weights.multiply(&queries, &Matrices::new(self.rows, keys, wide), def.head_dim);
        self.mask(&mut weights, positions, step);
        k.note("weights, relative to the maximum so far");
        let weights = weights.weigh(tiles);
        k.note("add the weighted values");
        let values = Matrices::new(self.rows, values, tall);
        tiles.iter_mut().zip(weights).for_each(|(tile, weights)| tile.add(&weights, &values));
    }

    /// Scores of positions that do not count become minus infinity.
    fn mask(&self, weights: &mut Weights<'k>, positions: &WarpPositions<'k>, step: U32<'k>) {
        let (k, def) = (self.k, self.def);
        let late = (step + (def.keys() - 1)).gt(positions.first);
        let start = self.def.start(positions.last);
        let apart = start.map_or(late, |start| late | step.lt(start));
        k.when(apart, || {
            k.note("leave out what comes later, or before the window");
            // From the lane's first key to its first query.
            let (g, t) = (k.lane() >> 2, k.lane() & 3);
            let distance = (positions.first + g - step - t * 2).bits::<i32>();
            weights.mask(|further, score| def.counts(distance, further).select(score, f32::NEG_INFINITY));
        });
    }
}
