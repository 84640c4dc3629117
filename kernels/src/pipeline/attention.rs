//! Attention of one token as one kernel of the overlapped pipeline: `softmax(scale * q k^T) v`. sm_90; sm_80 without
//! overlap.
//!
//! A block processes one KV head, for up to 8 of the query heads that share it, over a range of the positions
//! (split-K). The range is divided into tiles of 16 positions, which the warps process round-robin. A warp loads its
//! own tiles into shared memory with `cp.async` and does not wait for other warps. As many tiles as fit are resident
//! at a time; a longer range streams through the same slots. Of the first tiles, only the row of the current token is
//! written by the preceding kernels. All other rows were there before this token began, and are loaded before
//! `griddepcontrol.wait`. A tile lies in one [page](crate::cache) of the cache.
//!
//! Scores are `mma.m16n8k16` with f16 inputs and f32 sums. The 8 queries, rounded to f16, are rows 0 to 7 of the left
//! matrix; the rounding residuals are rows 8 to 15, so that the sum of both rows is as exact as f32. A lane's scores
//! already have the layout of the right matrix of the second product, `v^T p`. It is computed once for the rounded
//! weights and once for their residuals.
//!
//! Each warp keeps the maximum `m` of its scores, the sum of `2^(score - m)` and the weighted values (online
//! softmax). The warps of a block are then rescaled to their common maximum and added. If one block processes all
//! positions, that is the result. Otherwise the splits of a head store partial results in memory. Warp `i` of every
//! split holds the same dimensions of the same queries and draws its own ticket; the last one adds all splits in
//! their order, so the result is deterministic.
//!
//! With a window, the tiles begin with the one that holds the first position that counts; the positions before it in
//! that tile have no weight.
//!
//! Each token of a batch has its own position and its own blocks, which all read the same cache. The rows of the
//! preceding tokens of the batch come from the preceding kernel, so nothing is prefetched.

mod block;
mod cases;
mod sums;

use super::batch::BatchItem;
use super::block_float::{self, BFP_BLOCK, BlockFloat};
use super::plan::{MAX_BATCH, Timestamp};
use crate::cache::{self, OwnRows};
use crate::contract::Contract;
use crate::state::{LEN, POSITION};
use block::{AttentionBlock, RowFilter, TileRange};
use ptx_gen::*;
use sums::OnlineSoftmax;
pub(crate) use sums::divided;

args! {
    /// Arguments of [`PipelinedAttention`].
    pub struct PipelinedAttentionArgs {
        /// `[batch, 8]`: see [`state`](crate::state); positions up to `POSITION` count
        state: In<u32>,
        /// `[batch, heads, head_dim]`, in the range of f16
        q: In<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: see [`cache`]
        k_cache: In<f16>,
        /// As `k_cache`
        v_cache: In<f16>,
        /// `[batch, heads, head_dim]` 16-bit integers: see [`block_float`](super::block_float)
        y: Out<u16>,
        /// `[batch, heads, head_dim / 8]`: their block scales
        y_scale: Out<f32>,
        /// `[batch, heads, splits, head_dim]` weighted values, then `[batch, heads, splits, head_dim / 4, 2]` maximum
        /// in log2 and sum of the weights, for each four values: the partial results if there are several splits
        partials: InOut<f32>,
        /// `[batch, kv_heads * groups, 8]`, one per warp: zero before and after
        ticket: InOut<u32>,
        /// Query heads.
        heads: u32,
        /// KV heads.
        kv_heads: u32,
        /// Positions of the cache.
        ctx: u32,
        /// The maximum number of splits of the positions.
        splits: u32,
        /// Factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
        /// Blocks; idle ones execute the wait too.
        blocks: u32,
        /// Bytes of shared memory of a block: the same as the other kernels of the pipeline.
        shared: u32,
        /// `[blocks, 8]` if the kernel profiles: see [`Timestamp`]
        timestamps: Out<u64>,
    }
}

/// The attention kernel of the pipeline, for any sufficient number of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipelinedAttention {
    /// Dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Query heads that share a KV head, at most 16.
    pub queries: u32,
    /// The latest positions that count, the token's own included; all of them without a window.
    pub window: Option<u32>,
    /// Whether it overlaps with the previous kernel and waits for its end, and lets the next one start at once
    /// (programmatic dependent launch): sm_90.
    pub overlap: bool,
    /// Bytes of shared memory that a block may have. They determine its warps and tiles.
    pub memory: u32,
    /// Tokens per batch.
    pub batch: u32,
    /// Whether each block records [`Timestamp`]s.
    pub profile: bool,
}

