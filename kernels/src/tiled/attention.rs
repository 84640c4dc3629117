//! Attention of one token as one kernel of a chain whose kernels overlap: `softmax(scale * q k^T) v`. sm_90; sm_80
//! where it does not overlap.
//!
//! A block works on one head of keys and values, for up to 8 of the query heads that share it, over a range of the
//! positions. The range is cut into tiles of 16 positions, which the warps take in turn. A warp brings its own tiles
//! to shared memory with `cp.async` and waits for no other: as many tiles as fit are there at a time, and a longer
//! range streams through the same places. Of the first tiles, only the row of the token itself comes from the kernels
//! just before: all others were there before this token began, and are asked for before `griddepcontrol.wait`.
//!
//! Scores are `mma.m16n8k16` with f16 inputs and f32 sums. The 8 queries are rows 0 to 7 of the left matrix; what
//! rounding them to f16 lost is rows 8 to 15, so that the sum of both rows is as exact as f32. A lane's scores lie as
//! the right matrix of the second product, `v^T p`, wants the weights: it is done once for the rounded weights and
//! once for what rounding lost.
//!
//! Each warp keeps the maximum `m` of its scores, the sum of `2^(score - m)` and the weighted values. Then the warps
//! of a block are brought to their common maximum and added. While one block takes all positions, that is the result.
//! Else the splits of a head leave theirs in memory. A warp has the same numbers of the same queries in each of them
//! and draws a ticket of its own: the one that comes last adds all in the order of the splits, so that the same
//! positions give the same bits.
//!
//! Several columns are tokens at positions of their own, each with blocks of its own, which all read the same cache.
//! The rows of columns before it come from the kernel before, so nothing is asked for early.

use super::column::Column;
use super::eights::{self, EIGHT, Eights};
use super::plan::{MOST_COLUMNS, Stamp, Trigger};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::reduce::{lanes_max, lanes_sum};
use crate::state::{LEN, POSITION};
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`AttentionChained`].
    pub struct AttentionChainedArgs {
        /// `[columns, 8]`: see [`state`](crate::state); positions up to `POSITION` count
        state: In<u32>,
        /// `[columns, heads, head_dim]`, in the range of f16
        q: In<f32>,
        /// `[kv_heads, ctx, head_dim]`
        k_cache: In<f16>,
        /// `[kv_heads, ctx, head_dim]`
        v_cache: In<f16>,
        /// `[columns, heads, head_dim]` whole numbers: see [`eights`](super::eights)
        y: Out<u16>,
        /// `[columns, heads, head_dim / 8]`: their scales
        y_scale: Out<f32>,
        /// `[columns, heads, splits, head_dim]` weighted values, then `[columns, heads, splits, head_dim / 4, 2]`
        /// maximum in log2 and sum of the weights, for each four values: where there are several ranges
        part: InOut<f32>,
        /// `[columns, kv_heads * groups, 8]`, one of each warp: zero before and after
        ticket: InOut<u32>,
        /// Query heads.
        heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Positions of the cache.
        ctx: u32,
        /// The most ranges that the positions are split into.
        splits: u32,
        /// Factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
        /// Blocks; those without work wait too.
        blocks: u32,
        /// Bytes of shared memory of a block: what the other kernels of the chain ask for.
        shared: u32,
        /// `[blocks, 8]` where the kernel profiles: see [`Stamp`]
        stamps: Out<u64>,
    }
}

/// One node of a chain: as many blocks as it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionChained {
    /// Dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Query heads that share a head of keys and values, at most 16.
    pub queries: u32,
    /// Whether it starts while the kernel before it still runs, and waits for its end: sm_90.
    pub chained: bool,
    /// When the next kernel may start, if this one is chained; at the latest after the wait.
    pub trigger: Trigger,
    /// Bytes of shared memory that a block may have, from which follow its warps and tiles.
    pub memory: u32,
    /// Tokens at once.
    pub columns: u32,
    /// Whether each block leaves the times of [`Stamp`]s.
    pub profile: bool,
}

