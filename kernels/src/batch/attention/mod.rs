//! Attention of one token of each of many sequences over paged caches: `softmax(q k^T) v`. The
//! queries are already multiplied by the factor of the scores and `log2(e)`. The kernel runs on
//! sm_80 and newer.
//!
//! # Blocks and tiles
//!
//! A block processes a row, a KV head, up to 16 of the query heads that share it, and a range of
//! the positions (a split). The range is divided into tiles of 16 positions, which the warps
//! process round-robin. Each warp has its own ring of tiles in shared memory. It copies tiles ahead
//! with `cp.async` and does not wait for other warps. A tile lies in one page. The lanes of a warp
//! hold the numbers of the next 32 pages.
//!
//! # Arithmetic
//!
//! Scores are computed by `mma.m16n8k16`. Queries are rows of the left matrix: up to 8 in its first
//! half, and more in its second half. A lane's scores have the layout of the right matrix of the
//! second matmul, `v^T p`, so the weights, rounded to `f16`, stay in registers. Each warp keeps the
//! maximum `m` of its scores, the sum of `2^(score - m)` and the weighted values (online softmax,
//! Milakov and Gimelshein, 2018, arXiv:1805.02867). At the end, the warps are rescaled to their
//! common maximum and added.
//!
//! # Splits and batch invariance
//!
//! If one block has all positions of a row, that is the result. Otherwise the splits store partial
//! results and draw tickets, and the last one adds all splits in their order. The number of splits
//! of a row follows from its position and from the arguments that all rows share (see
//! [`BatchAttention::share`]). The bits of a row therefore depend on its query, its position, its
//! keys and values, and the launch, but never on other rows. Blocks without positions end
//! immediately.

mod block;
mod cases;
mod definition;
mod sums;
mod tile;

use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::shared::attend::{attend, wide};
use crate::shared::cache::PAGE;
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use crate::shared::{Contract, check_lengths};
use block::{BatchBlock, WarpCopies};
pub use definition::{BatchAttention, BatchAttentionArgs};
use definition::{MAX_ROWS, MAX_SPLITS, TILE};
use ptx_gen::*;
use std::ops::Range;

impl KernelDef for BatchAttention {
    type Args<S: Side> = BatchAttentionArgs<S>;

    fn name(&self) -> String {
        let BatchAttention {
            head_dim,
            queries,
            window,
            order,
            overlap,
        } = self;
        let window = window.map_or(String::new(), |window| format!("_window_{window}"));
        let first = overlap.suffix();
        format!(
            "batch_attention_{head_dim}_{queries}_{}{window}{first}",
            order.group
        )
    }

    fn block(&self) -> u32 {
        32 * self.warps()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(2)
    }