/// Shared memory of a block if two blocks share an SM of sm_90.
const HALF_SHARED: u32 = 115_712;
/// Positions of a tile: the inner dimension of `mma.m16n8k16`.
const TILE: u32 = 16;
/// Query heads of a block: half of the rows of an `mma`.
const QUERIES: u32 = 8;
/// The maximum number of warps: at 80 registers per thread, they leave room for a product of 12 warps and its
/// producer in each of the four SM partitions, which have 16,384 registers each.
const MAX_WARPS: u32 = 8;
/// The maximum number of resident tiles per warp.
const MAX_DEPTH: u32 = 3;
/// The maximum shared memory besides tiles and queries: maximum and sum of each warp and query.
const MAX_STATS_BYTES: u32 = 8 * QUERIES * MAX_WARPS;
/// Up to this number of tiles per warp, one block processes all positions of a head: that is faster than merging the
/// results of two.
const MAX_UNSPLIT_TILES: u32 = 3;
/// Partial results that a thread has in flight when it merges.
const PARTIALS_IN_FLIGHT: u32 = 8;

impl PipelinedAttention {
    /// The fastest variant.
    pub const fn new(head_dim: u32, queries: u32) -> PipelinedAttention {
        PipelinedAttention {
            head_dim,
            queries,
            window: None,
            overlap: true,
            memory: HALF_SHARED,
            batch: 1,
            profile: false,
        }
    }

    /// The variant for devices older than sm_90, with the shared memory that all of them have.
    pub const fn without_overlap(head_dim: u32, queries: u32) -> PipelinedAttention {
        let memory = 99 << 10;
        PipelinedAttention {
            overlap: false,
            memory,
            ..PipelinedAttention::new(head_dim, queries)
        }
    }

    /// The same for a batch of tokens.
    pub const fn with_batch(self, batch: u32) -> PipelinedAttention {
        PipelinedAttention { batch, ..self }
    }

    /// The same over a window of the latest positions.
    pub const fn with_window(self, window: u32) -> PipelinedAttention {
        PipelinedAttention {
            window: Some(window),
            ..self
        }
    }

    /// Blocks that share a KV head, each with up to 8 of its query heads.
    pub fn groups(&self) -> u32 {
        self.queries.div_ceil(QUERIES)
    }

    /// The stride of a row in shared memory, in bytes: an odd multiple of 16 bytes, so that eight rows use different
    /// banks.
    fn row_bytes(&self) -> u32 {
        2 * self.head_dim + 16
    }

    /// Bytes of the keys, or of the values, of a tile.
    fn kv_tile_bytes(&self) -> u32 {
        TILE * self.row_bytes()
    }

    /// 16-byte chunks of a row.
    fn row_chunks(&self) -> u32 {
        self.head_dim / 8
    }

    /// Tiles that fit a block, at least one; [`KernelDef::grid`] refuses if not even one fits.
    fn tiles_that_fit(&self) -> u32 {
        (self
            .memory
            .saturating_sub(2 * QUERIES * self.row_bytes() + MAX_STATS_BYTES)
            / (2 * self.kv_tile_bytes()))
        .max(1)
    }

    /// Warps of a block.
    fn warps(&self) -> u32 {
        self.tiles_that_fit().min(MAX_WARPS)
    }

    /// Resident tiles of a block.
    fn tiles(&self) -> u32 {
        self.tiles_that_fit().min(MAX_DEPTH * self.warps())
    }

    /// Resident tiles per warp; the last warps may have one less.
    fn depth(&self) -> u32 {
        self.tiles().div_ceil(self.warps())
    }

    /// Bytes of shared memory that a block needs: tiles, queries, maximum and sum of each warp.
    pub fn shared(&self) -> u32 {
        self.tiles() * 2 * self.kv_tile_bytes()
            + 2 * QUERIES * self.row_bytes()
            + 8 * QUERIES * self.warps()
    }

    /// The smallest split: one tile per warp.
    pub fn min_split_positions(&self) -> u32 {
        TILE * self.warps()
    }

    /// The length of a split's partial result of a query.
    pub fn partial_len(&self) -> u32 {
        self.head_dim + self.head_dim / 2
    }

    /// Tickets per token: one for each warp of the blocks that share the same queries.
    pub fn tickets(&self, kv_heads: u32) -> u32 {
        kv_heads * self.groups() * MAX_WARPS
    }
}

impl KernelDef for PipelinedAttention {
    type Args<S: Side> = PipelinedAttentionArgs<S>;

    fn name(&self) -> String {
        let PipelinedAttention {
            head_dim,
            queries,
            window,
            overlap,
            memory,
            batch,
            profile,
        } = self;
        let window = window.map_or(String::new(), |window| format!("_window_{window}"));
        let how = if *overlap { "first" } else { "plain" };
        let memory = if *memory == HALF_SHARED {
            String::new()
        } else {
            format!("_{memory}")
        };
        let batch = if *batch == 1 {
            String::new()
        } else {
            format!("_batch_{batch}")
        };
        let profile = if *profile { "_profile" } else { "" };
        format!("attention_pipelined_{head_dim}_{queries}_{how}{window}{memory}{batch}{profile}")
    }

