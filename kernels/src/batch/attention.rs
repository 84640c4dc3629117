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
mod sums;
mod tile;

use crate::cache::{self, PAGE};
use crate::contract::Contract;
use crate::format::dequantize::ColumnOrder;
use crate::matmul::activations::{self, PANEL, TOKENS};
use crate::overlap::Overlap;
use crate::shared_rows::SharedRows;
use crate::state::{DONE, LEN, POSITION, SEQUENCE};
use block::{BatchBlock, WarpCopies};
use ptx_gen::*;
use std::ops::Range;

args! {
    /// Arguments of [`BatchAttention`].
    pub struct BatchAttentionArgs {
        /// `[rows, 8]`: the state of each row with its position, which is the last one that it
        /// attends to, its sequence, and its end flag. The buffer may be longer. See
        /// [`state`](crate::state).
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. A page, position or sequence past the last is
        /// clamped to the last.
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: the queries times the factor of the scores and `log2(e)`
        q: In<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: In<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: In<f16>,
        /// `[heads * head_dim / 64, capacity, 64]`: the results, see [`activations`]. They are zero
        /// for rows that are done.
        y: Out<f16>,
        /// `[capacity]`: the factor that restores each row's values. It is 1, because a result lies
        /// between values of the cache.
        y_scale: Out<f32>,
        /// `[rows, heads, splits, head_dim]`: the weighted values of the splits, if there are
        /// several. `[rows, heads, splits, 2]` follow: the maximum in log2 and the sum of the
        /// weights. The buffer may be longer.
        partials: InOut<f32>,
        /// `[rows, kv_heads * groups]`: the tickets, which must be zero before the launch and are
        /// zero after it. The buffer may be longer.
        ticket: InOut<u32>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of pages of the caches.
        cache_pages: u32,
        /// The number of sequences of the page table.
        sequences: u32,
        /// The maximum number of pages of a sequence.
        max_pages: u32,
        /// The number of rows.
        rows: u32,
        /// The capacity of the buffers in rows, a multiple of 8.
        capacity: u32,
        /// The maximum number of splits of a row.
        splits: u32,
        /// The number of [units](BatchAttention::units) that the length of splits is chosen for.
        /// With equal `units` and `splits`, a row has equal bits in launches of different numbers
        /// of rows.
        units: u32,
    }
}

/// Kernel that computes attention for a batch of sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchAttention {
    /// The number of dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// The number of query heads that share a KV head.
    pub queries: u32,
    /// The size of the window in positions, including the row's own. `None` attends to all
    /// positions.
    pub window: Option<u32>,
    /// The order of the result's columns.
    pub order: ColumnOrder,
    /// The overlap with the kernels before and after it. Before it waits, the kernel reads the
    /// states, the page table, and the keys and values of all tiles before the one that contains a
    /// row's own position. A kernel that overlaps it must not write those.
    pub overlap: Overlap,
}

/// The number of positions of a tile: the inner dimension of `mma.m16n8k16`.
const TILE: u32 = 16;
/// The maximum number of query heads of a block: the rows of an `mma`.
const QUERIES: u32 = 16;
/// The number of columns of an `mma`: query heads that share sums of values.
const SET: u32 = 8;
/// The number of tiles of a warp in shared memory.
const DEPTH: u32 = 3;
/// The maximum number of warps.
const MAX_WARPS: u32 = 4;
/// The bytes of shared memory that every device has for a block.
const MEMORY: u32 = 99 << 10;
/// The minimum number of tiles of a warp in a split, with few and with many units of work. A split
/// costs about as much as a few tiles. It pays only where multiprocessors would be idle.
const LEAST_TILES: [u32; 2] = [2, 8];
/// The number of units of work, rows times KV heads, for each of the minimum tiles.
const UNITS: u32 = 8;
/// The number of partial results that a thread has in flight when it merges.
const IN_FLIGHT: u32 = 8;
/// The maximum number of positions of a block, as far as [`BatchAttention::splits`] chooses the
/// splits.
const LONGEST: u32 = 4096;
/// The maximum number of splits of a row.
const MAX_SPLITS: u32 = 1 << 12;
/// The maximum number of rows of a launch.
const MAX_ROWS: u32 = 256;

