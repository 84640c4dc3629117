//! A block at work: it brings tiles, attends them, and leaves a result or its part of one.

use super::sums::{Sum, Total, divided, halves};
use super::*;
use crate::reduce::lanes_sum;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

/// What the threads of a block know from the start.
pub(super) struct Block<'a, 'k> {
    pub(super) k: Builder<'k>,
    def: &'a AttentionChained,
    a: &'a AttentionChainedArgs<Dev<'k>>,
    /// Head of keys and values and group of its queries, as one number, and of several columns, which.
    unit: U32<'k>,
    /// Which of several columns.
    column: Column<'k>,
    /// Which range of the positions.
    split: U32<'k>,
    /// First query head; those of a column follow those of the one before.
    head: U32<'k>,
    /// Query heads.
    queries: U32<'k>,
    /// The lane's first 16 bytes of the head's keys and values, of all 16 bytes of the caches.
    cached: U32<'k>,
    /// The row of a tile that the lane copies first, and which 16 bytes of it.
    row: U32<'k>,
    piece: U32<'k>,
    /// All tiles.
    tiles: Ptr<'k, f16, Shared>,
    /// The queries as f16, and below them what that rounding lost.
    staged: Ptr<'k, f16, Shared>,
    /// Of each warp and query: maximum and sum.
    outcome: Ptr<'k, f32, Shared>,
    /// The next tile that comes to the place of a tile is so much further.
    kept: U32<'k>,
}

/// The tiles of a block: the first, how many, and the number of ranges.
pub(super) struct Range<'k> {
    first: Var<'k, u32>,
    count: Var<'k, u32>,
    pub(super) used: Var<'k, u32>,
}

impl<'k> Range<'k> {
    fn set(&mut self, to: &Range<'k>) {
        self.first.set(&to.first);
        self.count.set(&to.count);
        self.used.set(&to.used);
    }

    pub(super) fn is_empty(&self) -> Pred<'k> {
        self.count.get().eq(0)
    }
}