    fn block(&self) -> u32 {
        32 * self.warps()
    }

    /// As many as leave 80 registers per thread, if those are enough.
    fn blocks_per_sm(&self) -> Option<u32> {
        (self.overlap && matches!(self.head_dim, 64 | 128)).then_some(24 / self.warps())
    }

    fn grid(&self, a: &PipelinedAttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 2 * QUERIES)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)?;
        self.range("the kernel's batch", self.batch, 1, MAX_BATCH)?;
        let batched = |name, found, formula, factors: &[u32]| {
            super::batched(self, self.batch, name, found, formula, factors)
        };
        self.exactly("state", a.state, self.batch as usize * LEN)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.require(a.heads == a.kv_heads * self.queries, || {
            format!(
                "heads is {}, must be kv_heads * queries = {}",
                a.heads,
                a.kv_heads * self.queries
            )
        })?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.range("splits", a.splits, 1, 1 << 12)?;
        self.require(a.k_cache / 8 <= u32::MAX as usize, || {
            format!(
                "k_cache has {} elements, must have less than 2^35",
                a.k_cache
            )
        })?;
        batched("q", a.q, "heads * head_dim", &[a.heads, self.head_dim])?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_own(self, (name, found), [a.ctx, a.kv_heads, self.head_dim])?;
        }
        let y = [a.y, a.y_scale];
        super::bfp_lengths(
            self,
            self.batch,
            "y",
            y,
            "head_dim * heads",
            &[self.head_dim, a.heads],
        )?;
        batched(
            "partials",
            a.partials,
            "heads * splits * head_dim * 3 / 2",
            &[a.heads, a.splits, self.partial_len()],
        )?;
        batched(
            "ticket",
            a.ticket,
            "kv_heads * groups * 8",
            &[self.tickets(a.kv_heads)],
        )?;
        let needed = [self.batch, a.kv_heads, self.groups(), a.splits];
        self.range(
            "blocks",
            a.blocks,
            needed.into_iter().fold(1, u32::saturating_mul),
            1 << 16,
        )?;
        self.range("the kernel's memory", self.memory, self.shared(), 1 << 20)?;
        self.range("shared", a.shared, self.shared(), self.memory)?;
        super::check_timestamps(self, self.profile, a.blocks, a.timestamps)?;
        Ok(Grid {
            shared: a.shared,
            ..Grid::line(a.blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: PipelinedAttentionArgs<Dev<'k>>) {
        if self.overlap {
            k.grid_trigger();
        }
        k.section(
            "pipeline/attention/work",
            "the block's heads, and the lane's part of their rows",
        );
        let block = AttentionBlock::new(k, self, &a);
        block.timestamp(Timestamp::Begun);
        block.timestamp(Timestamp::SmId);

        let (range, position) = if self.batch == 1 {
            self.begin(&block)
        } else {
            self.begin_batch(&block)
        };
        block.timestamp(Timestamp::Ready);

        k.section("pipeline/attention/attend", "attend the warp's tiles");
        let mut sums = OnlineSoftmax::new(k, self);
        block.attend(&mut sums, &range, position);
        block.timestamp(Timestamp::Multiplied);
        k.section(
            "pipeline/attention/share_sums",
            "the warp's sums into shared memory",
        );
        block.store_sums(&sums, &range);
        k.barrier();
        k.section("pipeline/attention/block_sums", "the sums of the block");
        k.when(!range.is_empty(), || {
            k.when(range.used.get().eq(1), || block.store_result(&range))
                .otherwise(|| block.store_partial(&range));
        });
        block.timestamp(Timestamp::Stored);
    }

    fn reference(&self, a: PipelinedAttentionArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let (ctx, splits, heads) = (a.ctx as usize, a.splits as usize, a.heads as usize);
        let (values, others) = a.partials.split_at_mut(a.y.len() * splits);
        let scales = a.y_scale.chunks_mut(dim / BFP_BLOCK as usize);
        for (head, (y, y_scale)) in a.y.chunks_mut(dim).zip(scales).enumerate() {
            let n = ctx.min(a.state[head / heads * LEN + POSITION as usize] as usize + 1);
            let start = n - self.window.map_or(n, |window| n.min(window as usize));
            let base = start / TILE as usize * TILE as usize;
            let (used, share) = self.split(n - base, splits);
            let q = &a.q[head * dim..][..dim];
            let kv_head = head % heads / self.queries as usize;
            let cache = CpuCache {
                caches: [a.k_cache, a.v_cache],
                kv_heads: a.kv_heads as usize,
                kv_head,
            };
            let whole = attend(q, &cache, start..n, a.scale);
            let result: Vec<f64> = whole.values.iter().map(|v| v / whole.sum).collect();
            let (whole_numbers, scales) = block_float::encode(&result);
            y.copy_from_slice(&whole_numbers);
            y_scale.copy_from_slice(&scales);
            for split in (0..used).filter(|_| used > 1) {
                let at = |split: usize| (base + split * share).clamp(start, n);
                let partial = attend(q, &cache, at(split)..at(split + 1), a.scale);
                let at = head * splits + split;
                for pair in others[at * dim / 2..][..dim / 2].chunks_mut(2) {
                    pair.copy_from_slice(&[partial.max as f32, partial.sum as f32]);
                }
                for (value, v) in values[at * dim..][..dim].iter_mut().zip(partial.values) {
                    *value = v as f32;
                }
            }
        }
    }
}

impl PipelinedAttention {
    /// Loads the first tiles and the queries; returns the block's tiles and the token's position.
    fn begin<'k>(&self, block: &AttentionBlock<'_, 'k>) -> (TileRange<'k>, U32<'k>) {
        let k = block.k;
        k.section(
            "pipeline/attention/early_position",
            "the position may still be the previous token's, which is smaller",
        );
        let early = block.position().broadcast();
        let mut range = block.range(early);
        block.copy_first(&range, RowFilter::Before(early));
        let own = block.own_row(&range, early);
        block.timestamp_landed();
        self.wait(block);

        k.section(
            "pipeline/attention/queries_and_row",
            "the queries, the token's own row, and the final position",
        );
        let (position, loaded) = (block.position(), block.load());
        block.copy_own(&own);
        block.stage(loaded);
        let position = position.broadcast();
        k.section(
            "pipeline/attention/corrected_tiles",
            "where the position was too small: the right tiles",
        );
        k.when(position.ne(early), || {
            block.start_again(&mut range, position)
        });
        (range, position)
    }

    /// The same for a batch: everything is loaded after the wait.
    fn begin_batch<'k>(&self, block: &AttentionBlock<'_, 'k>) -> (TileRange<'k>, U32<'k>) {
        block.k.section(
            "pipeline/attention/batch_wait",
            "several tokens: all of it behind the wait",
        );
        self.wait(block);
        let position = block.position().broadcast();
        let range = block.range(position);
        block.copy_first(&range, RowFilter::UpTo(position));
        block.commit_first();
        block.stage(block.load());
        (range, position)
    }

    fn wait(&self, block: &AttentionBlock<'_, '_>) {
        if self.overlap {
            block.k.section(
                "pipeline/attention/overlap_wait",
                "nothing above reads what earlier kernels write, except the position and the cache",
            );
            block.k.grid_wait();
        }
        block.timestamp(Timestamp::Waited);
    }
}

