//! Attention of one token of each of many sequences over paged caches: `softmax(q k^T) v`, with queries that are
//! multiplied by the factor of the scores and `log2(e)`. sm_80.
//!
//! A block takes a row, a KV head, up to 16 of the query heads that share it, and a range of the positions: a split. The
//! range is divided into tiles of 16 positions, which the warps process round-robin. A warp has a ring of tiles of its
//! own in shared memory, into which it copies ahead with `cp.async`, and waits for no other warp. A tile lies in one
//! page; the lanes of a warp hold the numbers of the next 32 pages.
//!
//! Scores are `mma.m16n8k16`: queries are rows of the left matrix, up to 8 in its first half, more in its second. A lane's
//! scores have the layout of the right matrix of the second product, `v^T p`, so weights, rounded to binary16, stay in
//! registers. Each warp keeps the maximum `m` of its scores, the sum of `2^(score - m)` and the weighted values (online
//! softmax). At the end, the warps are brought to their common maximum and added.
//!
//! If one block has all positions of a row, that is the result. Else the splits store partial results and draw tickets,
//! and the last one adds all splits in their order. How many splits a row has follows from its position and from the
//! arguments that all rows share: see [`BatchAttention::share`]. So the bits of a row depend on its query, its position,
//! the keys and values that count, and the launch, never on other rows. Blocks without positions end at once.

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
use block::{Block, WarpCopies};
use ptx_gen::*;
use std::ops::Range;