impl BatchAttention {
    /// Returns the kernel without a window.
    pub const fn new(head_dim: u32, queries: u32, order: ColumnOrder) -> BatchAttention {
        BatchAttention {
            head_dim,
            queries,
            window: None,
            order,
            overlap: Overlap::No,
        }
    }

    /// Returns this kernel for a window of the latest positions.
    pub const fn with_window(self, window: u32) -> BatchAttention {
        BatchAttention {
            window: Some(window),
            ..self
        }
    }

    /// Returns the number of blocks that share a KV head, each with up to 16 of its query heads.
    pub fn groups(&self) -> u32 {
        self.queries.div_ceil(QUERIES)
    }

    /// Returns the length of `partials` for `rows` rows, `heads` query heads and `splits` splits.
    pub fn partials_len(&self, rows: u32, heads: u32, splits: u32) -> usize {
        let each = if splits == 1 {
            0
        } else {
            self.head_dim as usize + 2
        };
        (rows * heads) as usize * splits as usize * each
    }

    /// Returns the units of work: rows times KV heads times [groups](BatchAttention::groups).
    pub fn units(&self, rows: u32, kv_heads: u32) -> u32 {
        rows * kv_heads * self.groups()
    }

    /// Returns the number of positions of a split of a row that attends to `n` positions, counted
    /// from a multiple of 16. Rows have at most `splits` splits, and the launch has `units`
    /// [units](BatchAttention::units).
    pub fn share(&self, n: u32, splits: u32, units: u32) -> u32 {
        let warps = self.warps();
        let least = (units / UNITS).clamp(LEAST_TILES[0], LEAST_TILES[1]) * warps;
        let tiles = n.div_ceil(TILE).div_ceil(splits).max(least);
        tiles.next_multiple_of(warps) * TILE
    }

    /// Returns a suitable number of splits for `units` [units](BatchAttention::units) of at most
    /// `positions` positions, on a device with `multiprocessors` multiprocessors. Each
    /// multiprocessor then has two blocks, and no block processes more than 4,096 positions.
    ///
    /// A larger number costs little, because blocks without positions end immediately. In return,
    /// long rows among short ones complete sooner.
    pub fn splits(&self, units: u32, positions: u32, multiprocessors: u32) -> u32 {
        let wanted = (2 * multiprocessors / units.max(1)).max(positions.div_ceil(LONGEST));
        wanted
            .min(positions.div_ceil(self.share(1, 1, units)))
            .clamp(1, MAX_SPLITS)
    }

    /// Returns the number of query heads of a block. The last block of a KV head may have fewer.
    fn group(&self) -> u32 {
        self.queries.div_ceil(self.groups())
    }

    /// Returns the number of sets of eight query heads of a block.
    fn sets(&self) -> u32 {
        self.group().div_ceil(SET)
    }

