//! The program of an attention block: it loads tiles, attends to them, and stores a result or a
//! partial result.

use super::definition::{
    MAX_UNSPLIT_TILES, MAX_WARPS, PARTIALS_IN_FLIGHT, PipelinedAttention, PipelinedAttentionArgs,
    QUERIES, TILE,
};
use super::pages::{CachedRows, PageLanes};
use super::sums::{OnlineSoftmax, SoftmaxPartial, halves};
use crate::pipeline::batch::BatchItem;
use crate::pipeline::block_float::BlockFloat;
use crate::pipeline::gemv::plan::Timestamp;
use crate::pipeline::paged::PageTableArgs;
use crate::shared::divided::divided;
use crate::shared::reduce::lanes_sum;
use crate::shared::state::{DONE, LEN, POSITION};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

/// The values that the threads of a block compute at the start.
pub(super) struct AttentionBlock<'a, 'k> {
    pub(super) k: Builder<'k>,
    def: &'a PipelinedAttention,
    a: &'a PipelinedAttentionArgs<Dev<'k>>,
    /// The KV head and the query group as one number, and with a batch also the token.
    unit: U32<'k>,
    /// The token of the batch.
    item: BatchItem<'k>,
    /// The split.
    split: U32<'k>,
    /// The first query head, counted over the batch.
    head: U32<'k>,
    /// The number of query heads of the block.
    queries: U32<'k>,
    /// The lane's first 16-byte chunk of each row of the KV head.
    cached: CachedRows<'a, 'k>,
    /// The first row of a tile that the lane copies.
    row: U32<'k>,
    /// The 16-byte chunk of the row that the lane copies.
    chunk: U32<'k>,
    /// The slots of all tiles.
    tiles: Ptr<'k, f16, Shared>,
    /// The queries as `f16`, followed by their rounding residuals.
    staged: Ptr<'k, f16, Shared>,
    /// The maximum and the sum of each warp and query.
    outcome: Ptr<'k, f32, Shared>,
    /// The distance from a tile to the next tile in the same slot.
    kept: U32<'k>,
    /// The score of a sink in log2 units, if heads have sinks. Lane `i` has that of query `i mod 8`.
    sink: Option<F32<'k>>,
}

/// The tiles of a block: the first, their number, and the number of splits.
pub(super) struct TileRange<'k> {
    first: Var<'k, u32>,
    count: Var<'k, u32>,
    pub(super) used: Var<'k, u32>,
    /// The pages of the tiles, if the cache is paged.
    pages: Option<PageLanes<'k>>,
}

impl<'k> TileRange<'k> {
    /// Assigns another range.
    fn set(&mut self, to: &TileRange<'k>) {
        self.first.set(&to.first);
        self.count.set(&to.count);
        self.used.set(&to.used);
        if let (Some(pages), Some(to)) = (&mut self.pages, &to.pages) {
            pages.set(to);
        }
    }

    /// Returns true if the block has no tiles.
    pub(super) fn is_empty(&self) -> Pred<'k> {
        self.count.get().eq(0)
    }
}