/// Shared memory of a block where two blocks fit a multiprocessor of sm_90.
const HALF_SHARED: u32 = 115_712;
/// Positions of a tile: the inner dimension of `mma.m16n8k16`.
const TILE: u32 = 16;
/// Query heads of a block: half of the rows of an `mma`.
const QUERIES: u32 = 8;
/// The most warps of a block: at 80 registers a thread, they leave room for a product of 12 warps and its producer in
/// each of the four parts of a multiprocessor, which have 16,384 registers.
const MOST_WARPS: u32 = 8;
/// Tiles that a warp keeps, at most.
const MOST_DEPTH: u32 = 3;
/// Shared memory that is neither tiles nor queries, at most.
const REST: u32 = 8 * QUERIES * MOST_WARPS;
/// Up to so many tiles a warp, a block takes a head's positions alone: to go through them is faster than to merge the
/// results of two.
const ALONE: u32 = 3;
/// Parts that a thread has in flight when it merges.
const PARTS_AHEAD: u32 = 8;

impl AttentionChained {
    /// The variant that was fastest.
    pub const fn shipped(head_dim: u32, queries: u32) -> AttentionChained {
        AttentionChained {
            head_dim,
            queries,
            chained: true,
            trigger: Trigger::First,
            memory: HALF_SHARED,
            columns: 1,
            profile: false,
        }
    }

    /// The variant for devices older than sm_90, with as much shared memory as all of them have.
    pub const fn shipped_plain(head_dim: u32, queries: u32) -> AttentionChained {
        let memory = 99 << 10;
        AttentionChained { chained: false, memory, ..AttentionChained::shipped(head_dim, queries) }
    }

    /// The same for so many columns.
    pub const fn by(self, columns: u32) -> AttentionChained {
        AttentionChained { columns, ..self }
    }

    /// Blocks that share a head of keys and values, each with up to 8 of its query heads.
    pub fn groups(&self) -> u32 {
        self.queries.div_ceil(QUERIES)
    }

    /// Bytes of a row in shared memory: an odd number of 16 bytes, so that eight rows meet different banks.
    fn row(&self) -> u32 {
        2 * self.head_dim + 16
    }

    /// Bytes of the keys, or of the values, of a tile.
    fn half(&self) -> u32 {
        TILE * self.row()
    }

    /// Pieces of 16 bytes of a row.
    fn pieces(&self) -> u32 {
        self.head_dim / 8
    }

    /// Tiles that fit a block, or one where none does: [`KernelDef::grid`] refuses that.
    fn fit(&self) -> u32 {
        (self.memory.saturating_sub(2 * QUERIES * self.row() + REST) / (2 * self.half())).max(1)
    }

    /// Warps of a block.
    fn warps(&self) -> u32 {
        self.fit().min(MOST_WARPS)
    }

    /// Tiles that a block keeps.
    fn tiles(&self) -> u32 {
        self.fit().min(MOST_DEPTH * self.warps())
    }

    /// Tiles that a warp keeps, at most: the last warps may keep one less.
    fn depth(&self) -> u32 {
        self.tiles().div_ceil(self.warps())
    }

    /// Bytes of shared memory that a block needs: tiles, queries, maximum and sum of each warp.
    pub fn shared(&self) -> u32 {
        self.tiles() * 2 * self.half() + 2 * QUERIES * self.row() + 8 * QUERIES * self.warps()
    }

    /// Positions of the shortest range where there are several: a tile for each warp.
    pub fn positions(&self) -> u32 {
        TILE * self.warps()
    }

    /// Numbers that a split leaves of a query.
    pub fn part(&self) -> u32 {
        self.head_dim + self.head_dim / 2
    }

    /// Tickets for each column: one for each warp of the blocks that share the same queries.
    pub fn tickets(&self, kv_heads: u32) -> u32 {
        kv_heads * self.groups() * MOST_WARPS
    }
}

impl KernelDef for AttentionChained {
    type Args<S: Side> = AttentionChainedArgs<S>;