    /// Returns the layout of a tile in shared memory.
    fn tile_rows(&self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Returns the bytes of the keys and the values of a tile.
    fn tile_bytes(&self) -> u32 {
        2 * TILE * self.tile_rows().bytes
    }

    /// Returns the number of warps of a block.
    fn warps(&self) -> u32 {
        let outcome = 8 * QUERIES * MAX_WARPS + 16;
        ((MEMORY - outcome) / (DEPTH * self.tile_bytes())).min(MAX_WARPS)
    }

    /// Returns the bytes of shared memory of a block: tiles, maximum and sum of each warp and
    /// query, and a ticket.
    fn shared(&self) -> u32 {
        self.warps() * (DEPTH * self.tile_bytes() + 8 * QUERIES) + 16
    }

    /// Returns the first position of the window, if there is a window.
    fn start<'k>(&self, position: U32<'k>) -> Option<U32<'k>> {
        self.window
            .map(|window| position + 1 - (position + 1).min(window))
    }

    /// Checks the kernel's own fields.
    fn check_kernel(&self) -> Result<(), ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 128)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)
    }

    /// Checks the page table and the caches.
    fn check_cache(&self, a: &BatchAttentionArgs<Shape>) -> Result<(), ShapeError> {
        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        let of_layer = [a.cache_pages, a.kv_heads, self.head_dim];
        cache::check_pages(self, "k_cache", a.k_cache, of_layer)?;
        cache::check_pages(self, "v_cache", a.v_cache, of_layer)
    }
}

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
        self.check_kernel()?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.require(a.heads == a.kv_heads * self.queries, || {
            format!(
                "heads is {}, must be kv_heads * queries = {}",
                a.heads,
                a.kv_heads * self.queries
            )
        })?;
        self.multiple(
            "heads * head_dim",
            a.heads * self.head_dim,
            PANEL.max(4 * self.order.group),
        )?;
        self.check_cache(a)?;
        self.multiple("capacity", a.capacity, TOKENS)?;
        self.range("rows", a.rows, 1, a.capacity.min(MAX_ROWS))?;
        self.range("splits", a.splits, 1, MAX_SPLITS)?;
        self.at_least("state", a.state, "rows * 8", &[a.rows, LEN as u32])?;
        for (name, found) in [("q", a.q), ("y", a.y)] {
            self.length(
                name,
                found,
                "capacity * heads * head_dim",
                &[a.capacity, a.heads, self.head_dim],
            )?;
        }
        self.length("y_scale", a.y_scale, "capacity", &[a.capacity])?;
        let splits = if a.splits == 1 { 0 } else { a.splits };
        let partials = [a.rows, a.heads, splits, self.head_dim + 2];
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
        for row in 0..a.rows as usize {
            y_scale[row] = 1.0;
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
                let attended = |range: Range<u32>| {
                    let q = &a.q[(row * heads + head) * dim..][..dim];
                    let rows = range.map(|p| dim * table.row(p, head as u32 / self.queries));
                    attend(
                        q,
                        rows.map(|i| [a.k_cache, a.v_cache].map(|cache| &cache[i..][..dim])),
                    )
                };
                let done = state[DONE as usize] != 0;
                let whole = if done {
                    vec![0.0; dim]
                } else {
                    attended(start..end).result()
                };
                for (d, result) in whole.into_iter().enumerate() {
                    let slot = self.order.slot((head * dim + d) as u32) as usize;
                    y[activations::index(a.capacity as usize, row, slot)] =
                        f16::from_f32(result as f32);
                }
                let used = if done {
                    1
                } else {
                    (end - base).div_ceil(share)
                };
                for split in (0..used).filter(|_| used > 1) {
                    let at = |split: u32| (base + split * share).clamp(start, end);
                    let partial = attended(at(split)..at(split + 1));
                    let at = (row * heads + head) * splits + split as usize;
                    outcomes[2 * at] = partial.max as f32;
                    outcomes[2 * at + 1] = partial.sum as f32;
                    for (to, v) in values[at * dim..][..dim].iter_mut().zip(partial.values) {
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

/// The result of attention over a range of positions, before the division by the sum of the
/// weights.
struct Partial {
    max: f64,
    sum: f64,
    values: Vec<f64>,
}

impl Partial {
    /// Returns the weighted mean of the values.
    fn result(self) -> Vec<f64> {
        self.values.into_iter().map(|v| v / self.sum).collect()
    }
}

/// Computes attention of one query to these keys and values, with scores in log2 units.
fn attend<'a>(q: &[f16], rows: impl Iterator<Item = [&'a [f16]; 2]>) -> Partial {
    let numbers = |row: &[f16]| {
        row.iter()
            .map(|x| f64::from(x.to_f32()))
            .collect::<Vec<_>>()
    };
    let q = numbers(q);
    let dot = |row: &[f16]| numbers(row).iter().zip(&q).map(|(k, q)| k * q).sum::<f64>();
    let all: Vec<(f64, &[f16])> = rows.map(|[keys, values]| (dot(keys), values)).collect();
    let max = all
        .iter()
        .fold(f64::NEG_INFINITY, |max, (score, _)| max.max(*score));
    let mut partial = Partial {
        max,
        sum: 0.0,
        values: vec![0.0; q.len()],
    };
    for (score, values) in all {
        let weight = (score - max).exp2();
        partial.sum += weight;
        for (y, v) in partial.values.iter_mut().zip(numbers(values)) {
            *y += weight * v;
        }
    }
    partial
}