args! {
    /// Arguments of [`BatchAttention`].
    pub struct BatchAttentionArgs {
        /// `[rows, 8]`: the position of each row, which is the last that counts, its sequence, and whether it is done. May
        /// be longer. See [`state`](crate::state)
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. A page, position or sequence past the last counts as the last.
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: times the factor of the scores and `log2(e)`
        q: In<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: see [`cache`]
        k_cache: In<f16>,
        /// As `k_cache`
        v_cache: In<f16>,
        /// `[heads * head_dim / 64, capacity, 64]`: see [`activations`]. Zero for rows that are done
        y: Out<f16>,
        /// `[capacity]`: what each row's numbers are to be multiplied by: 1, as a result is between values
        y_scale: Out<f32>,
        /// `[rows, heads, splits, head_dim]` weighted values, then `[rows, heads, splits, 2]` maximum in log2 and sum of
        /// the weights: the partial results, if there are several splits. May be longer
        partials: InOut<f32>,
        /// `[rows, kv_heads * groups]`: zero before and after. May be longer
        ticket: InOut<u32>,
        /// Query heads.
        heads: u32,
        /// KV heads.
        kv_heads: u32,
        /// Pages of the caches.
        cache_pages: u32,
        /// Sequences of the page table.
        sequences: u32,
        /// Pages of a sequence, at most.
        max_pages: u32,
        /// Rows.
        rows: u32,
        /// Rows that buffers have room for, a multiple of 8.
        capacity: u32,
        /// The maximum number of splits of a row.
        splits: u32,
        /// The [units](BatchAttention::units) that the length of splits is chosen for. With the same number, and the same
        /// `splits`, a row has the same bits in launches of more and of fewer rows
        units: u32,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchAttention {
    /// Dimensions of a head: a multiple of 16, at most 256.
    pub head_dim: u32,
    /// Query heads that share a KV head.
    pub queries: u32,
    /// The latest positions that count, the row's own included; all of them without a window.
    pub window: Option<u32>,
    /// The order of the columns of the result.
    pub order: ColumnOrder,
    /// How it overlaps with the kernels before and after it. Before it waits, it reads the states, the page table, and
    /// keys and values of tiles before the one that has a row's own position: no kernel that overlaps it may write those.
    pub overlap: Overlap,
}

/// Positions of a tile: the inner dimension of `mma.m16n8k16`.
const TILE: u32 = 16;
/// Query heads of a block: the rows of an `mma`.
const QUERIES: u32 = 16;
/// Columns of an `mma`: query heads that share sums of values.
const SET: u32 = 8;
/// Tiles of a warp in shared memory.
const DEPTH: u32 = 3;
/// The maximum number of warps.
const MAX_WARPS: u32 = 4;
/// Shared memory that every device has for a block.
const MEMORY: u32 = 99 << 10;
/// The least number of tiles of a warp in a split, if there are few units of work, and if there are many: a split costs
/// about as much as a few tiles, which is worth it only where multiprocessors would be idle.
const LEAST_TILES: [u32; 2] = [2, 8];
/// Units of work, rows times KV heads, for each of these tiles.
const UNITS: u32 = 8;
/// Partial results that a thread has in flight when it merges.
const IN_FLIGHT: u32 = 8;
/// Positions that a block goes through, as far as splits are chosen by [`BatchAttention::splits`].
const LONGEST: u32 = 4096;
/// Splits of a row, at most.
const MAX_SPLITS: u32 = 1 << 12;
/// Rows of a launch, at most.
const MAX_ROWS: u32 = 256;

impl BatchAttention {
    /// The kernel without a window.
    pub const fn new(head_dim: u32, queries: u32, order: ColumnOrder) -> BatchAttention {
        BatchAttention {
            head_dim,
            queries,
            window: None,
            order,
            overlap: Overlap::No,
        }
    }

    /// The same over a window of the latest positions.
    pub const fn with_window(self, window: u32) -> BatchAttention {
        BatchAttention {
            window: Some(window),
            ..self
        }
    }

    /// Blocks that share a KV head, each with up to 16 of its query heads.
    pub fn groups(&self) -> u32 {
        self.queries.div_ceil(QUERIES)
    }

    /// The length of `partials` for so many rows, query heads and splits.
    pub fn partials_len(&self, rows: u32, heads: u32, splits: u32) -> usize {
        let each = if splits == 1 {
            0
        } else {
            self.head_dim as usize + 2
        };
        (rows * heads) as usize * splits as usize * each
    }

    /// Units of work: rows times KV heads times [groups](BatchAttention::groups).
    pub fn units(&self, rows: u32, kv_heads: u32) -> u32 {
        rows * kv_heads * self.groups()
    }

    /// The positions of a split of a row that attends to `n` of them, counted from a multiple of 16, where rows have at
    /// most `splits`, and there are so many [units](BatchAttention::units).
    pub fn share(&self, n: u32, splits: u32, units: u32) -> u32 {
        let warps = self.warps();
        let least = (units / UNITS).clamp(LEAST_TILES[0], LEAST_TILES[1]) * warps;
        let tiles = n.div_ceil(TILE).div_ceil(splits).max(least);
        tiles.next_multiple_of(warps) * TILE
    }

    /// How many splits suit so many [units](BatchAttention::units) of at most `positions`, on a device of so many
    /// multiprocessors: each has two blocks, and no block goes through more than 4,096 positions.
    ///
    /// More cost little more than blocks that end at once, and bring long rows among short ones to an end sooner.
    pub fn splits(&self, units: u32, positions: u32, multiprocessors: u32) -> u32 {
        let wanted = (2 * multiprocessors / units.max(1)).max(positions.div_ceil(LONGEST));
        wanted
            .min(positions.div_ceil(self.share(1, 1, units)))
            .clamp(1, MAX_SPLITS)
    }

    /// Query heads of a block; the last one of a KV head may have fewer.
    fn group(&self) -> u32 {
        self.queries.div_ceil(self.groups())
    }

    /// Sets of eight query heads of a block.
    fn sets(&self) -> u32 {
        self.group().div_ceil(SET)
    }

    /// Rows of a tile in shared memory.
    fn tile_rows(&self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Bytes of the keys and the values of a tile.
    fn tile_bytes(&self) -> u32 {
        2 * TILE * self.tile_rows().bytes
    }

    /// Warps of a block.
    fn warps(&self) -> u32 {
        let outcome = 8 * QUERIES * MAX_WARPS + 16;
        ((MEMORY - outcome) / (DEPTH * self.tile_bytes())).min(MAX_WARPS)
    }

    /// Bytes of shared memory that a block needs: tiles, maximum and sum of each warp and query, a ticket.
    fn shared(&self) -> u32 {
        self.warps() * (DEPTH * self.tile_bytes() + 8 * QUERIES) + 16
    }

    /// The first position that counts, if there is a window.
    fn start<'k>(&self, position: U32<'k>) -> Option<U32<'k>> {
        self.window
            .map(|window| position + 1 - (position + 1).min(window))
    }

    fn check_kernel(&self) -> Result<(), ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 128)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)
    }

    fn check_cache(&self, a: &BatchAttentionArgs<Shape>) -> Result<(), ShapeError> {
        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        let of_layer = [a.cache_pages, a.kv_heads, self.head_dim];
        cache::check_pages(self, ("k_cache", a.k_cache), of_layer)?;
        cache::check_pages(self, ("v_cache", a.v_cache), of_layer)
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
            "the block's row, heads and positions",
        );
        let block = Block::new(k, self, &a);
        let range = block.range();
        let works = !block.done() & block.split.lt(range.used);
        let mut copies = WarpCopies::new(&block, &range);
        if self.overlap.waits() {
            k.section(
                "batch/attention/early_tiles",
                "the first tiles but the one with the row's own position",
            );
            k.when(works, || block.copy_before(&mut copies, &range));
            k.grid_wait();
        }
        k.when(block.done(), || block.store_zeros());
        k.when(works, || block.process(&mut copies, &range));
        self.overlap.end(k);
    }

    fn reference(&self, a: BatchAttentionArgs<Cpu<'_>>) {
        let (dim, heads, splits) = (self.head_dim as usize, a.heads as usize, a.splits as usize);
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
    /// Sequences, pages of a sequence, pages of the cache, KV heads.
    shape: [u32; 4],
    sequence: u32,
}

impl PageTable<'_> {
    /// The row of a position in the cache.
    fn row(&self, position: u32, kv_head: u32) -> usize {
        let [sequences, max_pages, cache_pages, kv_heads] = self.shape;
        let at = self.sequence.min(sequences - 1) * max_pages + position / PAGE;
        let page = self.pages[at as usize].min(cache_pages - 1);
        ((page * kv_heads + kv_head) * PAGE + position % PAGE) as usize
    }
}

/// Attention over a range of the positions, before the division by the sum of the weights.
struct Partial {
    max: f64,
    sum: f64,
    values: Vec<f64>,
}

impl Partial {
    fn result(self) -> Vec<f64> {
        self.values.into_iter().map(|v| v / self.sum).collect()
    }
}

/// Of one query, with scores in log2 units, to these keys and values.
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
        partial
            .values
            .iter_mut()
            .zip(numbers(values))
            .for_each(|(y, v)| *y += weight * v);
    }
    partial
}