    fn name(&self) -> String {
        let AttentionChained { head_dim, queries, chained, trigger, memory, columns, profile } = self;
        let how = match (chained, trigger) {
            (false, _) => "plain",
            (true, Trigger::First) => "first",
            (true, _) => "waited",
        };
        let memory = if *memory == HALF_SHARED { String::new() } else { format!("_{memory}") };
        let columns = if *columns == 1 { String::new() } else { format!("_{columns}_columns") };
        let profile = if *profile { "_profile" } else { "" };
        format!("attention_chained_{head_dim}_{queries}_{how}{memory}{columns}{profile}")
    }

    fn block(&self) -> u32 {
        32 * self.warps()
    }

    /// As many as leave 80 registers a thread, where those are enough.
    fn blocks_per_sm(&self) -> Option<u32> {
        (self.chained && matches!(self.head_dim, 64 | 128)).then_some(24 / self.warps())
    }

    fn grid(&self, a: &AttentionChainedArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 2 * QUERIES)?;
        self.range("the kernel's columns", self.columns, 1, MOST_COLUMNS)?;
        let columns = |name, found, formula, factors: &[u32]| {
            super::columns(self, self.columns, name, found, formula, factors)
        };
        self.exactly("state", a.state, self.columns as usize * LEN)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.require(a.heads == a.kv_heads * self.queries, || {
            format!("heads is {}, must be kv_heads * queries = {}", a.heads, a.kv_heads * self.queries)
        })?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.range("splits", a.splits, 1, 1 << 12)?;
        self.require(a.k_cache / 8 <= u32::MAX as usize, || {
            format!("k_cache has {} elements, must have less than 2^35", a.k_cache)
        })?;
        columns("q", a.q, "heads * head_dim", &[a.heads, self.head_dim])?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            self.length(name, found, "kv_heads * ctx * head_dim", &[a.kv_heads, a.ctx, self.head_dim])?;
        }
        let y = [a.y, a.y_scale];
        super::eights(self, self.columns, "y", y, "head_dim * heads", &[self.head_dim, a.heads])?;
        columns("part", a.part, "heads * splits * head_dim * 3 / 2", &[a.heads, a.splits, self.part()])?;
        columns("ticket", a.ticket, "kv_heads * groups * 8", &[self.tickets(a.kv_heads)])?;
        let needed = [self.columns, a.kv_heads, self.groups(), a.splits];
        self.range("blocks", a.blocks, needed.into_iter().fold(1, u32::saturating_mul), 1 << 16)?;
        self.range("the kernel's memory", self.memory, self.shared(), 1 << 20)?;
        self.range("shared", a.shared, self.shared(), self.memory)?;
        super::stamped(self, self.profile, a.blocks, a.stamps)?;
        Ok(Grid { shared: a.shared, ..Grid::line(a.blocks) })
    }

    fn program<'k>(&self, k: Builder<'k>, a: AttentionChainedArgs<Dev<'k>>) {
        if self.chained && self.trigger == Trigger::First {
            k.grid_trigger();
        }
        let block = Block::new(k, self, &a);
        block.stamp(Stamp::Begun);
        block.stamp(Stamp::Place);

        let (range, position) =
            if self.columns == 1 { self.begin(&block) } else { self.begin_columns(&block) };
        block.stamp(Stamp::Ready);

        let mut sums = Sum::new(k, self);
        block.attend(&mut sums, &range, position);
        block.stamp(Stamp::Multiplied);
        block.leave(&sums, &range);
        k.barrier();
        k.when(!range.is_empty(), || {
            k.when(range.used.get().eq(1), || block.store_result(&range))
                .otherwise(|| block.store_part(&range));
        });
        block.stamp(Stamp::Stored);
    }

    fn reference(&self, a: AttentionChainedArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let (ctx, splits, heads) = (a.ctx as usize, a.splits as usize, a.heads as usize);
        let (values, others) = a.part.split_at_mut(a.y.len() * splits);
        let scales = a.y_scale.chunks_mut(dim / EIGHT as usize);
        for (head, (y, y_scale)) in a.y.chunks_mut(dim).zip(scales).enumerate() {
            let n = ctx.min(a.state[head / heads * LEN + POSITION as usize] as usize + 1);
            let (used, share) = self.split(n, splits);
            let q = &a.q[head * dim..][..dim];
            let kv_head = head % heads / self.queries as usize;
            let caches = [a.k_cache, a.v_cache].map(|c| &c[kv_head * ctx * dim..][..ctx * dim]);
            let whole = attend(q, caches, 0..n, a.scale);
            let result: Vec<f64> = whole.values.iter().map(|v| v / whole.sum).collect();
            let (whole_numbers, scales) = eights::encode(&result);
            y.copy_from_slice(&whole_numbers);
            y_scale.copy_from_slice(&scales);
            for split in (0..used).filter(|_| used > 1) {
                let part = attend(q, caches, split * share..n.min((split + 1) * share), a.scale);
                let at = head * splits + split;
                for pair in others[at * dim / 2..][..dim / 2].chunks_mut(2) {
                    pair.copy_from_slice(&[part.max as f32, part.sum as f32]);
                }
                for (value, v) in values[at * dim..][..dim].iter_mut().zip(part.values) {
                    *value = v as f32;
                }
            }
        }
    }
}