/// Which rows of a tile to bring.
#[derive(Clone, Copy)]
pub(super) enum Which<'k> {
    /// Those before this position, which were there before this token began. Rows past it become zero: they count
    /// nothing, but must be numbers.
    Before(U32<'k>),
    /// All up to this position; rows past it become its own.
    UpTo(U32<'k>),
}

/// The token's own row of keys and values, for the lanes that copy it: those of the warp in whose first tiles it is.
pub(super) struct OwnRow<'k> {
    mine: Pred<'k>,
    from: [Ptr<'k, f16, Read>; 2],
    to: [Ptr<'k, f16, Shared>; 2],
}

/// Four dimensions of a query of the block; zero past the last query.
pub(super) struct Four<'k> {
    query: U32<'k>,
    dim: U32<'k>,
    q: [Var<'k, f32>; 4],
}

impl<'a, 'k> Block<'a, 'k> {
    pub(super) fn new(
        k: Builder<'k>,
        def: &'a AttentionChained,
        a: &'a AttentionChainedArgs<Dev<'k>>,
    ) -> Self {
        let (groups, per_group) = (def.groups(), def.queries.div_ceil(def.groups()));
        let units = a.kv_heads * groups;
        let all = if def.columns == 1 { units } else { units * def.columns };
        let split = k.ctaid() / all;
        let unit = k.ctaid() - split * all;
        let (column, of_column) = match def.columns {
            1 => (Column::ONLY, unit),
            _ => (Column::new(unit / units), unit % units),
        };
        let (kv_head, group) = divided(of_column, groups);
        let first = group * per_group;

        let shared = k.dynamic_shared::<f16>("tiles");
        let staged = shared.at(def.tiles() * def.half());
        let outcome = staged.at(QUERIES * def.row()).cast::<f32>();
        let deep = k.warp().lt(def.tiles() - (def.depth() - 1) * def.warps());
        let kept = |depth| depth * def.warps();

        let (row, piece) = divided(k.lane(), def.pieces());
        Block {
            k,
            def,
            a,
            unit,
            column,
            split,
            head: column.plus(kv_head * def.queries + first, a.heads),
            queries: (k.val(def.queries) - first).min(per_group),
            cached: (kv_head * a.ctx).mad(def.pieces(), piece),
            row,
            piece,
            tiles: shared,
            staged,
            outcome,
            kept: deep.select(kept(def.depth()), kept(def.depth() - 1)),
        }
    }

    /// Leaves a time, where the kernel profiles.
    pub(super) fn stamp(&self, stamp: Stamp) {
        if self.def.profile {
            stamp.leave(self.k, self.k.tid().eq(0), self.a.stamps);
        }
    }

    /// Where the kernel profiles, its first warp waits for its first tiles: they become a group of copies of their own.
    pub(super) fn stamp_landed(&self) {
        let k = self.k;
        if self.def.profile {
            k.when(k.warp().eq(0), || {
                k.commit_copies();
                k.wait_copies(0);
            });
        }
        self.stamp(Stamp::Landed);
    }

    /// The position as it is in memory.
    pub(super) fn position(&self) -> U32<'k> {
        self.column.of(self.a.state, LEN as u32).at(POSITION).fresh().ld().min(self.a.ctx - 1)
    }

    /// This block's tiles once the token is at `position`: see [`AttentionChained::split`].
    pub(super) fn range(&self, position: U32<'k>) -> Range<'k> {
        let tiles = (position >> TILE.ilog2()) + 1;
        let warps = self.def.warps();
        let (most, _) = divided(tiles + (warps - 1), warps);
        let used = tiles.le(ALONE * warps).select(1, most.min(self.a.splits));
        let share = (tiles + used - 1) / used;
        let first = self.split * share;
        let k = self.k;
        Range {
            first: k.var(first),
            count: k.var(tiles.max(first).min(first + share) - first),
            used: k.var((tiles + share - 1) / share),
        }
    }

    /// The lane's 16 bytes of the row of a position.
    fn cached(&self, cache: Ptr<'k, f16, Read>, position: U32<'k>) -> Ptr<'k, f16, Read> {
        cache.row(position.mad(self.def.pieces(), self.cached), 16)
    }

    /// The place of a tile: of those that come first, each has its own.
    fn place(&self, number: U32<'k>) -> Ptr<'k, f16, Shared> {
        self.tiles.row(number, 2 * self.def.half())
    }

    /// Brings rows of the first tiles.
    pub(super) fn copy_first(&self, range: &Range<'k>, which: Which<'k>) {
        let (k, def) = (self.k, self.def);
        let count = range.count.get().min(def.tiles());
        k.for_each(k.warp(), count, def.warps(), |number| {
            let tile = number + &range.first;
            [0, 1].into_iter().for_each(|half| self.copy(half, self.place(number), tile, which))
        });
    }

    /// Brings rows of the keys (`half` 0) or the values (1) of a tile: as many at a time as the lanes hold pieces.
    fn copy(&self, half: u32, place: Ptr<'k, f16, Shared>, tile: U32<'k>, which: Which<'k>) {
        let (k, def) = (self.k, self.def);
        let rows = 32 / def.pieces();
        let place = place.row(self.row, def.row()).at(self.piece * 8);
        for first in (0..TILE).step_by(rows as usize) {
            let p = tile * TILE + self.row + first;
            let to = place.at((half * def.half() + first * def.row()) / 2);
            let from = |p| self.cached([self.a.k_cache, self.a.v_cache][half as usize], p);
            self.when_inside(first, || match which {
                Which::UpTo(position) => from(p.min(position)).copy16(to),
                Which::Before(position) => {
                    k.when(p.lt(position), || from(p).copy16(to));
                    k.when(p.gt(position), || to.cast::<u32>().st4([k.val(0); 4]));
                }
            });
        }
    }

    /// Where the lane's row and `first` are a row of a tile: everywhere, if rows fill the warp evenly.
    fn when_inside(&self, first: u32, body: impl FnOnce()) {
        let rows = 32 / self.def.pieces();
        let limit = rows.min(TILE - first);
        match self.def.pieces() * limit {
            32 => body(),
            _ => _ = self.k.when(self.row.lt(limit), body),
        }
    }

    pub(super) fn own_row(&self, range: &Range<'k>, position: U32<'k>) -> OwnRow<'k> {
        let (k, def) = (self.k, self.def);
        let (tile, row) = (position >> TILE.ilog2(), position & (TILE - 1));
        let number = tile - &range.first;
        let (_, warp) = divided(number, def.warps());
        let to = self.place(number).row(row, def.row()).at(k.lane() * 8);
        // A tile before the first has a number past all.
        let resident = number.lt(def.tiles()) & number.lt(&range.count);
        OwnRow {
            mine: resident & warp.eq(k.warp()) & k.lane().lt(def.pieces()),
            from: [self.a.k_cache, self.a.v_cache].map(|cache| self.cached(cache, position)),
            to: [to, to.at(def.half() / 2)],
        }
    }

    /// Asks for the token's own row. With it, all that was asked for before makes the groups of copies of the first
    /// tiles.
    pub(super) fn copy_own(&self, own: &OwnRow<'k>) {
        self.k.when(own.mine, || own.from.iter().zip(own.to).for_each(|(from, to)| from.copy16(to)));
        self.commit_first();
    }

    /// The groups of copies of the first tiles: all that was asked for so far is in the first.
    pub(super) fn commit_first(&self) {
        (0..2 * self.def.depth()).for_each(|_| self.k.commit_copies());
    }

    /// Brings the first tiles of this position, where others are.
    pub(super) fn start_again(&self, range: &mut Range<'k>, position: U32<'k>) {
        let k = self.k;
        k.wait_copies(0);
        k.warp_barrier();
        range.set(&self.range(position));
        self.copy_first(range, Which::UpTo(position));
        k.commit_copies();
        k.wait_copies(0);
    }

    /// Asks for the block's queries, four dimensions at a time.
    pub(super) fn load(&self) -> Vec<Four<'k>> {
        let (k, def) = (self.k, self.def);
        let (fours, threads) = (def.head_dim / 4, KernelDef::block(def));
        let four = |first| {
            let i = k.tid() + first;
            let (query, four) = divided(i, fours);
            let dim = four * 4;
            let mut q = from_fn(|_| k.var(0.0));
            let from = self.a.q.at((self.head + query) * def.head_dim + dim);
            from.fresh().ld4_if(query.lt(self.queries), &mut q);
            Four { query, dim, q }
        };
        (0..QUERIES * fours).step_by(threads as usize).map(four).collect()
    }

    /// Leaves them in shared memory.
    pub(super) fn stage(&self, fours: Vec<Four<'k>>) {
        let (k, def) = (self.k, self.def);
        for Four { query, dim, q } in fours {
            k.when(query.lt(QUERIES), || {
                let [high, low] = halves(q.map(|q| q.get()));
                let to = self.staged.row(query, def.row()).at(dim).cast::<u32>();
                to.st2(high);
                to.row(QUERIES, def.row()).st2(low);
            });
        }
        k.barrier();
    }

    /// The warp's own tiles of the range, each from its place, which is filled again as soon as it is free.
    pub(super) fn attend(&self, sum: &mut Sum<'k>, range: &Range<'k>, position: U32<'k>) {
        let (k, def) = (self.k, self.def);
        let mut place = k.var(k.warp());
        k.for_each(k.warp(), &range.count, def.warps(), |number| {
            let tile = self.place(place.get());
            let next = number + self.kept;
            let refill = |half| {
                k.warp_barrier();
                k.when(next.lt(&range.count), || {
                    self.copy(half, tile, next + &range.first, Which::UpTo(position))
                });
                k.commit_copies();
            };
            self.wait_landed();
            let scores = self.scores(tile, number + &range.first, position);
            refill(0);
            let weights = sum.weigh(k, scores);
            self.wait_landed();
            sum.add(self.matrices(tile).at(def.half() / 2), weights);
            refill(1);
            let following = place.get() + def.warps();
            place.set(following.lt(def.tiles()).select(following, k.warp()));
        });
    }

    /// Waits for the keys or the values whose turn it is. A place has two groups of copies under way, keys and values;
    /// of all that came later, none need have landed.
    fn wait_landed(&self) {
        let (k, def) = (self.k, self.def);
        let later = |depth: u32| k.wait_copies(2 * depth - 1);
        if def.tiles().is_multiple_of(def.warps()) {
            later(def.depth());
        } else {
            k.when(self.kept.eq(def.depth() * def.warps()), || later(def.depth()))
                .otherwise(|| later(def.depth() - 1));
        }
        k.warp_barrier();
    }

    /// The keys of a tile, from the row on whose address the lane gives to `ldmatrix`: positions 0 to 7, dimensions 0
    /// to 7, then 8 to 15; then the same of positions 8 to 15.
    fn matrices(&self, place: Ptr<'k, f16, Shared>) -> Ptr<'k, f16, Shared> {
        let lane = self.k.lane();
        place.row((lane & 7) + (lane >> 4) * 8, self.def.row()).at((lane >> 3 & 1) * 8)
    }

    /// Scores of query `lane / 4`, in units of log2: positions `2t`, `2t + 1`, `2t + 8`, `2t + 9` of the tile, where
    /// `t = lane % 4`.
    ///
    /// Even and odd steps have sums of their own, so that half as many wait for each other.
    fn scores(&self, place: Ptr<'k, f16, Shared>, tile: U32<'k>, position: U32<'k>) -> [F32<'k>; 4] {
        let (k, def) = (self.k, self.def);
        let lane = k.lane();
        let queries = self.staged.row(lane & 15, def.row()).at((lane >> 4) * 8);
        let keys = self.matrices(place);
        let mut sums: [[Sums<f32>; 2]; 2] = from_fn(|_| from_fn(|_| Sums::zero(k)));
        for step in 0..def.head_dim / 16 {
            let a = A(queries.at(16 * step).ldmatrix4());
            let [b0, b1, b2, b3] = keys.at(16 * step).ldmatrix4();
            let [left, right] = &mut sums[step as usize % 2];
            left.add_f16(a, B([b0, b1]));
            right.add_f16(a, B([b2, b3]));
        }
        let factor = self.a.scale * LOG2_E;
        let first = tile * TILE + (lane & 3) * 2;
        from_fn(|i| {
            let of = |parity: usize, row: usize| sums[parity][i / 2].0[2 * row + i % 2].get();
            let score = ((of(0, 0) + of(1, 0)) + (of(0, 1) + of(1, 1))) * factor;
            let p = first + [0, 1, 8, 9][i];
            p.le(position).select(score, f32::NEG_INFINITY)
        })
    }

    /// Leaves the warp's sums in its first place; a warp without tiles, only that it has none.
    pub(super) fn leave(&self, sum: &Sum<'k>, range: &Range<'k>) {
        let (k, def) = (self.k, self.def);
        let (g, t) = (k.lane() >> 2, k.lane() & 3);
        let weights = lanes_sum(3, sum.weights.get());
        let outcome = self.outcome.at((k.warp() * QUERIES + g) * 2);
        k.when(t.eq(0), || outcome.st2([sum.max.get(), weights]));
        let row = def.head_dim + 4;
        let to = self.place(k.warp()).cast::<f32>().row(t, 8 * row).at(g);
        k.when(k.warp().lt(&range.count), || {
            for (i, values) in (0..).zip(&sum.values) {
                for (offset, value) in [0, row, 8, row + 8].into_iter().zip(&values.0) {
                    to.at(16 * i + offset).st(value);
                }
            }
        });
    }

    /// Each query and four of its dimensions, one to a thread, in whole warps: `body` is told which are `inside`; the
    /// others stand for the last one.
    fn each_four(&self, body: impl FnOnce(U32<'k>, U32<'k>, Pred<'k>)) {
        let (k, fours) = (self.k, self.def.head_dim / 4);
        let all = self.queries * fours;
        k.for_each(k.warp() * 32, all, KernelDef::block(self.def), |first| {
            let i = first + k.lane();
            let (query, four) = divided(i.min(all - 1), fours);
            body(query, four * 4, i.lt(all));
        });
    }

    /// The total of the busy warps, for a query and four dimensions.
    fn gather(&self, query: U32<'k>, dim: U32<'k>, range: &Range<'k>) -> Total<'k> {
        let def = self.def;
        let outcome = self.outcome.at(query * 2);
        let values = self.tiles.cast::<f32>().at(query * (def.head_dim + 4) + dim);
        let of_warp = |warp: u32| {
            let [max, weights] = outcome.at(warp * 2 * QUERIES).ld2();
            let values = values.row((range.count.get() - 1).min(warp), 2 * def.half()).ld4();
            Total { max, weights, values }
        };
        Total::of(&(0..def.warps()).map(of_warp).collect::<Vec<_>>())
    }

    /// The result, where one block has all positions.
    pub(super) fn store_result(&self, range: &Range<'k>) {
        self.each_four(|query, dim, inside| self.store(query, dim, inside, self.gather(query, dim, range)));
    }

    fn store(&self, query: U32<'k>, dim: U32<'k>, inside: Pred<'k>, total: Total<'k>) {
        let factor = total.weights.rcp();
        let at = (self.head + query) * self.def.head_dim + dim;
        let to = Eights { k: self.k, values: self.a.y, scales: self.a.y_scale };
        to.store4(at, inside, total.values.map(|v| v * factor));
    }

    /// Where a split leaves four weighted values, and the maximum and the sum of the weights.
    fn part(&self, query: U32<'k>, dim: U32<'k>, split: U32<'k>) -> [Ptr<'k, f32, ReadWrite>; 2] {
        let a = self.a;
        let at = ((self.head + query) * a.splits + split) * self.def.head_dim + dim;
        let all = self.def.columns * self.def.head_dim;
        [a.part.at(at), a.part.at(a.heads * a.splits * all + (at >> 1))]
    }

    /// Leaves the sums of one of several splits; the warp that is the last to leave its own merges them.
    pub(super) fn store_part(&self, range: &Range<'k>) {
        let (k, def) = (self.k, self.def);
        self.each_four(|query, dim, inside| {
            let total = self.gather(query, dim, range);
            let [values, outcome] = self.part(query, dim, self.split);
            k.when(inside, || {
                values.st4(total.values);
                outcome.st2([total.max, total.weights]);
            });
        });
        k.when((k.warp() * 32).lt(self.queries * (def.head_dim / 4)), || {
            k.warp_barrier();
            let last = range.used.get() - 1;
            let mut drawn = k.var(0);
            let ticket = self.a.ticket.at(self.unit * MOST_WARPS + k.warp());
            k.when(k.lane().eq(0), || drawn.set(ticket.ticket(last)));
            let drawn = drawn.get().broadcast();
            k.warp_barrier();
            k.when(drawn.eq(last), || self.merge(range));
        });
    }

    /// The result of all splits, some in flight at a time.
    fn merge(&self, range: &Range<'k>) {
        let k = self.k;
        self.each_four(|query, dim, inside| {
            let [mut max, mut weights] = [f32::MIN, 0.0].map(|v| k.var(v));
            let mut values: [_; 4] = from_fn(|_| k.var(0.0));
            let so_far = |max: &Var<'k, f32>, weights: &Var<'k, f32>, values: &[Var<'k, f32>; 4]| Total {
                max: max.get(),
                weights: weights.get(),
                values: from_fn(|i| values[i].get()),
            };
            k.for_each(0, &range.used, PARTS_AHEAD, |first| {
                let of_split = |i: u32| {
                    let there = (first + i).lt(&range.used);
                    let [from, outcome] = self.part(query, dim, first + i);
                    let mut sums = [f32::MIN, 0.0].map(|v| k.var(v));
                    let mut values: [_; 4] = from_fn(|_| k.var(0.0));
                    outcome.fresh().ld2_if(there, &mut sums);
                    from.fresh().ld4_if(there, &mut values);
                    so_far(&sums[0], &sums[1], &values)
                };
                let mut parts = vec![so_far(&max, &weights, &values)];
                parts.extend((0..PARTS_AHEAD).map(of_split));
                let total = Total::of(&parts);
                max.set(total.max);
                weights.set(total.weights);
                values.iter_mut().zip(total.values).for_each(|(value, v)| value.set(v));
            });
            self.store(query, dim, inside, so_far(&max, &weights, &values));
        });
    }
}