/// The rows of a tile to load.
#[derive(Clone, Copy)]
pub(super) enum RowFilter<'k> {
    /// The rows before this position, which were complete before this token began. Rows after it
    /// are set to zero. They have no weight, but a NaN would still reach the sums.
    Before(U32<'k>),
    /// The rows up to this position. Later rows repeat it.
    UpTo(U32<'k>),
}

/// The row of keys and values of the current token, for the lanes that copy it. They belong to the
/// warp whose first tiles contain the row.
pub(super) struct OwnRow<'k> {
    mine: Pred<'k>,
    from: [Ptr<'k, f16, ReadOnly>; 2],
    to: [Ptr<'k, f16, Shared>; 2],
}

/// Four dimensions of a query of the block, or zeros past the last query.
pub(super) struct QueryFloat4<'k> {
    query: U32<'k>,
    dim: U32<'k>,
    q: [Var<'k, f32>; 4],
}

impl<'a, 'k> AttentionBlock<'a, 'k> {
    /// Computes the block's work and its addresses.
    pub(super) fn new(
        k: Builder<'k>,
        def: &'a PipelinedAttention,
        a: &'a PipelinedAttentionArgs<Dev<'k>>,
        table: Option<&'a PageTableArgs<Dev<'k>>>,
        sinks: Option<Ptr<'k, f32, ReadOnly>>,
    ) -> Self {
        let groups = def.groups();
        let per_group = def.queries.div_ceil(groups);
        let units = a.kv_heads * groups;
        let all = if def.batch == 1 {
            units
        } else {
            units * def.batch
        };
        let split = k.ctaid() / all;
        let unit = k.ctaid() - split * all;
        let (item, of_item) = match def.batch {
            1 => (BatchItem::ONLY, unit),
            _ => (BatchItem::new(unit / units), unit % units),
        };
        let (kv_head, group) = divided(of_item, groups);
        let first = group * per_group;

        let shared = k.dynamic_shared::<f16>("tiles");
        let staged = shared.at(def.tiles() * def.kv_tile_bytes());
        let outcome = staged.at(QUERIES * def.row_bytes()).cast::<f32>();

        // The last warps have one slot less if the tiles do not divide evenly.
        let deep = k.warp().lt(def.tiles() - (def.depth() - 1) * def.warps());
        let kept = |depth| depth * def.warps();

        let (row, chunk) = divided(k.lane(), def.row_chunks());
        let mut block = AttentionBlock {
            k,
            def,
            a,
            unit,
            item,
            split,
            head: item.plus(kv_head * def.queries + first, a.heads),
            queries: (k.val(def.queries) - first).min(per_group),
            cached: CachedRows::new(a, def.row_chunks(), table, item, [kv_head, chunk]),
            row,
            chunk,
            tiles: shared,
            staged,
            outcome,
            kept: deep.select(kept(def.depth()), kept(def.depth() - 1)),
            sink: None,
        };

        // Sinks are weights, so they are loaded before the wait.
        block.sink = sinks.map(|sinks| {
            let query = k.lane() & (QUERIES - 1);
            let mut sink = k.var(f32::NEG_INFINITY);
            sinks
                .at(kv_head * def.queries + first + query)
                .ld_if(query.lt(block.queries), &mut sink);
            sink.get() * LOG2_E
        });
        block
    }

    /// Records a timestamp if the kernel profiles.
    pub(super) fn timestamp(&self, timestamp: Timestamp) {
        if self.def.profile {
            timestamp.record(self.k, self.k.tid().eq(0), self.a.timestamps);
        }
    }

    /// Waits in the first warp for its first tiles, as a separate group of copies, if the kernel
    /// profiles.
    pub(super) fn timestamp_landed(&self) {
        let k = self.k;
        if self.def.profile {
            k.when(k.warp().eq(0), || {
                k.commit_copies();
                k.wait_copies(0);
            });
        }
        self.timestamp(Timestamp::Landed);
    }

    /// Returns true if the cache is paged.
    pub(super) fn is_paged(&self) -> bool {
        matches!(self.cached, CachedRows::Paged(_))
    }

    /// Loads the position. It is clamped to the cache, so that no wrong state makes the kernel read
    /// past it.
    pub(super) fn position(&self) -> U32<'k> {
        let state = self.item.of(self.a.state, LEN as u32);
        let position = state.at(POSITION).fresh().ld();
        let position = match &self.cached {
            CachedRows::Own(_) => position,
            // A token that is done is not appended, so its own row may never have been written.
            CachedRows::Paged(_) => {
                let done = state.at(DONE).fresh().ld().min(1);
                position - done.min(position)
            }
        };
        position.min(self.a.ctx - 1)
    }

    /// Returns this block's tiles for a token at `position` (see [`PipelinedAttention::split`]).
    pub(super) fn range(&self, position: U32<'k>) -> TileRange<'k> {
        let end = (position >> TILE.ilog2()) + 1;
        let before = self
            .first_position(position)
            .map(|first| first >> TILE.ilog2());
        let tiles = before.map_or(end, |before| end - before);
        let warps = self.def.warps();
        let (most, _) = divided(tiles + (warps - 1), warps);

        // A short context gains nothing from splits, because merging them takes longer.
        let used = tiles
            .le(MAX_UNSPLIT_TILES * warps)
            .select(1, most.min(self.a.splits));
        let share = (tiles + used - 1) / used;
        let first = self.split * share;
        let first = before.map_or(first, |before| first + before);
        let k = self.k;
        let first_tile = k.var(first);
        let count = k.var(end.max(first).min(first + share) - first);
        let used = k.var((tiles + share - 1) / share);
        TileRange {
            first: first_tile,
            count,
            used,
            pages: self.cached.pages(k, first),
        }
    }

    /// Returns the first position of a token's window, if there is a window.
    fn first_position(&self, position: U32<'k>) -> Option<U32<'k>> {
        let after = |window| position + 1 - (position + 1).min(window);
        self.def.window.map(after)
    }

    /// Returns the address of the lane's 16 bytes of a position's row. `page` is the offset of the
    /// position's page, which is equal for all positions of a tile.
    fn cached(
        &self,
        cache: Ptr<'k, f16, ReadOnly>,
        page: U32<'k>,
        position: U32<'k>,
    ) -> Ptr<'k, f16, ReadOnly> {
        cache.row(position.mad(self.def.row_chunks(), page), 16)
    }

    /// Returns the slot of a tile. The first tiles have one slot each.
    fn slot(&self, number: U32<'k>) -> Ptr<'k, f16, Shared> {
        self.tiles.row(number, 2 * self.def.kv_tile_bytes())
    }

    /// Loads rows of the first tiles.
    pub(super) fn copy_first(&self, range: &TileRange<'k>, which: RowFilter<'k>) {
        let k = self.k;
        let def = self.def;

        k.section("pipeline/attention/first_copies", "copy the first tiles");
        let count = range.count.get().min(def.tiles());
        k.for_each(k.warp(), count, def.warps(), |number| {
            let tile = number + &range.first;
            for half in [0, 1] {
                self.copy(half, self.slot(number), range, tile, which);
            }
        });
    }

    /// Loads rows of the keys (`half` 0) or the values (`half` 1) of a tile, as many rows at a time
    /// as the lanes have chunks.
    fn copy(
        &self,
        half: u32,
        slot: Ptr<'k, f16, Shared>,
        range: &TileRange<'k>,
        tile: U32<'k>,
        which: RowFilter<'k>,
    ) {
        let k = self.k;
        let def = self.def;
        let rows = 32 / def.row_chunks();
        let slot = slot.row(self.row, def.row_bytes()).at(self.chunk * 8);
        let page = self.cached.before(k, range.pages.as_ref(), tile * TILE);
        for first in (0..TILE).step_by(rows as usize) {
            let p = tile * TILE + self.row + first;
            let to = slot.at((half * def.kv_tile_bytes() + first * def.row_bytes()) / 2);
            let from = |p| self.cached([self.a.k_cache, self.a.v_cache][half as usize], page, p);
            self.when_inside(first, || match which {
                // A masked row repeats a visible one. Unwritten rows of the cache may be NaN, which
                // a weight of 0 would not remove.
                RowFilter::UpTo(position) => from(p.min(position)).copy16(to),
                RowFilter::Before(position) => {
                    k.when(p.lt(position), || from(p).copy16(to));
                    k.when(p.gt(position), || to.cast::<u32>().st4([k.val(0); 4]));
                }
            });
        }
    }

    /// Runs `body` in the lanes whose row plus `first` is a row of the tile. There is no branch if
    /// the rows fill the warp evenly.
    fn when_inside(&self, first: u32, body: impl FnOnce()) {
        let rows = 32 / self.def.row_chunks();
        let limit = rows.min(TILE - first);
        match self.def.row_chunks() * limit {
            32 => body(),
            _ => _ = self.k.when(self.row.lt(limit), body),
        }
    }

    /// Returns the addresses of the token's own row.
    pub(super) fn own_row(&self, range: &TileRange<'k>, position: U32<'k>) -> OwnRow<'k> {
        let k = self.k;
        let def = self.def;
        let tile = position >> TILE.ilog2();
        let row = position & (TILE - 1);
        let number = tile - &range.first;
        let (_, warp) = divided(number, def.warps());
        let page = self.cached.before(k, range.pages.as_ref(), position);
        let to = self.slot(number).row(row, def.row_bytes()).at(k.lane() * 8);

        // The subtraction above wraps for a tile before the first, so such a tile is not resident
        // either.
        let resident = number.lt(def.tiles()) & number.lt(&range.count);
        OwnRow {
            mine: resident & warp.eq(k.warp()) & k.lane().lt(def.row_chunks()),
            from: [self.a.k_cache, self.a.v_cache].map(|cache| self.cached(cache, page, position)),
            to: [to, to.at(def.kv_tile_bytes() / 2)],
        }
    }

    /// Loads the token's own row, and commits all loads so far as the groups of the first tiles.
    pub(super) fn copy_own(&self, own: &OwnRow<'k>) {
        self.k.when(own.mine, || {
            for (from, to) in own.from.iter().zip(own.to) {
                from.copy16(to);
            }
        });
        self.commit_first();
    }

    /// Commits the groups of copies of the first tiles. All loads so far belong to the first group.
    pub(super) fn commit_first(&self) {
        // The remaining groups are empty, so that the loop below always waits for the same number
        // of later groups.
        for _ in 0..2 * self.def.depth() {
            self.k.commit_copies();
        }
    }

    /// Reloads the first tiles after the position turned out to differ from the prefetched one.
    pub(super) fn start_again(&self, range: &mut TileRange<'k>, position: U32<'k>) {
        let k = self.k;
        k.wait_copies(0);
        k.warp_barrier();
        range.set(&self.range(position));
        self.copy_first(range, RowFilter::UpTo(position));
        k.commit_copies();
        k.wait_copies(0);
    }

    /// Loads the block's queries, one `float4` per thread at a time.
    pub(super) fn load(&self) -> Vec<QueryFloat4<'k>> {
        let k = self.k;
        let def = self.def;
        let float4s = def.head_dim / 4;
        let threads = KernelDef::block(def);
        let float4 = |first| {
            let i = k.tid() + first;
            let (query, float4) = divided(i, float4s);
            let dim = float4 * 4;
            let mut q = from_fn(|_| k.var(0.0));
            let from = self.a.q.at((self.head + query) * def.head_dim + dim);
            from.fresh().ld4_if(query.lt(self.queries), &mut q);
            QueryFloat4 { query, dim, q }
        };
        (0..QUERIES * float4s)
            .step_by(threads as usize)
            .map(float4)
            .collect()
    }

    /// Stores the queries in shared memory, as rounded values and residuals.
    pub(super) fn stage(&self, float4s: Vec<QueryFloat4<'k>>) {
        let k = self.k;
        let def = self.def;

        k.section(
            "pipeline/attention/split_queries",
            "store the queries in shared memory as two f16 values each",
        );
        for QueryFloat4 { query, dim, q } in float4s {
            k.when(query.lt(QUERIES), || {
                let [high, low] = halves(q.map(|q| q.get()));
                let to = self
                    .staged
                    .row(query, def.row_bytes())
                    .at(dim)
                    .cast::<u32>();
                to.st2(high);
                to.row(QUERIES, def.row_bytes()).st2(low);
            });
        }

        k.barrier();
    }

    /// Processes the warp's tiles of the range. A slot is refilled as soon as it is free.
    pub(super) fn attend(
        &self,
        sum: &mut OnlineSoftmax<'k>,
        range: &TileRange<'k>,
        position: U32<'k>,
    ) {
        let k = self.k;
        let def = self.def;
        let mut slot = k.var(k.warp());
        k.for_each(k.warp(), &range.count, def.warps(), |number| {
            let tile = self.slot(slot.get());
            let next = number + self.kept;
            let refill = |half| {
                // All lanes must have read the slot before it is overwritten.
                k.warp_barrier();
                k.when(next.lt(&range.count), || {
                    let next = next + &range.first;
                    self.copy(half, tile, range, next, RowFilter::UpTo(position))
                });
                k.commit_copies();
            };
            self.wait_landed();

            k.section(
                "pipeline/attention/scores",
                "scores: multiply the queries by the keys of a tile",
            );
            let scores = self.scores(tile, number + &range.first, position);

            k.section("pipeline/attention/copy_keys", "copy the next keys");
            refill(0);

            k.section(
                "pipeline/attention/weights",
                "softmax weights relative to the maximum so far",
            );
            let weights = sum.weigh(k, scores);
            self.wait_landed();

            k.section(
                "pipeline/attention/values",
                "add the weighted values of a tile",
            );
            sum.add(self.matrices(tile).at(def.kv_tile_bytes() / 2), weights);

            k.section("pipeline/attention/copy_values", "copy the next values");
            refill(1);
            let following = slot.get() + def.warps();
            slot.set(following.lt(def.tiles()).select(following, k.warp()));
        });
    }

    /// Waits for the next keys or values. A slot has two groups of copies in flight, keys and
    /// values. Later groups may still be in flight.
    fn wait_landed(&self) {
        let k = self.k;
        let def = self.def;
        let later = |depth: u32| k.wait_copies(2 * depth - 1);
        if def.tiles().is_multiple_of(def.warps()) {
            later(def.depth());
        } else {
            k.when(self.kept.eq(def.depth() * def.warps()), || {
                later(def.depth())
            })
            .otherwise(|| later(def.depth() - 1));
        }

        k.warp_barrier();
    }

    /// Returns the address that the lane passes to `ldmatrix` for the keys of a tile. The four
    /// matrices are positions 0 to 7 with dimensions 0 to 7 and 8 to 15, then positions 8 to 15
    /// with the same dimensions.
    fn matrices(&self, slot: Ptr<'k, f16, Shared>) -> Ptr<'k, f16, Shared> {
        let lane = self.k.lane();
        slot.row((lane & 7) + (lane >> 4) * 8, self.def.row_bytes())
            .at((lane >> 3 & 1) * 8)
    }

    /// Computes the scores of query `lane / 4`, in log2 units, at the positions `2t`, `2t + 1`, `2t
    /// + 8` and `2t + 9` of the tile, where `t = lane % 4`.
    ///
    /// Even and odd iterations have separate sums, which halves the dependency chain.
    fn scores(&self, slot: Ptr<'k, f16, Shared>, tile: U32<'k>, position: U32<'k>) -> [F32<'k>; 4] {
        let k = self.k;
        let def = self.def;
        let lane = k.lane();
        let queries = self
            .staged
            .row(lane & 15, def.row_bytes())
            .at((lane >> 4) * 8);
        let keys = self.matrices(slot);
        let mut sums: [[Sums<f32>; 2]; 2] = from_fn(|_| from_fn(|_| Sums::zero(k)));
        for step in 0..def.head_dim / 16 {
            let a = LeftFragment(queries.at(16 * step).ldmatrix4());
            let [b0, b1, b2, b3] = keys.at(16 * step).ldmatrix4();
            let [left, right] = &mut sums[step as usize % 2];
            left.add_f16(a, RightFragment([b0, b1]));
            right.add_f16(a, RightFragment([b2, b3]));
        }

        let factor = self.a.scale * LOG2_E;
        let first = tile * TILE + (lane & 3) * 2;
        let least = self.first_position(position);
        from_fn(|i| {
            let of = |parity: usize, row: usize| sums[parity][i / 2].0[2 * row + i % 2].get();
            // Rows 0 and 1 of the sums are the rounded query and its residual.
            let score = ((of(0, 0) + of(1, 0)) + (of(0, 1) + of(1, 1))) * factor;
            let p = first + [0, 1, 8, 9][i];
            let counts = p.le(position);
            let counts = least.map_or(counts, |least| counts & p.ge(least));
            counts.select(score, f32::NEG_INFINITY)
        })
    }

    /// Stores the warp's sums in its first slot. A warp without tiles only stores that it has none.
    pub(super) fn store_sums(&self, sum: &OnlineSoftmax<'k>, range: &TileRange<'k>) {
        let k = self.k;
        let def = self.def;
        let g = k.lane() >> 2;
        let t = k.lane() & 3;
        let weights = lanes_sum(3, sum.weights.get());
        let outcome = self.outcome.at((k.warp() * QUERIES + g) * 2);
        k.when(t.eq(0), || outcome.st2([sum.max.get(), weights]));

        // Four more elements per row put the rows of a warp's stores into different banks.
        let row = def.head_dim + 4;
        let to = self.slot(k.warp()).cast::<f32>().row(t, 8 * row).at(g);
        k.when(k.warp().lt(&range.count), || {
            for (i, values) in (0..).zip(&sum.values) {
                for (offset, value) in [0, row, 8, row + 8].into_iter().zip(&values.0) {
                    to.at(16 * i + offset).st(value);
                }
            }
        });
    }

    /// Calls `body` for each query and each `float4` of its dimensions, one per thread, in whole
    /// warps. `body` gets a predicate `inside`. Lanes outside repeat the last `float4`.
    fn each_float4(&self, body: impl FnOnce(U32<'k>, U32<'k>, Pred<'k>)) {
        let k = self.k;
        let float4s = self.def.head_dim / 4;
        let all = self.queries * float4s;
        k.for_each(k.warp() * 32, all, KernelDef::block(self.def), |first| {
            let i = first + k.lane();
            let (query, float4) = divided(i.min(all - 1), float4s);
            body(query, float4 * 4, i.lt(all));
        });
    }

    /// Returns the total over the warps that had tiles, for a query and a `float4` of its
    /// dimensions.
    fn gather(&self, query: U32<'k>, dim: U32<'k>, range: &TileRange<'k>) -> SoftmaxPartial<'k> {
        let def = self.def;
        let outcome = self.outcome.at(query * 2);
        let values = self
            .tiles
            .cast::<f32>()
            .at(query * (def.head_dim + 4) + dim);
        let of_warp = |warp: u32| {
            let [max, weights] = outcome.at(warp * 2 * QUERIES).ld2();
            let values = values
                .row((range.count.get() - 1).min(warp), 2 * def.kv_tile_bytes())
                .ld4();
            SoftmaxPartial {
                max,
                weights,
                values,
            }
        };
        SoftmaxPartial::of(&(0..def.warps()).map(of_warp).collect::<Vec<_>>())
    }

    /// Stores the result of a block that processed all positions.
    pub(super) fn store_result(&self, range: &TileRange<'k>) {
        self.k.section(
            "pipeline/attention/single_split",
            "a single split: store the result as block floating point",
        );
        self.each_float4(|query, dim, inside| {
            self.store(query, dim, inside, self.gather(query, dim, range))
        });
    }

    /// Divides a total by the sum of its weights, with that of the sink, and stores it. The whole
    /// warp must call it.
    fn store(&self, query: U32<'k>, dim: U32<'k>, inside: Pred<'k>, total: SoftmaxPartial<'k>) {
        let factor = match self.sink {
            None => total.weights.rcp(),
            Some(sink) => {
                // A sink far above all scores leaves them without weight, and one far below changes
                // nothing.
                let sink = sink.shfl_idx(query);
                let max = total.max.max(sink);
                let shrink = (total.max - max).ex2();
                shrink * total.weights.fma(shrink, (sink - max).ex2()).rcp()
            }
        };
        let at = (self.head + query) * self.def.head_dim + dim;
        let to = BlockFloat {
            k: self.k,
            values: self.a.y,
            scales: self.a.y_scale,
        };
        to.store4(at, inside, total.values.map(|v| v * factor));
    }

    /// Returns the address of a split's weighted values, and of its maximum and sum of the weights.
    fn partial(
        &self,
        query: U32<'k>,
        dim: U32<'k>,
        split: U32<'k>,
    ) -> [Ptr<'k, f32, ReadWrite>; 2] {
        let a = self.a;
        let at = ((self.head + query) * a.splits + split) * self.def.head_dim + dim;
        let all = self.def.batch * self.def.head_dim;
        [
            a.partials.at(at),
            a.partials.at(a.heads * a.splits * all + (at >> 1)),
        ]
    }

    /// Stores the partial result of a split. The last warp to do so merges all splits.
    pub(super) fn store_partial(&self, range: &TileRange<'k>) {
        let k = self.k;
        let def = self.def;

        k.section(
            "pipeline/attention/partial_sums",
            "several splits: store the sums of this one",
        );
        self.each_float4(|query, dim, inside| {
            let total = self.gather(query, dim, range);
            let [values, outcome] = self.partial(query, dim, self.split);
            k.when(inside, || {
                values.st4(total.values);
                outcome.st2([total.max, total.weights]);
            });
        });
        k.when(
            (k.warp() * 32).lt(self.queries * (def.head_dim / 4)),
            || {
                k.section(
                    "pipeline/attention/ticket",
                    "draw a ticket: the last warp merges the splits",
                );

                // The ticket's release covers the stores of the whole warp only after a warp
                // barrier.
                k.warp_barrier();
                let last = range.used.get() - 1;
                let mut drawn = k.var(0);
                let ticket = self.a.ticket.at(self.unit * MAX_WARPS + k.warp());
                k.when(k.lane().eq(0), || drawn.set(ticket.ticket(last)));
                let drawn = drawn.get().broadcast();

                // The barrier extends the acquire of the lane that drew the ticket to the warp.
                k.warp_barrier();
                k.when(drawn.eq(last), || self.merge(range));
            },
        );
    }

    /// Merges all splits. Several loads are in flight at a time.
    fn merge(&self, range: &TileRange<'k>) {
        let k = self.k;

        k.section("pipeline/attention/merge", "merge all splits");
        self.each_float4(|query, dim, inside| {
            let [mut max, mut weights] = [f32::MIN, 0.0].map(|v| k.var(v));
            let mut values: [_; 4] = from_fn(|_| k.var(0.0));
            let so_far = |max: &Var<'k, f32>,
                          weights: &Var<'k, f32>,
                          values: &[Var<'k, f32>; 4]| SoftmaxPartial {
                max: max.get(),
                weights: weights.get(),
                values: from_fn(|i| values[i].get()),
            };
            k.for_each(0, &range.used, PARTIALS_IN_FLIGHT, |first| {
                let of_split = |i: u32| {
                    k.section("pipeline/attention/load_split", "load a split");
                    let there = (first + i).lt(&range.used);
                    let [from, outcome] = self.partial(query, dim, first + i);

                    // A split that does not exist has no weight, so the loop needs no special last
                    // round.
                    let mut sums = [f32::MIN, 0.0].map(|v| k.var(v));
                    let mut values: [_; 4] = from_fn(|_| k.var(0.0));
                    outcome.fresh().ld2_if(there, &mut sums);
                    from.fresh().ld4_if(there, &mut values);
                    so_far(&sums[0], &sums[1], &values)
                };
                let mut partials = vec![so_far(&max, &weights, &values)];
                partials.extend((0..PARTIALS_IN_FLIGHT).map(of_split));

                k.section(
                    "pipeline/attention/merge_split",
                    "rescale to the common maximum and add",
                );
                let total = SoftmaxPartial::of(&partials);
                max.set(total.max);
                weights.set(total.weights);
                for (value, v) in values.iter_mut().zip(total.values) {
                    value.set(v);
                }
            });

            k.section(
                "pipeline/attention/merged",
                "store the result as block floating point",
            );
            self.store(query, dim, inside, so_far(&max, &weights, &values));
        });
    }
}