impl AttentionChained {
    /// Brings the first tiles and the queries; gives the block's tiles and the token's position.
    fn begin<'k>(&self, block: &Block<'_, 'k>) -> (Range<'k>, U32<'k>) {
        let k = block.k;
        k.note("the position may still be that of the token before: then it is too small");
        let early = block.position().broadcast();
        let mut range = block.range(early);
        block.copy_first(&range, Which::Before(early));
        let own = block.own_row(&range, early);
        block.stamp_landed();
        self.wait(block);

        k.note("the queries, the token's own row, and the position, which is right now");
        let (position, loaded) = (block.position(), block.load());
        block.copy_own(&own);
        block.stage(loaded);
        let position = position.broadcast();
        k.when(position.ne(early), || block.start_again(&mut range, position));
        (range, position)
    }

    /// The same of one of several columns, all of it behind the wait.
    fn begin_columns<'k>(&self, block: &Block<'_, 'k>) -> (Range<'k>, U32<'k>) {
        self.wait(block);
        let position = block.position().broadcast();
        let range = block.range(position);
        block.copy_first(&range, Which::UpTo(position));
        block.commit_first();
        block.stage(block.load());
        (range, position)
    }

    fn wait(&self, block: &Block<'_, '_>) {
        if self.chained {
            block.k.grid_wait();
        }
        block.stamp(Stamp::Waited);
        if self.chained && self.trigger != Trigger::First {
            block.k.grid_trigger();
        }
    }
}

/// Attention over a range of the positions, not yet divided by the sum of the weights.
struct Part {
    max: f64,
    sum: f64,
    values: Vec<f64>,
}

fn attend(q: &[f32], [keys, values]: [&[f16]; 2], range: std::ops::Range<usize>, scale: f32) -> Part {
    let dim = q.len();
    let row = |cache: &[f16], p: usize| -> Vec<f64> {
        cache[p * dim..][..dim].iter().map(|x| x.to_f32().into()).collect()
    };
    let score = |p| -> f64 {
        let dot: f64 = q.iter().zip(row(keys, p)).map(|(&q, k)| f64::from(q) * k).sum();
        dot * f64::from(scale) * std::f64::consts::LOG2_E
    };
    let scores: Vec<f64> = range.clone().map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut part = Part { max, sum: 0.0, values: vec![0.0; dim] };
    for (p, score) in range.zip(scores) {
        let weight = (score - max).exp2();
        part.sum += weight;
        for (sum, v) in part.values.iter_mut().zip(row(values, p)) {
            *sum += weight * v;
        }
    }
    part
}

impl AttentionChained {
    /// How many ranges `n` positions are split into, and the positions of each but the last: as many as leave each warp
    /// a tile, but at most `splits`.
    fn split(&self, n: usize, splits: usize) -> (usize, usize) {
        let tiles = n.div_ceil(TILE as usize);
        let warps = self.warps() as usize;
        let used = if tiles <= ALONE as usize * warps { 1 } else { tiles.div_ceil(warps).min(splits) };
        let share = tiles.div_ceil(used);
        (tiles.div_ceil(share), share * TILE as usize)
    }
}

