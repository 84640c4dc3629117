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
//! [page](crate::shared::cache) of the cache.
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
//!
//! With a page table (see [`Paged`](super::Paged)), each token has its own sequence, so the rows
//! before its own are complete and are prefetched for batches too. The lanes of a warp hold the
//! numbers of the first 32 pages of the block's range.

mod block;
mod cases;
mod definition;
mod pages;
mod sinks;
mod sums;

use super::block_float::{self, BFP_BLOCK};
use super::gemv::plan::{MAX_BATCH, Timestamp};
use super::paged::{CacheKernel, PageTableArgs};
use crate::shared::Contract;
use crate::shared::attend::attend;
use crate::shared::cache::{self, CachePages};
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use block::{AttentionBlock, RowFilter, TileRange};
use definition::{HALF_SHARED, MAX_UNSPLIT_TILES, QUERIES, TILE};
pub use definition::{PipelinedAttention, PipelinedAttentionArgs};
use ptx_gen::*;
pub use sinks::{SinkArgs, WithSinks, WithSinksArgs};
use std::ops::Range;
use sums::OnlineSoftmax;

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
        self.grid_over(a, CachePages::Own)
    }

    fn program<'k>(&self, k: Builder<'k>, a: PipelinedAttentionArgs<Dev<'k>>) {
        self.program_over(k, a, None);
    }

    fn reference(&self, a: PipelinedAttentionArgs<Cpu<'_>>) {
        self.reference_over(a, None);
    }
}

impl CacheKernel for PipelinedAttention {
    fn ctx(a: &PipelinedAttentionArgs<Shape>) -> u32 {
        a.ctx
    }

    fn grid_over(
        &self,
        a: &PipelinedAttentionArgs<Shape>,
        pages: CachePages,
    ) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 2 * QUERIES)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)?;
        self.range("the kernel's batch", self.batch, 1, MAX_BATCH)?;
        let batched = |name, found, formula, factors: &[u32]| {
            super::contract::batched(self, self.batch, name, found, formula, factors)
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
            pages.check(self, name, found, [a.ctx, a.kv_heads, self.head_dim])?;
        }

        let y = [a.y, a.y_scale];
        super::contract::bfp_lengths(
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
        super::contract::check_timestamps(self, self.profile, a.blocks, a.timestamps)?;
        Ok(Grid {
            shared: a.shared,
            ..Grid::line(a.blocks)
        })
    }

    fn program_over<'k>(
        &self,
        k: Builder<'k>,
        a: PipelinedAttentionArgs<Dev<'k>>,
        table: Option<PageTableArgs<Dev<'k>>>,
    ) {
        self.emit(k, a, table, None);
    }

    fn reference_over(
        &self,
        a: PipelinedAttentionArgs<Cpu<'_>>,
        table: Option<PageTableArgs<Cpu<'_>>>,
    ) {
        self.compute(a, table, None);
    }
}

impl PipelinedAttention {
    /// Emits the program, with a page table and sinks or without them.
    fn emit<'k>(
        &self,
        k: Builder<'k>,
        a: PipelinedAttentionArgs<Dev<'k>>,
        table: Option<PageTableArgs<Dev<'k>>>,
        sinks: Option<Ptr<'k, f32, ReadOnly>>,
    ) {
        if self.overlap {
            k.grid_trigger();
        }

        k.section(
            "pipeline/attention/work",
            "heads of the block, and the lane's chunk of their rows",
        );
        let block = AttentionBlock::new(k, self, &a, table.as_ref(), sinks);
        block.timestamp(Timestamp::Begun);
        block.timestamp(Timestamp::SmId);

        // The tokens of a batch over one cache attend to each other's rows, which the previous
        // kernel writes.
        let (range, position) = if self.batch == 1 || table.is_some() {
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

    /// Computes the reference, with a page table and sinks or without them.
    fn compute(
        &self,
        a: PipelinedAttentionArgs<Cpu<'_>>,
        table: Option<PageTableArgs<Cpu<'_>>>,
        sinks: Option<&[f32]>,
    ) {
        let dim = self.head_dim as usize;
        let ctx = a.ctx as usize;
        let splits = a.splits as usize;
        let heads = a.heads as usize;
        let (values, others) = a.partials.split_at_mut(a.y.len() * splits);
        let scales = a.y_scale.chunks_mut(dim / BFP_BLOCK as usize);
        for (head, (y, y_scale)) in a.y.chunks_mut(dim).zip(scales).enumerate() {
            // Heads are counted over the batch.
            let token = head / heads;
            let state = &a.state[token * LEN..][..LEN];
            let [position, done, sequence] =
                [POSITION, DONE, SEQUENCE].map(|word| state[word as usize]);
            let skipped = u32::from(table.is_some() && done != 0);
            let position = position.saturating_sub(skipped) as usize;
            let n = ctx.min(position + 1);
            let start = n - self.window.map_or(n, |window| n.min(window as usize));
            let q: Vec<f64> = a.q[head * dim..][..dim].iter().map(|&q| q.into()).collect();
            let kv_head = head % heads / self.queries as usize;
            let row = |p: usize| {
                let kv_heads = a.kv_heads as usize;
                let row = match &table {
                    None => cache::own_row(kv_heads, kv_head, p),
                    Some(table) => table.clamped_row(sequence, [kv_heads, kv_head], p),
                };
                let first = row * dim;
                [a.k_cache, a.v_cache].map(|cache| &cache[first..][..dim])
            };
            let scale = f64::from(a.scale);
            let to_log2 = |dot: f64| dot * scale * std::f64::consts::LOG2_E;
            let attended = |positions: Range<usize>| attend(&q, positions.map(row), to_log2);
            let whole = match sinks {
                None => attended(start..n),
                Some(sinks) => {
                    let sink = f64::from(sinks[head % heads]) * std::f64::consts::LOG2_E;
                    attended(start..n).with_sink(sink)
                }
            };
            let (whole_numbers, scales) = block_float::encode(&whole.mean());
            y.copy_from_slice(&whole_numbers);
            y_scale.copy_from_slice(&scales);

            // Splits are whole tiles, so the first one may begin before the window.
            let base = start / TILE as usize * TILE as usize;
            let (used, share) = self.split(n - base, splits);
            let bound = |split: usize| (base + split * share).clamp(start, n);
            for split in (0..used).filter(|_| used > 1) {
                let partial = attended(bound(split)..bound(split + 1));
                let part = head * splits + split;

                // A pair of maximum and sum for every four values, as the merge loads them.
                for pair in others[part * dim / 2..][..dim / 2].chunks_mut(2) {
                    pair.copy_from_slice(&[partial.max as f32, partial.sum as f32]);
                }

                let to = &mut values[part * dim..][..dim];
                for (to, v) in to.iter_mut().zip(partial.values) {
                    *to = v as f32;
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
        // position are complete in any case, so they can be loaded now. With a page table, the
        // position is final, because nothing that this kernel overlaps writes a state.
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
        let reloaded = (!block.is_paged()).then(|| block.position());
        let loaded = block.load();
        block.copy_own(&own);
        block.stage(loaded);
        let Some(position) = reloaded else {
            return (range, early);
        };

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
                "nothing before this wait reads results of earlier kernels, except position and \
                 cache",
            );
            block.k.grid_wait();
        }
        block.timestamp(Timestamp::Waited);
    }
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
