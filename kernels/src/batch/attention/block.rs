//! The program of a block: its warps copy tiles and attend to them, and their sums become a result
//! or a partial result.

use super::definition::{
    BatchAttention, BatchAttentionArgs, DEPTH, IN_FLIGHT, LEAST_TILES, QUERIES, SET, TILE, UNITS,
};
use super::sums::{OnlineSoftmax, RunningSoftmax, SplitPartial, add_values};
use super::tile::{Copier, Matrices};
use crate::matmul::activations;
use crate::shared::cache::PAGE;
use crate::shared::divided::divided;
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use ptx_gen::*;
use std::array::from_fn;

/// The values that the threads of a block compute at the start.
pub(super) struct BatchBlock<'a, 'k> {
    k: Builder<'k>,
    def: &'a BatchAttention,
    a: &'a BatchAttentionArgs<Dev<'k>>,
    row: U32<'k>,
    /// The KV head and the group of its query heads as one number.
    unit: U32<'k>,
    kv_head: U32<'k>,
    /// The first query head of the block.
    head: U32<'k>,
    /// The number of query heads of the block.
    queries: U32<'k>,
    pub(super) split: U32<'k>,
    position: U32<'k>,
    sequence: U32<'k>,
    done: U32<'k>,
    memory: Ptr<'k, u8, Shared>,
}

/// Tiles of a row, counted from the sequence's first.
pub(super) struct TileRange<'k> {
    /// The first tile of the block.
    first: U32<'k>,
    /// The tile after the last one of the block.
    end: U32<'k>,
    /// The number of splits that have tiles.
    pub(super) used: U32<'k>,
}

/// The page numbers of a sequence, starting at page `first`. Each lane holds one page number.
struct PageLanes<'k> {
    first: Var<'k, u32>,
    page: Var<'k, u32>,
}

/// The means by which a warp copies tiles: the shares of its lanes, and the page numbers.
pub(super) struct WarpCopies<'k> {
    copier: Copier<'k>,
    pages: PageLanes<'k>,
}

impl<'k> WarpCopies<'k> {
    /// Creates them for a block.
    pub(super) fn new(block: &BatchBlock<'_, 'k>, range: &TileRange<'k>) -> Self {
        WarpCopies {
            copier: Copier::new(block.k, block.def.tile_rows()),
            pages: PageLanes::new(block, range),
        }
    }
}

impl<'a, 'k> BatchBlock<'a, 'k> {
    /// Loads the state of the row and computes the block's work.
    pub(super) fn new(
        k: Builder<'k>,
        def: &'a BatchAttention,
        a: &'a BatchAttentionArgs<Dev<'k>>,
    ) -> Self {
        let units = a.kv_heads * def.groups();
        let row = k.ctaid() / units;
        let unit = k.ctaid() - row * units;
        let (kv_head, group) = divided(unit, def.groups());
        let first = group * def.group();
        let state = a.state.row(row, 4 * LEN as u32);
        let [position, sequence, done] = [POSITION, SEQUENCE, DONE].map(|word| state.at(word).ld());
        BatchBlock {
            k,
            def,
            a,
            row,
            unit,
            kv_head,
            head: kv_head * def.queries + first,
            queries: (k.val(def.queries) - first).min(def.group()),
            split: k.ctaid_y(),
            // A position or sequence out of range is clamped, so that no access is out of bounds.
            position: position.min(a.max_pages * PAGE - 1),
            sequence: sequence.min(a.sequences - 1),
            done,
            memory: k.dynamic_shared("memory"),
        }
    }

