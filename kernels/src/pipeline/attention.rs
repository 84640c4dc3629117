//! Attention of one token as one kernel of the overlapped pipeline: `softmax(scale * q k^T) v`. It
//! runs on sm_90, and on sm_80 without overlap.
//!
//! # Splits and tiles
//!
//! A block processes one KV head over a range of the positions, for up to 8 of the query heads that
//! share it. This is split-K, as in Flash-Decoding (Dao et al., 2023). The range is divided into
//! tiles of 16 positions, which the warps process round-robin. A warp loads its own tiles into
//! shared memory with `cp.async` and does not wait for other warps. As many tiles as fit are
//! resident at a time, and a longer range streams through the same slots. A tile lies in one
//! [page](crate::cache) of the cache.
//!
//! # Overlap
//!
//! In the first tiles, the preceding kernels write only the row of the current token. All other
//! rows were complete before this token began, so they are loaded before `griddepcontrol.wait`.
//!
//! # Arithmetic
//!
//! Scores are computed by `mma.m16n8k16` with `f16` inputs and `f32` sums. The 8 queries, rounded
//! to `f16`, are rows 0 to 7 of the left matrix. Their rounding residuals are rows 8 to 15, so that
//! the sum of both rows is as exact as `f32`. A lane's scores already have the layout of the right
//! matrix of the second matmul, `v^T p`. It is computed once for the rounded weights and once for
//! their residuals.
//!
//! Each warp keeps the maximum `m` of its scores, the sum of `2^(score - m)` and the weighted
//! values (online softmax, Milakov and Gimelshein, 2018, arXiv:1805.02867). The warps of a block
//! are then rescaled to their common maximum and added. If one block processes all positions, that
//! is the result. Otherwise the splits of a head store partial results in memory. Warp `i` of every
//! split holds the same dimensions of the same queries and draws its own ticket. The last of these
//! warps adds all splits in their order, so the result is deterministic.
//!
//! # Windows and batches
//!
//! With a window, the tiles begin with the one that contains the first position of the window. The
//! earlier positions in that tile have no weight.
//!
//! Each token of a batch has its own position and its own blocks, which all read the same cache.
//! The rows of the preceding tokens of the batch are written by the preceding kernel, so nothing is
//! prefetched.

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
        /// `[batch, 8]`: the decode states, see [`state`](crate::state). A token attends to the
        /// positions up to its `POSITION`.
        state: In<u32>,
        /// `[batch, heads, head_dim]`: the queries, in the range of `f16`
        q: In<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: In<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: In<f16>,
        /// `[batch, heads, head_dim]`: the results as 16-bit integers, see
        /// [`block_float`](super::block_float)
        y: Out<u16>,
        /// `[batch, heads, head_dim / 8]`: the block scales of the results
        y_scale: Out<f32>,
        /// `[batch, heads, splits, head_dim]`: the weighted values of the splits, if there are
        /// several. `[batch, heads, splits, head_dim / 4, 2]` follow: for each four values, the
        /// maximum in log2 and the sum of the weights.
        partials: InOut<f32>,
        /// `[batch, kv_heads * groups, 8]`: the tickets, one per warp, which must be zero before
        /// the launch and are zero after it
        ticket: InOut<u32>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of positions of the cache.
        ctx: u32,
        /// The maximum number of splits of the positions.
        splits: u32,
        /// The factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
        /// The number of blocks. Idle blocks also execute the wait.
        blocks: u32,
        /// The bytes of shared memory of a block. Pass the amount of the other kernels of the
        /// pipeline.
        shared: u32,
        /// `[blocks, 8]`: timestamps, if the kernel profiles. See [`Timestamp`].
        timestamps: Out<u64>,
    }
}

/// Kernel that computes attention of the pipeline, with any sufficient number of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipelinedAttention {
    /// The number of dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// The number of query heads that share a KV head, at most 16.
    pub queries: u32,
    /// The size of the window in positions, including the token's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// Whether the kernel starts during the previous one, waits for it, and lets the next one start
    /// immediately (programmatic dependent launch, sm_90).
    pub overlap: bool,
    /// The maximum number of bytes of shared memory of a block. It determines the number of warps
    /// and tiles.
    pub memory: u32,
    /// The number of tokens per batch.
    pub batch: u32,
    /// Whether each block records [`Timestamp`]s.
    pub profile: bool,
}