/// Attention over a range of the positions, before the division by the sum of the weights.
struct Partial {
    max: f64,
    sum: f64,
    values: Vec<f64>,
}

/// Keys and values of a head.
struct CpuCache<'a> {
    caches: [&'a [f16]; 2],
    kv_heads: usize,
    kv_head: usize,
}

fn attend(q: &[f32], of: &CpuCache<'_>, range: std::ops::Range<usize>, scale: f32) -> Partial {
    let (dim, [keys, values]) = (q.len(), of.caches);
    let row = |cache: &[f16], p: usize| -> Vec<f64> {
        cache[cache::own_row(of.kv_heads, of.kv_head, p) * dim..][..dim]
            .iter()
            .map(|x| x.to_f32().into())
            .collect()
    };
    let score = |p| -> f64 {
        let dot: f64 = q
            .iter()
            .zip(row(keys, p))
            .map(|(&q, k)| f64::from(q) * k)
            .sum();
        dot * f64::from(scale) * std::f64::consts::LOG2_E
    };
    let scores: Vec<f64> = range.clone().map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut partial = Partial {
        max,
        sum: 0.0,
        values: vec![0.0; dim],
    };
    for (p, score) in range.zip(scores) {
        let weight = (score - max).exp2();
        partial.sum += weight;
        for (sum, v) in partial.values.iter_mut().zip(row(values, p)) {
            *sum += weight * v;
        }
    }
    partial
}

impl PipelinedAttention {
    /// The number of splits of `n` positions, and the positions of each but the last: one tile per warp, but at most
    /// `splits`.
    fn split(&self, n: usize, splits: usize) -> (usize, usize) {
        let tiles = n.div_ceil(TILE as usize);
        let warps = self.warps() as usize;
        let used = if tiles <= MAX_UNSPLIT_TILES as usize * warps {
            1
        } else {
            tiles.div_ceil(warps).min(splits)
        };
        let share = tiles.div_ceil(used);
        (tiles.div_ceil(share), share * TILE as usize)
    }
}