    /// Returns whether the row is done.
    pub(super) fn done(&self) -> Pred<'k> {
        self.done.ne(0)
    }

    /// Returns the block's tiles (see [`BatchAttention::share`]).
    pub(super) fn range(&self) -> TileRange<'k> {
        let def = self.def;
        let a = self.a;
        let warps = def.warps();
        let base = def
            .start(self.position)
            .map_or_else(|| self.k.val(0), |start| start / TILE);
        let end = self.position / TILE + 1;
        let tiles = end - base;

        // Many units of work fill the device without splits, so a split then has more tiles and
        // there are fewer partial results to merge.
        let [fewest, most] = LEAST_TILES;
        let least = (a.units / UNITS).max(fewest).min(most) * warps;
        let even = (tiles + (a.splits - 1)) / a.splits;
        let share = even.max(least);

        // All warps of a block get equally many tiles.
        let (rounds, _) = divided(share + (warps - 1), warps);
        let share = rounds * warps;
        let first = base + self.split * share;
        TileRange {
            first,
            end: (first + share).min(end),
            used: (tiles + (share - 1)) / share,
        }
    }

    /// Stores zeros as the result of a row that is done.
    pub(super) fn store_zeros(&self) {
        let k = self.k;

        k.section(
            "batch/attention/finished_row",
            "zeros for a row that is done",
        );
        k.when(self.split.eq(0), || {
            self.each_four(|query, dim| self.store(query, dim, from_fn(|_| k.val(0.0))));
            self.store_scale();
        });
    }

    /// Attends to the range. Stores the result if the range is the whole row, else a partial
    /// result.
    pub(super) fn process(&self, copies: &mut WarpCopies<'k>, range: &TileRange<'k>) {
        let k = self.k;
        let def = self.def;
        let mut sets: Vec<_> = (0..def.sets())
            .map(|_| OnlineSoftmax::new(k, def))
            .collect();
        self.attend(&mut sets, copies, range);

        k.section(
            "batch/attention/share_sums",
            "store the warp's sums in shared memory, in place of its tiles",
        );

        // The sums overwrite the ring, so no copy may be in flight.
        k.wait_copies(0);
        k.warp_barrier();
        for (set, sums) in (0..).zip(&sets) {
            let outcome = self.outcome(k.warp(), set * SET);
            let values = self.values(k.warp(), set * SET);
            sums.store(outcome, values, def.head_dim + 4);
        }

        k.barrier();
        k.when(range.used.eq(1), || {
            k.section(
                "batch/attention/single_split",
                "a single split: store the result",
            );
            self.each_four(|query, dim| {
                let total = self.of_warps(query, dim);
                self.store(query, dim, total.result());
            });
        })
        .otherwise(|| self.store_partial(range));
        k.when(self.split.eq(0), || self.store_scale());
    }

    /// Stores the factor of the row's values.
    fn store_scale(&self) {
        let first = self.unit.eq(0) & self.k.tid().eq(0);
        self.k.when(first, || self.a.y_scale.at(self.row).st(1.0));
    }

    /// Returns a slot of the warp's ring.
    fn slot(&self, slot: impl Src<'k, u32>) -> Ptr<'k, u8, Shared> {
        let bytes = self.def.tile_bytes();
        self.memory
            .row(self.k.warp(), DEPTH * bytes)
            .row(slot, bytes)
    }

    /// Returns the address of the values of a warp's sums, starting at a query.
    fn values(&self, warp: impl Src<'k, u32>, query: u32) -> Ptr<'k, f32, Shared> {
        let ring = self.memory.row(warp, DEPTH * self.def.tile_bytes());
        ring.cast().at(query * (self.def.head_dim + 4))
    }

    /// Returns the address of the maximum and the sum of the weights of a warp, starting at a
    /// query.
    fn outcome(&self, warp: impl Src<'k, u32>, query: u32) -> Ptr<'k, f32, Shared> {
        let after = self
            .memory
            .at(self.def.warps() * DEPTH * self.def.tile_bytes());
        after.row(warp, 8 * QUERIES).cast().at(2 * query)
    }

    /// Processes the warp's tiles of the range.
    fn attend(
        &self,
        sets: &mut [OnlineSoftmax<'k>],
        copies: &mut WarpCopies<'k>,
        range: &TileRange<'k>,
    ) {
        let k = self.k;
        let def = self.def;
        let rows = def.tile_rows();
        let warps = def.warps();
        let first = range.first + k.warp();

        k.section("batch/attention/first_copies", "copy the first tiles");
        self.first_tiles(range, |ahead, tile, counts| {
            let counts = if def.overlap.waits() {
                counts & tile.eq(self.own_tile())
            } else {
                counts
            };
            k.when(counts, || self.copy(copies, self.slot(ahead), tile));
            // Copies that were issued before the wait belong to the first group.
            k.commit_copies();
        });

        k.section(
            "batch/attention/queries",
            "load the queries as left matrices",
        );
        let queries = self.load_queries();
        let place = Matrices::place(k, rows);
        let mut slot = k.var(0);
        k.for_each(first, range.end, warps, |tile| {
            k.section(
                "batch/attention/tile",
                "wait for a tile and copy another one ahead",
            );
            k.wait_copies(DEPTH - 2);

            // All lanes are done with the previous tile now, so its slot can be filled.
            k.warp_barrier();
            let next = tile + (DEPTH - 1) * warps;
            let free = slot.get().eq(0).select(DEPTH - 1, slot.get() - 1);
            k.when(next.lt(range.end), || {
                self.copy(copies, self.slot(free), next)
            });
            k.commit_copies();
            let keys = self.slot(slot.get());
            let values = Matrices::new(rows, keys.at(TILE * rows.bytes), place);

            k.section("batch/attention/scores", "scores: multiply queries by keys");
            let scores = self.scores(&queries, &Matrices::new(rows, keys, place), tile);

            k.section(
                "batch/attention/weights",
                "weights relative to the maximum so far",
            );
            let weights: Vec<_> = sets
                .iter_mut()
                .zip(scores)
                .map(|(set, scores)| set.weigh(scores))
                .collect();

            k.section("batch/attention/values", "add the weighted values");
            add_values(sets, &values, &weights);
            let following = slot.get() + 1;
            slot.set(following.lt(DEPTH).select(following, 0));
        });
    }

    /// Requests the first tiles of a warp before the wait, except for the tile with the row's own
    /// position. Earlier kernels have written the others long before.
    pub(super) fn copy_before(&self, copies: &mut WarpCopies<'k>, range: &TileRange<'k>) {
        self.first_tiles(range, |ahead, tile, counts| {
            self.k.when(counts & tile.ne(self.own_tile()), || {
                self.copy(copies, self.slot(ahead), tile)
            });
        });
    }

    /// Returns the tile that contains the row's own position, whose key and value the previous
    /// kernel may write.
    fn own_tile(&self) -> U32<'k> {
        self.position / TILE
    }

    /// Calls `body` with the slot and the number of each of the warp's first tiles, and with a
    /// predicate that is true if the tile exists.
    fn first_tiles(&self, range: &TileRange<'k>, mut body: impl FnMut(u32, U32<'k>, Pred<'k>)) {
        for ahead in 0..DEPTH - 1 {
            let tile = range.first + self.k.warp() + ahead * self.def.warps();
            body(ahead, tile, tile.lt(range.end));
        }
    }

    /// Copies keys and values of a tile. Masked rows repeat a row that is not masked, because their
    /// values must be finite.
    fn copy(&self, copies: &mut WarpCopies<'k>, to: Ptr<'k, u8, Shared>, tile: U32<'k>) {
        let k = self.k;
        let def = self.def;
        let a = self.a;
        let page = copies.pages.of(self, tile / (PAGE / TILE));
        let copier = &copies.copier;
        let head = (page * a.kv_heads + self.kv_head) * PAGE;
        let first = tile * TILE;
        let start = def.start(self.position);
        let whole = (first + (TILE - 1)).le(self.position);
        let whole = start.map_or(whole, |start| whole & first.ge(start));
        let halves = || {
            let values = to.at(TILE * def.tile_rows().bytes);
            [(a.k_cache, to), (a.v_cache, values)]
        };
        let from = |cache: Ptr<'k, f16, ReadOnly>, position: U32<'k>| {
            let row = head + (position & (PAGE - 1));
            cache.row(row, 2 * def.head_dim).row(copier.unit, 16)
        };
        k.when(whole, || {
            for (cache, to) in halves() {
                let own = from(cache, first + copier.row);
                copier.copy(to, |further| own.at(further * def.head_dim));
            }
        })
        .otherwise(|| {
            k.section(
                "batch/attention/partial_tile",
                "some positions of the tile are masked",
            );
            for (cache, to) in halves() {
                copier.copy(to, |further| {
                    // A masked position copies a visible row in its place. Unwritten rows of the
                    // cache may be NaN, which a weight of 0 would not remove.
                    let position = (first + copier.row + further).min(self.position);
                    from(cache, start.map_or(position, |start| position.max(start)))
                });
            }
        });
    }

    /// Loads the left matrices of the queries, for each 16 dimensions. Rows past the last query
    /// repeat it.
    fn load_queries(&self) -> Vec<LeftFragment<'k>> {
        let k = self.k;
        let def = self.def;
        let a = self.a;
        let g = k.lane() >> 2;
        let t = k.lane() & 3;
        let row = |set: u32| {
            // Rows past the last query repeat it, and their results are not stored.
            let first = self.row.mad(a.heads, self.head);
            let in_block = (g + set * SET).min(self.queries - 1);
            let words = a.q.row(first + in_block, 2 * def.head_dim).cast::<u32>();
            words.at(t)
        };
        let rows: Vec<_> = (0..def.sets()).map(row).collect();
        let word = |set: usize, at: u32| match rows.get(set) {
            Some(row) if def.overlap.waits() => row.at(at).fresh().ld(),
            Some(row) => row.at(at).ld(),
            None => k.val(0),
        };

        // Registers 0 and 1 are rows `g` and `g + 8`, which are in different sets. Registers 2 and
        // 3 are the same rows, eight dimensions later.
        let left = |pair: u32| {
            let register = |r: usize| word(r % 2, 8 * pair + 4 * (r as u32 / 2));
            LeftFragment(from_fn(register))
        };
        (0..def.head_dim / 16).map(left).collect()
    }

    /// Computes the scores of query `lane / 4` for each set.
    ///
    /// They are for the positions `2t`, `2t + 1`, `2t + 8` and `2t + 9` of the tile, where
    /// `t = lane % 4`. Even and odd pairs of units have separate sums, which halves the dependency
    /// chain.
    fn scores(
        &self,
        queries: &[LeftFragment<'k>],
        keys: &Matrices<'k>,
        tile: U32<'k>,
    ) -> Vec<[F32<'k>; 4]> {
        let k = self.k;
        let def = self.def;

        // Even and odd pairs have separate sums, so that a matrix instruction does not wait for the
        // previous one.
        let mut sums: [[Sums<f32>; 2]; 2] = from_fn(|_| from_fn(|_| Sums::zero(k)));
        for (pair, &a) in queries.iter().enumerate() {
            let [b0, b1, b2, b3] = keys.at(pair as u32).ldmatrix4();
            let [left, right] = &mut sums[pair % 2];
            left.add_f16(a, RightFragment([b0, b1]));
            right.add_f16(a, RightFragment([b2, b3]));
        }

        let first = tile * TILE + (k.lane() & 3) * 2;
        let start = def.start(self.position);
        let counts: [Pred; 4] = from_fn(|i| {
            let position = first + [0, 1, 8, 9][i];
            let counts = position.le(self.position);
            start.map_or(counts, |start| counts & position.ge(start))
        });
        let score = |set: usize, i: usize| {
            let of_parity = |parity: usize| sums[parity][i / 2].0[2 * set + i % 2].get();
            let [even, odd] = [0, 1].map(of_parity);
            counts[i].select(even + odd, f32::NEG_INFINITY)
        };
        (0..def.sets() as usize)
            .map(|set| from_fn(|i| score(set, i)))
            .collect()
    }

    /// Calls `body` for each query of the block and each four of its dimensions, one per thread.
    fn each_four(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let k = self.k;
        let fours = self.def.head_dim / 4;
        k.for_each(
            k.tid(),
            self.queries * fours,
            KernelDef::block(self.def),
            |i| {
                let (query, four) = divided(i, fours);
                body(query, four * 4);
            },
        );
    }

    /// Returns the sums over all warps, for a query and four dimensions.
    fn of_warps(&self, query: U32<'k>, dim: U32<'k>) -> SplitPartial<'k> {
        let of_warp = |warp: u32| {
            let [max, weights] = self.outcome(warp, 0).at(query * 2).ld2();
            let values = self.values(warp, 0);
            let values = values.at(query * (self.def.head_dim + 4) + dim).ld4();
            SplitPartial {
                max,
                weights,
                values,
            }
        };
        let partials: Vec<_> = (0..self.def.warps()).map(of_warp).collect();
        SplitPartial::sum(&partials)
    }

    /// Stores four dimensions of the result.
    fn store(&self, query: U32<'k>, dim: U32<'k>, values: [F32<'k>; 4]) {
        let a = self.a;
        let column = (self.head + query) * self.def.head_dim + dim;
        let slot = self.def.order.slot_of_four(column);
        for (i, slot) in [slot, slot + 8].into_iter().enumerate() {
            let to = activations::place(a.y, a.capacity, self.row, slot).cast::<u32>();
            let pair = values[2 * i].pack_f16(values[2 * i + 1]);
            to.st(pair);
        }
    }

    /// Returns the address of a split's weighted values, and of its maximum and sum of the weights.
    fn partial(
        &self,
        query: U32<'k>,
        dim: U32<'k>,
        split: U32<'k>,
    ) -> [Ptr<'k, f32, ReadWrite>; 2] {
        let def = self.def;
        let a = self.a;
        let row = self.row.mad(a.heads, self.head) + query;
        let at = row.mad(a.splits, split);
        // The pairs of maximum and sum follow the values of all splits.
        let all = a.rows * a.heads * a.splits;
        let outcomes = a.partials.row(all, 4 * def.head_dim);
        let values = a.partials.row(at, 4 * def.head_dim).at(dim);
        [values, outcomes.at(at * 2)]
    }

    /// Stores the partial result of a split. The last block to do so adds all splits.
    fn store_partial(&self, range: &TileRange<'k>) {
        let k = self.k;
        let def = self.def;

        k.section(
            "batch/attention/partial_sums",
            "several splits: store the sums of this one",
        );
        self.each_four(|query, dim| {
            let total = self.of_warps(query, dim);
            let [values, outcome] = self.partial(query, dim, self.split);
            values.st4(total.values);
            k.when(dim.eq(0), || outcome.st2([total.max, total.weights]));
        });

        k.section(
            "batch/attention/ticket",
            "draw a ticket: the last block adds all splits",
        );
        let last = range.used - 1;
        let drawn = self.memory.at(def.shared() - 16).cast::<u32>();

        // The ticket releases the stores of the whole block, so all threads must have stored.
        k.barrier();
        k.when(k.tid().eq(0), || {
            drawn.st(self.a.ticket.at(k.ctaid()).ticket(last))
        });
        k.barrier();
        k.when(drawn.ld().eq(last), || self.merge(range));
    }

    /// Adds all splits in their order. Several loads are in flight at a time.
    fn merge(&self, range: &TileRange<'k>) {
        let k = self.k;
        self.each_four(|query, dim| {
            let mut all = RunningSoftmax::none(k);

            // Several splits are loaded at once, so that their latencies overlap.
            k.for_each(0, range.used, IN_FLIGHT, |first| {
                let of_split = |i: u32| {
                    let mut sums = RunningSoftmax::none(k);
                    let [values, outcome] = self.partial(query, dim, first + i);
                    sums.load((first + i).lt(range.used), outcome, values);
                    sums
                };
                let loaded: Vec<_> = (0..IN_FLIGHT).map(of_split).collect();

                k.section(
                    "batch/attention/merge_split",
                    "rescale to the common maximum and add",
                );
                let partials: Vec<_> = std::iter::once(&all)
                    .chain(&loaded)
                    .map(RunningSoftmax::get)
                    .collect();
                all.set(SplitPartial::sum(&partials));
            });

            k.section("batch/attention/merged", "store the result of all splits");
            self.store(query, dim, all.get().result());
        });
    }
}

impl<'k> PageLanes<'k> {
    /// Loads the page numbers of the block's first tiles.
    fn new(block: &BatchBlock<'_, 'k>, range: &TileRange<'k>) -> Self {
        let k = block.k;
        let mut pages = PageLanes {
            first: k.var(0),
            page: k.var(0),
        };
        pages.load(block, range.first / (PAGE / TILE));
        pages
    }

    /// Loads page numbers, starting at page `first` of the sequence.
    fn load(&mut self, block: &BatchBlock<'_, 'k>, first: U32<'k>) {
        let a = block.a;
        let index = (first + block.k.lane()).min(a.max_pages - 1);
        self.first.set(first);
        let entry = block.sequence.mad(a.max_pages, index);
        let page = a.pages.at(entry).ld();
        self.page.set(page.min(a.cache_pages - 1));
    }

    /// Returns the number of page `index` of the sequence. Indices must not decrease. The whole
    /// warp must call it.
    fn of(&mut self, block: &BatchBlock<'_, 'k>, index: U32<'k>) -> U32<'k> {
        let k = block.k;
        let past = (index - &self.first).ge(32);
        k.when(past, || self.load(block, index));
        self.page.get().shfl_idx(index - &self.first)
    }
}