/// The bytes of shared memory of a block if two blocks share an SM of sm_90.
const HALF_SHARED: u32 = 115_712;
/// The number of positions of a tile: the inner dimension of `mma.m16n8k16`.
const TILE: u32 = 16;
/// The number of query heads of a block: half of the rows of an `mma`.
const QUERIES: u32 = 8;
/// The maximum number of warps. A GEMV block with 12 warps and a producer must fit next to this
/// block. At 80 registers per thread, 8 warps leave enough registers for it in each of the four SM
/// partitions, which have 16,384 registers each.
const MAX_WARPS: u32 = 8;
/// The maximum number of resident tiles per warp.
const MAX_DEPTH: u32 = 3;
/// The maximum bytes of shared memory besides tiles and queries: maximum and sum of each warp and
/// query.
const MAX_STATS_BYTES: u32 = 8 * QUERIES * MAX_WARPS;
/// The maximum number of tiles per warp for which one block processes all positions of a head. Up
/// to this number, that is faster than merging the results of two blocks.
const MAX_UNSPLIT_TILES: u32 = 3;
/// The number of partial results that a thread has in flight when it merges.
const PARTIALS_IN_FLIGHT: u32 = 8;

impl PipelinedAttention {
    /// Returns the fastest variant.
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

    /// Returns the variant for devices older than sm_90, with the shared memory that all of them
    /// have.
    pub const fn without_overlap(head_dim: u32, queries: u32) -> PipelinedAttention {
        let memory = 99 << 10;
        PipelinedAttention {
            overlap: false,
            memory,
            ..PipelinedAttention::new(head_dim, queries)
        }
    }

    /// Returns this kernel for a batch of tokens.
    pub const fn with_batch(self, batch: u32) -> PipelinedAttention {
        PipelinedAttention { batch, ..self }
    }

    /// Returns this kernel for a window of the latest positions.
    pub const fn with_window(self, window: u32) -> PipelinedAttention {
        PipelinedAttention {
            window: Some(window),
            ..self
        }
    }

    /// Returns the number of blocks that share a KV head, each with up to 8 of its query heads.
    pub fn groups(&self) -> u32 {
        self.queries.div_ceil(QUERIES)
    }

    /// Returns the stride of a row in shared memory, in bytes. It is an odd multiple of 16 bytes,
    /// so that eight consecutive rows use different banks.
    fn row_bytes(&self) -> u32 {
        2 * self.head_dim + 16
    }

    /// Returns the bytes of the keys, or of the values, of a tile.
    fn kv_tile_bytes(&self) -> u32 {
        TILE * self.row_bytes()
    }

    /// Returns the number of 16-byte chunks of a row.
    fn row_chunks(&self) -> u32 {
        self.head_dim / 8
    }

    /// Returns the number of tiles that fit in a block, at least one. [`KernelDef::grid`] returns
    /// an error if not even one fits.
    fn tiles_that_fit(&self) -> u32 {
        (self
            .memory
            .saturating_sub(2 * QUERIES * self.row_bytes() + MAX_STATS_BYTES)
            / (2 * self.kv_tile_bytes()))
        .max(1)
    }

    /// Returns the number of warps of a block.
    fn warps(&self) -> u32 {
        self.tiles_that_fit().min(MAX_WARPS)
    }

    /// Returns the number of resident tiles of a block.
    fn tiles(&self) -> u32 {
        self.tiles_that_fit().min(MAX_DEPTH * self.warps())
    }

    /// Returns the number of resident tiles per warp. The last warps may have one less.
    fn depth(&self) -> u32 {
        self.tiles().div_ceil(self.warps())
    }

    /// Returns the bytes of shared memory that a block needs: tiles, queries, and maximum and sum
    /// of each warp.
    pub fn shared(&self) -> u32 {
        self.tiles() * 2 * self.kv_tile_bytes()
            + 2 * QUERIES * self.row_bytes()
            + 8 * QUERIES * self.warps()
    }

    /// Returns the number of positions of the smallest split: one tile per warp.
    pub fn min_split_positions(&self) -> u32 {
        TILE * self.warps()
    }