/// What the threads of a block know from the start.
struct Block<'a, 'k> {
    k: Builder<'k>,
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
struct Range<'k> {
    first: Var<'k, u32>,
    count: Var<'k, u32>,
    used: Var<'k, u32>,
}

impl<'k> Range<'k> {
    fn set(&mut self, to: &Range<'k>) {
        self.first.set(&to.first);
        self.count.set(&to.count);
        self.used.set(&to.used);
    }

    fn is_empty(&self) -> Pred<'k> {
        self.count.get().eq(0)
    }
}

/// Which rows of a tile to bring.
#[derive(Clone, Copy)]
enum Which<'k> {
    /// Those before this position, which were there before this token began. Rows past it become zero: they count
    /// nothing, but must be numbers.
    Before(U32<'k>),
    /// All up to this position; rows past it become its own.
    UpTo(U32<'k>),
}

/// The token's own row of keys and values, for the lanes that copy it: those of the warp in whose first tiles it is.
struct OwnRow<'k> {
    mine: Pred<'k>,
    from: [Ptr<'k, f16, Read>; 2],
    to: [Ptr<'k, f16, Shared>; 2],
}

impl<'a, 'k> Block<'a, 'k> {
    fn new(k: Builder<'k>, def: &'a AttentionChained, a: &'a AttentionChainedArgs<Dev<'k>>) -> Self {
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
    fn stamp(&self, stamp: Stamp) {
        if self.def.profile {
            stamp.leave(self.k, self.k.tid().eq(0), self.a.stamps);
        }
    }

    /// Where the kernel profiles, its first warp waits for its first tiles: they become a group of copies of their own.
    fn stamp_landed(&self) {
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
    fn position(&self) -> U32<'k> {
        self.column.of(self.a.state, LEN as u32).at(POSITION).fresh().ld().min(self.a.ctx - 1)
    }

    /// This block's tiles once the token is at `position`: see [`AttentionChained::split`].
    fn range(&self, position: U32<'k>) -> Range<'k> {
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
    fn copy_first(&self, range: &Range<'k>, which: Which<'k>) {
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

    fn own_row(&self, range: &Range<'k>, position: U32<'k>) -> OwnRow<'k> {
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
    fn copy_own(&self, own: &OwnRow<'k>) {
        self.k.when(own.mine, || own.from.iter().zip(own.to).for_each(|(from, to)| from.copy16(to)));
        self.commit_first();
    }

    /// The groups of copies of the first tiles: all that was asked for so far is in the first.
    fn commit_first(&self) {
        (0..2 * self.def.depth()).for_each(|_| self.k.commit_copies());
    }

    /// Brings the first tiles of this position, where others are.
    fn start_again(&self, range: &mut Range<'k>, position: U32<'k>) {
        let k = self.k;
        k.wait_copies(0);
        k.warp_barrier();
        range.set(&self.range(position));
        self.copy_first(range, Which::UpTo(position));
        k.commit_copies();
        k.wait_copies(0);
    }

    /// Asks for the block's queries, four dimensions at a time.
    fn load(&self) -> Vec<Four<'k>> {
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
    fn stage(&self, fours: Vec<Four<'k>>) {
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
    fn attend(&self, sum: &mut Sum<'k>, range: &Range<'k>, position: U32<'k>) {
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
    fn leave(&self, sum: &Sum<'k>, range: &Range<'k>) {
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
    fn store_result(&self, range: &Range<'k>) {
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
    fn store_part(&self, range: &Range<'k>) {
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

/// Four dimensions of a query of the block; zero past the last query.
struct Four<'k> {
    query: U32<'k>,
    dim: U32<'k>,
    q: [Var<'k, f32>; 4],
}

/// Of some positions, for one query: the maximum in log2, the sum of the weights, and four of the weighted values.
struct Total<'k> {
    max: F32<'k>,
    weights: F32<'k>,
    values: [F32<'k>; 4],
}

impl<'k> Total<'k> {
    /// All of them, at their common maximum, added in their order. Those whose maximum is the least float count
    /// nothing.
    fn of(parts: &[Total<'k>]) -> Total<'k> {
        let max = parts.iter().map(|part| part.max).reduce(|a, b| a.max(b)).expect("there are parts");
        let factors: Vec<_> = parts.iter().map(|part| (part.max - max).ex2()).collect();
        let sum = |of: &dyn Fn(&Total<'k>) -> F32<'k>| {
            let rest = parts.iter().zip(&factors).skip(1);
            rest.fold(of(&parts[0]) * factors[0], |sum, (part, &factor)| of(part).fma(factor, sum))
        };
        let values = from_fn(|i| sum(&|part| part.values[i]));
        Total { max, weights: sum(&|part| part.weights), values }
    }
}

/// Quotient and remainder by a number known now, where `v * by` is below 2^32: `ptxas` divides by a literal as slowly
/// as by anything else.
fn divided(v: U32<'_>, by: u32) -> (U32<'_>, U32<'_>) {
    if by.is_power_of_two() {
        return (v >> by.ilog2(), v & (by - 1));
    }
    let quotient = v.mul_hi((u32::MAX / by) + 1);
    (quotient, v - quotient * by)
}

/// Four numbers as halves, and what rounding them lost as halves: two to a word.
fn halves(v: [F32<'_>; 4]) -> [[U32<'_>; 2]; 2] {
    let high = v.map(|v| v.cvt::<f16>());
    let low: [_; 4] = from_fn(|i| (v[i] - high[i].cvt::<f32>()).cvt::<f16>());
    [high, low].map(|h| [h[0].pack(h[1]).bits(), h[2].pack(h[3]).bits()])
}

/// What a warp has summed: for query `g = lane / 4` the maximum and this lane's part of the weights, and 16
/// dimensions each the weighted values of queries `2t` and `2t + 1`, dimensions `g` and `g + 8`.
struct Sum<'k> {
    max: Var<'k, f32>,
    weights: Var<'k, f32>,
    values: Vec<Sums<'k, f32>>,
}

impl<'k> Sum<'k> {
    /// The least float stands for no maximum yet: infinity less itself would be NaN.
    fn new(k: Builder<'k>, def: &AttentionChained) -> Self {
        let values = (0..def.head_dim / 16).map(|_| Sums::zero(k)).collect();
        Sum { max: k.var(f32::MIN), weights: k.var(0.0), values }
    }

    /// The weights of these scores, relative to the new maximum, to which it brings the sums.
    fn weigh(&mut self, k: Builder<'k>, scores: [F32<'k>; 4]) -> [[U32<'k>; 2]; 2] {
        let most = scores.into_iter().reduce(|a, b| a.max(b)).expect("there are four");
        let max = lanes_max(3, most).max(&self.max);
        let shrink = (self.max.get() - max).ex2();
        self.max.set(max);
        let weights = scores.map(|score| (score - max).ex2());
        self.weights *= shrink;
        self.weights += (weights[0] + weights[1]) + (weights[2] + weights[3]);
        let own = (k.lane() & 3) * 8;
        let shrink = [shrink.shfl_idx(own), shrink.shfl_idx(own + 4)];
        for values in &mut self.values {
            for (i, value) in values.0.iter_mut().enumerate() {
                *value *= shrink[i % 2];
            }
        }
        halves(weights)
    }

    /// Adds the values of a tile, weighted. `tile` is where the lane finds its matrices.
    fn add(&mut self, tile: Ptr<'k, f16, Shared>, [high, low]: [[U32<'k>; 2]; 2]) {
        for (step, sums) in (0..).zip(&mut self.values) {
            let [a0, a1, a2, a3] = tile.at(16 * step).ldmatrix4_trans();
            let a = A([a0, a1, a2, a3]);
            sums.add_f16(a, B(high));
            sums.add_f16(a, B(low));
        }
    }
}

impl Variant for AttentionChained {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let (full, alone) = (TILE * self.tiles(), ALONE * self.positions());
        let plain = ChainedCase { position: 0, ctx: 1, splits: 1, kv_heads: 1, idle: 0, outlier: 1.0 };
        // One position; a whole tile among blocks without work, and one position more; a position past the cache,
        // which ends with it; one position more than a block holds, and than it takes alone; outliers.
        let short = [
            ChainedCase { ..plain },
            ChainedCase { position: 15, ctx: 40, splits: 2, kv_heads: 2, idle: 1, ..plain },
            ChainedCase { position: 16, ctx: 17, ..plain },
            ChainedCase { position: 50, ctx: 31, ..plain },
            ChainedCase { position: full, ctx: full + 3, splits: 3, ..plain },
            ChainedCase { position: alone, ctx: alone + 3, splits: 3, ..plain },
            ChainedCase { position: 100, ctx: 101, outlier: 100.0, ..plain },
        ];
        // As many positions as a block takes alone; more than that in the only range, and in two; parts that are merged
        // in several steps. The number of queries changes nothing here, nor that of dimensions in the last.
        let long = [
            ChainedCase { position: alone - 1, ctx: alone, splits: 2, ..plain },
            ChainedCase { position: alone + 100, ctx: 2 * alone, ..plain },
            ChainedCase { position: 2 * alone + 40, ctx: 3 * alone, splits: 2, ..plain },
            ChainedCase {
                position: 9 * self.positions() - 17,
                ctx: 9 * self.positions(),
                splits: 12,
                ..plain
            },
        ];
        let count = match (self.queries, self.head_dim) {
            (1, 128) => 4,
            (1, _) => 3,
            _ => 0,
        };
        let long = long.into_iter().take(count);
        short.into_iter().chain(long).map(|case| case.filled(self, seed)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct ChainedCase {
    position: u32,
    ctx: u32,
    splits: u32,
    kv_heads: u32,
    /// Blocks without work at any position.
    idle: u32,
    /// What every 37th number of the caches is multiplied by, and of the queries divided by.
    outlier: f32,
}

impl ChainedCase {
    fn filled(&self, kernel: &AttentionChained, seed: u64) -> Case {
        let mut random = Random(seed);
        let dim = kernel.head_dim as usize;
        let (heads, units) = (self.kv_heads * kernel.queries, self.kv_heads * kernel.groups());
        // The last column is where the only one would be.
        let columns = kernel.columns;
        let position = |column: u32| self.position.saturating_sub(columns - 1 - column);
        let state = (0..columns).flat_map(|i| [0, position(i), 0, 0, 0, 0, 0, 0]).collect();
        let mut numbers = |n: u32, factor: f32| {
            let mut v = random.units(n as usize * dim);
            v.chunks_mut(dim).for_each(|row| row.iter_mut().step_by(37).for_each(|x| *x *= factor));
            v
        };
        let q = numbers(columns * heads, 1.0 / self.outlier);
        let mut cache = || {
            CpuArg::F16(
                numbers(self.kv_heads * self.ctx, self.outlier).into_iter().map(f16::from_f32).collect(),
            )
        };
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::F32(q),
            cache(),
            cache(),
            CpuArg::U16(vec![0; (columns * heads) as usize * dim]),
            CpuArg::F32(vec![0.0; (columns * heads) as usize * dim / EIGHT as usize]),
            CpuArg::F32(vec![0.0; (columns * heads * self.splits * kernel.part()) as usize]),
            CpuArg::U32(vec![0; (columns * kernel.tickets(self.kv_heads)) as usize]),
        ];
        args.extend([heads, self.kv_heads, self.ctx, self.splits].map(CpuArg::scalar));
        // A larger factor than models have, so that weights differ by powers of ten.
        args.push(CpuArg::scalar(4.0 / (dim as f32).sqrt()));
        args.extend([columns * units * self.splits + self.idle, kernel.shared()].map(CpuArg::scalar));
        args.push(CpuArg::U64(vec![0]));
        // Two halves hold 22 bits of a query and of a weight; sums of some hundred products add their roundings.
        Case { label: format!("{self:?}"), args, bound: 1e-5 }
    }
}
