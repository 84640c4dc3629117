//! The program of a block: its warps copy tiles and attend to them, then their sums become a result or a partial result.

use super::sums::{OnlineSoftmax, Partial, Running, add_values};
use super::tile::{Copier, Matrices};
use super::*;
use crate::pipeline::attention::divided;
use std::array::from_fn;

/// Values that the threads of a block compute at the start.
pub(super) struct Block<'a, 'k> {
    k: Builder<'k>,
    def: &'a BatchAttention,
    a: &'a BatchAttentionArgs<Dev<'k>>,
    row: U32<'k>,
    /// The KV head and the group of its query heads as one number.
    unit: U32<'k>,
    kv_head: U32<'k>,
    /// The first query head of the block, and how many it has.
    head: U32<'k>,
    queries: U32<'k>,
    pub(super) split: U32<'k>,
    position: U32<'k>,
    sequence: U32<'k>,
    done: U32<'k>,
    memory: Ptr<'k, u8, Shared>,
}

/// Tiles of a row, counted from the sequence's first.
pub(super) struct TileRange<'k> {
    /// The first tile of the block, and the first after its last.
    first: U32<'k>,
    end: U32<'k>,
    /// Splits that have tiles.
    pub(super) used: U32<'k>,
}

/// The pages of a sequence, from one on: a lane has a page.
struct PageLanes<'k> {
    first: Var<'k, u32>,
    page: Var<'k, u32>,
}

/// How a warp copies tiles: its lanes' parts, and the first row of the KV head in a page.
pub(super) struct WarpCopies<'k> {
    copier: Copier<'k>,
    pages: PageLanes<'k>,
}

impl<'k> WarpCopies<'k> {
    pub(super) fn new(block: &Block<'_, 'k>, range: &TileRange<'k>) -> Self {
        WarpCopies {
            copier: Copier::new(block.k, block.def.tile_rows()),
            pages: PageLanes::new(block, range),
        }
    }
}