    /// Returns the number of elements of a split's partial result of a query.
    pub fn partial_len(&self) -> u32 {
        self.head_dim + self.head_dim / 2
    }

    /// Returns the number of tickets per token: one for each warp of the blocks that share the same
    /// queries.
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

    /// Returns the number of blocks that leaves 80 registers per thread, if those are enough.
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
            cache::check_own(self, name, found, [a.ctx, a.kv_heads, self.head_dim])?;
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
            "heads of the block, and the lane's chunk of their rows",
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

        k.section("pipeline/attention/attend", "attend to the warp's tiles");
        let mut sums = OnlineSoftmax::new(k, self);
        block.attend(&mut sums, &range, position);
        block.timestamp(Timestamp::Multiplied);
        k.section(
            "pipeline/attention/share_sums",
            "store the warp's sums in shared memory",
        );
        block.store_sums(&sums, &range);
        k.barrier();
        k.section("pipeline/attention/block_sums", "add the sums of the block");
        k.when(!range.is_empty(), || {
            // With one split there is nothing to merge, and the result is final.
            k.when(range.used.get().eq(1), || block.store_result(&range))
                .otherwise(|| block.store_partial(&range));
        });
        block.timestamp(Timestamp::Stored);
    }

    fn reference(&self, a: PipelinedAttentionArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let ctx = a.ctx as usize;
        let splits = a.splits as usize;
        let heads = a.heads as usize;
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
    /// Loads the first tiles and the queries. Returns the block's tiles and the token's position.
    fn begin<'k>(&self, block: &AttentionBlock<'_, 'k>) -> (TileRange<'k>, U32<'k>) {
        let k = block.k;
        k.section(
            "pipeline/attention/early_position",
            "early position: it may still be the previous token's, which is smaller",
        );
        // The previous kernels may not have advanced the position yet. Rows before a smaller
        // position are complete in any case, so they can be loaded now.
        let early = block.position().broadcast();
        let mut range = block.range(early);
        block.copy_first(&range, RowFilter::Before(early));
        let own = block.own_row(&range, early);
        block.timestamp_landed();
        self.wait(block);

        k.section(
            "pipeline/attention/queries_and_row",
            "load the queries, the token's own row and the final position",
        );
        let position = block.position();
        let loaded = block.load();
        block.copy_own(&own);
        block.stage(loaded);
        let position = position.broadcast();
        k.section(
            "pipeline/attention/corrected_tiles",
            "if the early position was too small: load the right tiles",
        );
        k.when(position.ne(early), || {
            block.start_again(&mut range, position)
        });
        (range, position)
    }

    /// Loads the first tiles and the queries of a batch, everything after the wait. Returns the
    /// block's tiles and the token's position.
    fn begin_batch<'k>(&self, block: &AttentionBlock<'_, 'k>) -> (TileRange<'k>, U32<'k>) {
        block.k.section(
            "pipeline/attention/batch_wait",
            "several tokens: load everything after the wait",
        );
        self.wait(block);
        let position = block.position().broadcast();
        let range = block.range(position);
        block.copy_first(&range, RowFilter::UpTo(position));
        block.commit_first();
        block.stage(block.load());
        (range, position)
    }

    /// Waits for the previous kernels.
    fn wait(&self, block: &AttentionBlock<'_, '_>) {
        if self.overlap {
            block.k.section(
                "pipeline/attention/overlap_wait",
                                "nothing before this wait reads results of earlier kernels, except position and cache",
            );
            block.k.grid_wait();
        }
        block.timestamp(Timestamp::Waited);
    }
}

/// The result of attention over a range of positions, before the division by the sum of the
/// weights.
struct Partial {
    max: f64,
    sum: f64,
    values: Vec<f64>,
}

/// The keys and values of a head on the CPU.
struct CpuCache<'a> {
    caches: [&'a [f16]; 2],
    kv_heads: usize,
    kv_head: usize,
}

/// Computes attention over a range of positions in double precision.
fn attend(q: &[f32], of: &CpuCache<'_>, range: std::ops::Range<usize>, scale: f32) -> Partial {
    let dim = q.len();
    let [keys, values] = of.caches;
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
    /// Returns the number of splits of `n` positions, and the number of positions of each but the
    /// last. A split has at least one tile per warp, and there are at most `splits`.
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