    fn grid(&self, a: &BatchAttentionArgs<Shape>) -> Result<Grid, ShapeError> {
        let &BatchAttentionArgs {
            capacity, heads, ..
        } = a;
        let head_dim = self.head_dim;
        self.check_kernel()?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.require(heads == a.kv_heads * self.queries, || {
            format!(
                "heads is {}, must be kv_heads * queries = {}",
                heads,
                a.kv_heads * self.queries
            )
        })?;
        self.multiple(
            "heads * head_dim",
            heads * head_dim,
            PANEL.max(4 * self.order.group),
        )?;
        self.check_cache(a)?;
        self.multiple("capacity", capacity, TOKENS)?;
        self.range("rows", a.rows, 1, capacity.min(MAX_ROWS))?;
        self.range("splits", a.splits, 1, MAX_SPLITS)?;
        self.at_least("state", a.state, "rows * 8", &[a.rows, LEN as u32])?;
        check_lengths! { self, a:
            q == capacity * heads * head_dim,
            y == capacity * heads * head_dim,
            y_scale == capacity,
        }
        let splits = if a.splits == 1 { 0 } else { a.splits };
        let partials = [a.rows, heads, splits, head_dim + 2];
        self.at_least(
            "partials",
            a.partials,
            "rows * heads * splits * (head_dim + 2)",
            &partials,
        )?;
        let units = [a.rows, a.kv_heads, self.groups()];
        self.at_least("ticket", a.ticket, "rows * kv_heads * groups", &units)?;
        Ok(Grid {
            shared: self.shared(),
            ..Grid::plane(units.iter().product(), a.splits)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: BatchAttentionArgs<Dev<'k>>) {
        self.overlap.start(k);

        k.section(
            "batch/attention/work",
            "row, heads and positions of the block",
        );
        let block = BatchBlock::new(k, self, &a);
        let range = block.range();
        let works = !block.done() & block.split.lt(range.used);
        let mut copies = WarpCopies::new(&block, &range);
        if self.overlap.waits() {
            k.section(
                "batch/attention/early_tiles",
                "copy the first tiles, except the one with the row's own position",
            );
            // The previous kernel writes only the row's own position, so all other tiles may be
            // copied before the wait.
            k.when(works, || block.copy_before(&mut copies, &range));
            k.grid_wait();
        }

        k.when(block.done(), || block.store_zeros());
        k.when(works, || block.process(&mut copies, &range));
        self.overlap.end(k);
    }

    fn reference(&self, a: BatchAttentionArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let heads = a.heads as usize;
        let splits = a.splits as usize;
        let BatchAttentionArgs {
            y,
            y_scale,
            partials,
            ..
        } = a;
        let (values, outcomes) = partials.split_at_mut(match splits {
            1 => 0,
            _ => a.rows as usize * heads * splits * dim,
        });
        let rows = a.rows as usize;
        y_scale[..rows].fill(1.0);
        for row in 0..rows {
            let state = &a.state[row * LEN..][..LEN];
            let table = PageTable {
                pages: a.pages,
                shape: [a.sequences, a.max_pages, a.cache_pages, a.kv_heads],
                sequence: state[SEQUENCE as usize],
            };
            let end = state[POSITION as usize].min(a.max_pages * PAGE - 1) + 1;
            let start = end - self.window.map_or(end, |window| end.min(window));
            let base = start / TILE * TILE;
            let share = self.share(end - base, a.splits, a.units);
            for head in 0..heads {
                let q: Vec<f64> = wide(&a.q[(row * heads + head) * dim..][..dim]).collect();
                let kv_head = head as u32 / self.queries;
                let cached = |p: u32| {
                    let first = dim * table.row(p, kv_head);
                    [a.k_cache, a.v_cache].map(|cache| &cache[first..][..dim])
                };

                // Queries are already in log2 units.
                let attended = |positions: Range<u32>| attend(&q, positions.map(cached), |s| s);
                let done = state[DONE as usize] != 0;
                let whole = if done {
                    vec![0.0; dim]
                } else {
                    attended(start..end).mean()
                };
                for (d, result) in whole.into_iter().enumerate() {
                    let slot = self.order.slot((head * dim + d) as u32) as usize;
                    let at = activations::index(a.capacity as usize, row, slot);
                    y[at] = f16::from_f32(result as f32);
                }

                let used = if done {
                    1
                } else {
                    (end - base).div_ceil(share)
                };
                for split in (0..used).filter(|_| used > 1) {
                    let bound = |split: u32| (base + split * share).clamp(start, end);
                    let partial = attended(bound(split)..bound(split + 1));
                    let part = (row * heads + head) * splits + split as usize;
                    outcomes[2 * part] = partial.max as f32;
                    outcomes[2 * part + 1] = partial.sum as f32;
                    let to = &mut values[part * dim..][..dim];
                    for (to, v) in to.iter_mut().zip(partial.values) {
                        *to = v as f32;
                    }
                }
            }
        }
    }
}

/// The page table on the CPU, for a sequence.
struct PageTable<'a> {
    pages: &'a [u32],
    /// The numbers of sequences, pages of a sequence, pages of the cache, and KV heads.
    shape: [u32; 4],
    sequence: u32,
}

impl PageTable<'_> {
    /// Returns the cache row of a position.
    fn row(&self, position: u32, kv_head: u32) -> usize {
        let [sequences, max_pages, cache_pages, kv_heads] = self.shape;
        let at = self.sequence.min(sequences - 1) * max_pages + position / PAGE;
        let page = self.pages[at as usize].min(cache_pages - 1);
        ((page * kv_heads + kv_head) * PAGE + position % PAGE) as usize
    }
}