impl<'a, 'k> Block<'a, 'k> {
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
        Block {
            k,
            def,
            a,
            row,
            unit,
            kv_head,
            head: kv_head * def.queries + first,
            queries: (k.val(def.queries) - first).min(def.group()),
            split: k.ctaid_y(),
            position: position.min(a.max_pages * PAGE - 1),
            sequence: sequence.min(a.sequences - 1),
            done,
            memory: k.dynamic_shared("memory"),
        }
    }

    pub(super) fn done(&self) -> Pred<'k> {
        self.done.ne(0)
    }

    /// The block's tiles: see [`BatchAttention::share`].
    pub(super) fn range(&self) -> TileRange<'k> {
        let (def, a) = (self.def, self.a);
        let warps = def.warps();
        let base = def
            .start(self.position)
            .map_or_else(|| self.k.val(0), |start| start / TILE);
        let end = self.position / TILE + 1;
        let tiles = end - base;
        let least = (a.units / UNITS).max(LEAST_TILES[0]).min(LEAST_TILES[1]) * warps;
        let share = ((tiles + (a.splits - 1)) / a.splits).max(least);
        let share = divided(share + (warps - 1), warps).0 * warps;
        let first = base + self.split * share;
        TileRange {
            first,
            end: (first + share).min(end),
            used: (tiles + (share - 1)) / share,
        }
    }

    /// The result of a row that is done.
    pub(super) fn store_zeros(&self) {
        let k = self.k;
        k.section("batch/attention/finished_row", "a row that is done: zeros");
        k.when(self.split.eq(0), || {
            self.each_four(|query, dim| self.store(query, dim, from_fn(|_| k.val(0.0))));
            self.store_scale();
        });
    }

    /// Attends to the range; stores the result, if it is all of the row, or else a partial result.
    pub(super) fn process(&self, copies: &mut WarpCopies<'k>, range: &TileRange<'k>) {
        let (k, def) = (self.k, self.def);
        let mut sets: Vec<_> = (0..def.sets())
            .map(|_| OnlineSoftmax::new(k, def))
            .collect();
        self.attend(&mut sets, copies, range);
        k.section(
            "batch/attention/share_sums",
            "the warp's sums into shared memory, in place of its tiles",
        );
        k.wait_copies(0);
        k.warp_barrier();
        for (set, sums) in (0..).zip(&sets) {
            let (outcome, values) = (
                self.outcome(k.warp(), set * SET),
                self.values(k.warp(), set * SET),
            );
            sums.store(outcome, values, def.head_dim + 4);
        }
        k.barrier();
        k.when(range.used.eq(1), || {
            k.section("batch/attention/single_split", "one range: the result");
            self.each_four(|query, dim| self.store(query, dim, self.of_warps(query, dim).result()));
        })
        .otherwise(|| self.store_partial(range));
        k.when(self.split.eq(0), || self.store_scale());
    }

    fn store_scale(&self) {
        let first = self.unit.eq(0) & self.k.tid().eq(0);
        self.k.when(first, || self.a.y_scale.at(self.row).st(1.0));
    }

    /// A slot of the warp's ring.
    fn slot(&self, slot: impl Src<'k, u32>) -> Ptr<'k, u8, Shared> {
        let bytes = self.def.tile_bytes();
        self.memory
            .row(self.k.warp(), DEPTH * bytes)
            .row(slot, bytes)
    }

    /// The values of a warp's sums, from a query on.
    fn values(&self, warp: impl Src<'k, u32>, query: u32) -> Ptr<'k, f32, Shared> {
        let ring = self.memory.row(warp, DEPTH * self.def.tile_bytes());
        ring.cast().at(query * (self.def.head_dim + 4))
    }

    /// The maximum and sum of the weights of a warp, from a query on.
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
        let (k, def) = (self.k, self.def);
        let (rows, warps) = (def.tile_rows(), def.warps());
        let first = range.first + k.warp();
        k.section("batch/attention/first_copies", "copy the first tiles");
        self.first_tiles(range, |ahead, tile, counts| {
            let counts = if def.overlap.waits() {
                counts & tile.eq(self.own_tile())
            } else {
                counts
            };
            k.when(counts, || self.copy(copies, self.slot(ahead), tile));
            // With those of before the wait, which are in the first group.
            k.commit_copies();
        });
        k.section("batch/attention/queries", "the queries, as left matrices");
        let queries = self.load_queries();
        let place = Matrices::place(k, rows);
        let mut slot = k.var(0);
        k.for_each(first, range.end, warps, |tile| {
            k.section(
                "batch/attention/tile",
                "a tile: wait for it, and copy another one ahead",
            );
            k.wait_copies(DEPTH - 2);
            k.warp_barrier();
            let next = tile + (DEPTH - 1) * warps;
            let free = slot.get().eq(0).select(DEPTH - 1, slot.get() - 1);
            k.when(next.lt(range.end), || {
                self.copy(copies, self.slot(free), next)
            });
            k.commit_copies();
            let keys = self.slot(slot.get());
            let values = Matrices::new(rows, keys.at(TILE * rows.bytes), place);
            k.section("batch/attention/scores", "scores: queries times keys");
            let scores = self.scores(&queries, &Matrices::new(rows, keys, place), tile);
            k.section(
                "batch/attention/weights",
                "weights, relative to the maximum so far",
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

    /// Asks for the first tiles of a warp, as far as other kernels wrote them long ago.
    pub(super) fn copy_before(&self, copies: &mut WarpCopies<'k>, range: &TileRange<'k>) {
        self.first_tiles(range, |ahead, tile, counts| {
            self.k.when(counts & tile.ne(self.own_tile()), || {
                self.copy(copies, self.slot(ahead), tile)
            });
        });
    }

    /// The tile that has the row's own position, whose key and value the kernel before may write.
    fn own_tile(&self) -> U32<'k> {
        self.position / TILE
    }

    /// Calls `body` with the slot and the number of each of the warp's first tiles, and whether there is such a tile.
    fn first_tiles(&self, range: &TileRange<'k>, mut body: impl FnMut(u32, U32<'k>, Pred<'k>)) {
        for ahead in 0..DEPTH - 1 {
            let tile = range.first + self.k.warp() + ahead * self.def.warps();
            body(ahead, tile, tile.lt(range.end));
        }
    }

    /// Copies keys and values of a tile. Rows that do not count repeat one that does.
    fn copy(&self, copies: &mut WarpCopies<'k>, to: Ptr<'k, u8, Shared>, tile: U32<'k>) {
        let (k, def, a) = (self.k, self.def, self.a);
        let page = copies.pages.of(self, tile / (PAGE / TILE));
        let copier = &copies.copier;
        let head = (page * a.kv_heads + self.kv_head) * PAGE;
        let first = tile * TILE;
        let start = def.start(self.position);
        let whole = (first + (TILE - 1)).le(self.position);
        let whole = start.map_or(whole, |start| whole & first.ge(start));
        let halves = || {
            [
                (a.k_cache, to),
                (a.v_cache, to.at(TILE * def.tile_rows().bytes)),
            ]
        };
        let from = |cache: Ptr<'k, f16, ReadOnly>, position: U32<'k>| {
            cache
                .row(head + (position & (PAGE - 1)), 2 * def.head_dim)
                .row(copier.unit, 16)
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
                "not all positions of the tile",
            );
            for (cache, to) in halves() {
                copier.copy(to, |further| {
                    let position = (first + copier.row + further).min(self.position);
                    from(cache, start.map_or(position, |start| position.max(start)))
                });
            }
        });
    }

    /// The left matrices of the queries, for each 16 dimensions. Queries past the last repeat it.
    fn load_queries(&self) -> Vec<LeftFragment<'k>> {
        let (k, def, a) = (self.k, self.def, self.a);
        let (g, t) = (k.lane() >> 2, k.lane() & 3);
        let row = |set: u32| {
            let query = self.row.mad(a.heads, self.head) + (g + set * SET).min(self.queries - 1);
            a.q.row(query, 2 * def.head_dim).cast::<u32>().at(t)
        };
        let rows: Vec<_> = (0..def.sets()).map(row).collect();
        let word = |set: usize, at: u32| match rows.get(set) {
            Some(row) if def.overlap.waits() => row.at(at).fresh().ld(),
            Some(row) => row.at(at).ld(),
            None => k.val(0),
        };
        let left =
            |pair: u32| LeftFragment(from_fn(|r| word(r % 2, 8 * pair + 4 * (r as u32 / 2))));
        (0..def.head_dim / 16).map(left).collect()
    }

    /// For each set, the scores of query `lane / 4` for positions `2t`, `2t + 1`, `2t + 8`, `2t + 9` of the tile, where
    /// `t = lane % 4`. Even and odd pairs of units have separate sums, which halves the chain.
    fn scores(
        &self,
        queries: &[LeftFragment<'k>],
        keys: &Matrices<'k>,
        tile: U32<'k>,
    ) -> Vec<[F32<'k>; 4]> {
        let (k, def) = (self.k, self.def);
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
            let [even, odd] = [0, 1].map(|parity| sums[parity][i / 2].0[2 * set + i % 2].get());
            counts[i].select(even + odd, f32::NEG_INFINITY)
        };
        (0..def.sets() as usize)
            .map(|set| from_fn(|i| score(set, i)))
            .collect()
    }

    /// Calls `body` for each query of the block and four of its dimensions.
    fn each_four(&self, body: impl FnOnce(U32<'k>, U32<'k>)) {
        let (k, fours) = (self.k, self.def.head_dim / 4);
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

    /// The sums of all warps, for a query and four dimensions.
    fn of_warps(&self, query: U32<'k>, dim: U32<'k>) -> Partial<'k> {
        let of_warp = |warp: u32| {
            let [max, weights] = self.outcome(warp, 0).at(query * 2).ld2();
            let values = self
                .values(warp, 0)
                .at(query * (self.def.head_dim + 4) + dim)
                .ld4();
            Partial {
                max,
                weights,
                values,
            }
        };
        Partial::sum(&(0..self.def.warps()).map(of_warp).collect::<Vec<_>>())
    }

    /// Stores four dimensions of the result.
    fn store(&self, query: U32<'k>, dim: U32<'k>, values: [F32<'k>; 4]) {
        let a = self.a;
        let slot = self
            .def
            .order
            .slot_of_four((self.head + query) * self.def.head_dim + dim);
        for (i, slot) in [slot, slot + 8].into_iter().enumerate() {
            let to = activations::place(a.y, a.capacity, self.row, slot).cast::<u32>();
            to.st(values[2 * i].pack_f16(values[2 * i + 1]));
        }
    }

    /// Where a split's weighted values are, and its maximum and sum of the weights.
    fn partial(
        &self,
        query: U32<'k>,
        dim: U32<'k>,
        split: U32<'k>,
    ) -> [Ptr<'k, f32, ReadWrite>; 2] {
        let (def, a) = (self.def, self.a);
        let at = (self.row.mad(a.heads, self.head) + query).mad(a.splits, split);
        let outcomes = a
            .partials
            .row(a.rows * a.heads * a.splits, 4 * def.head_dim);
        [
            a.partials.row(at, 4 * def.head_dim).at(dim),
            outcomes.at(at * 2),
        ]
    }

    /// Stores the partial result of a split. The last block to do so adds all splits.
    fn store_partial(&self, range: &TileRange<'k>) {
        let (k, def) = (self.k, self.def);
        k.section(
            "batch/attention/partial_sums",
            "several ranges: the sums of this one",
        );
        self.each_four(|query, dim| {
            let total = self.of_warps(query, dim);
            let [values, outcome] = self.partial(query, dim, self.split);
            values.st4(total.values);
            k.when(dim.eq(0), || outcome.st2([total.max, total.weights]));
        });
        k.section(
            "batch/attention/ticket",
            "draw a ticket: the last block adds all ranges",
        );
        let last = range.used - 1;
        let drawn = self.memory.at(def.shared() - 16).cast::<u32>();
        k.barrier();
        k.when(k.tid().eq(0), || {
            drawn.st(self.a.ticket.at(k.ctaid()).ticket(last))
        });
        k.barrier();
        k.when(drawn.ld().eq(last), || self.merge(range));
    }

    /// Adds all splits in their order, several loads in flight at a time.
    fn merge(&self, range: &TileRange<'k>) {
        let k = self.k;
        self.each_four(|query, dim| {
            let mut all = Running::none(k);
            k.for_each(0, range.used, IN_FLIGHT, |first| {
                let of_split = |i: u32| {
                    let mut sums = Running::none(k);
                    let [values, outcome] = self.partial(query, dim, first + i);
                    sums.load((first + i).lt(range.used), outcome, values);
                    sums
                };
                let loaded: Vec<_> = (0..IN_FLIGHT).map(of_split).collect();
                k.section(
                    "batch/attention/merge_split",
                    "bring them to a common maximum, and add",
                );
                let partials: Vec<_> = std::iter::once(&all)
                    .chain(&loaded)
                    .map(Running::get)
                    .collect();
                all.set(Partial::sum(&partials));
            });
            k.section("batch/attention/merged", "the result of all ranges");
            self.store(query, dim, all.get().result());
        });
    }
}

impl<'k> PageLanes<'k> {
    fn new(block: &Block<'_, 'k>, range: &TileRange<'k>) -> Self {
        let k = block.k;
        let mut pages = PageLanes {
            first: k.var(0),
            page: k.var(0),
        };
        pages.load(block, range.first / (PAGE / TILE));
        pages
    }

    /// Loads the pages from `first` on.
    fn load(&mut self, block: &Block<'_, 'k>, first: U32<'k>) {
        let a = block.a;
        let index = (first + block.k.lane()).min(a.max_pages - 1);
        self.first.set(first);
        self.page.set(
            a.pages
                .at(block.sequence.mad(a.max_pages, index))
                .ld()
                .min(a.cache_pages - 1),
        );
    }

    /// Page `index` of the sequence; indices rise. Whole warp.
    fn of(&mut self, block: &Block<'_, 'k>, index: U32<'k>) -> U32<'k> {
        let k = block.k;
        let past = (index - &self.first).ge(32);
        k.when(past, || self.load(block, index));
        self.page.get().shfl_idx(index - &self.first)
    }
}
