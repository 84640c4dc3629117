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

mod block;
mod cases;
mod sums;

use super::column::Column;
use super::eights::{self, EIGHT, Eights};
use super::plan::{MOST_COLUMNS, Stamp, Trigger};
use crate::contract::Contract;
use crate::state::{LEN, POSITION};
use block::{Block, Range, Which};
use ptx_gen::*;
use sums::Sum;

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
