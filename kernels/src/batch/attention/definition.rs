//! The kernel's fields, its arguments, and the sizes that follow from them.

use crate::format::dequantize::ColumnOrder;
use crate::shared::cache::{self};
use crate::shared::shared_rows::SharedRows;
use crate::shared::{Contract, Overlap};
use ptx_gen::*;

args! {
    /// Arguments of [`BatchAttention`].
    pub struct BatchAttentionArgs {
        /// `[rows, 8]`: the state of each row with its position, which is the last one that it
        /// attends to, its sequence, and its end flag. The buffer may be longer. See
        /// [`state`](crate::shared::state).
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
        /// `[heads * head_dim / 64, capacity, 64]`: the results, see
        /// [`activations`](crate::matmul::activations). They are zero for rows that are done.
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
pub(super) const TILE: u32 = 16;

/// The maximum number of query heads of a block: the rows of an `mma`.
pub(super) const QUERIES: u32 = 16;

/// The number of columns of an `mma`: query heads that share sums of values.
pub(super) const SET: u32 = 8;

/// The number of tiles of a warp in shared memory.
pub(super) const DEPTH: u32 = 3;

/// The maximum number of warps.
pub(super) const MAX_WARPS: u32 = 4;

/// The bytes of shared memory that every device has for a block.
pub(super) const MEMORY: u32 = 99 << 10;

/// The minimum number of tiles of a warp in a split, with few and with many units of work. A split
/// costs about as much as a few tiles. It pays only where multiprocessors would be idle.
pub(super) const LEAST_TILES: [u32; 2] = [2, 8];

/// The number of units of work, rows times KV heads, for each of the minimum tiles.
pub(super) const UNITS: u32 = 8;

/// The number of partial results that a thread has in flight when it merges.
pub(super) const IN_FLIGHT: u32 = 8;

/// The maximum number of positions of a block, as far as [`BatchAttention::splits`] chooses the
/// splits.
pub(super) const LONGEST: u32 = 4096;

/// The maximum number of splits of a row.
pub(super) const MAX_SPLITS: u32 = 1 << 12;

/// The maximum number of rows of a launch.
pub(super) const MAX_ROWS: u32 = 256;

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
    pub(super) fn group(&self) -> u32 {
        self.queries.div_ceil(self.groups())
    }

    /// Returns the number of sets of eight query heads of a block.
    pub(super) fn sets(&self) -> u32 {
        self.group().div_ceil(SET)
    }

    /// Returns the layout of a tile in shared memory.
    pub(super) fn tile_rows(&self) -> SharedRows {
        SharedRows::of(self.head_dim)
    }

    /// Returns the bytes of the keys and the values of a tile.
    pub(super) fn tile_bytes(&self) -> u32 {
        2 * TILE * self.tile_rows().bytes
    }

    /// Returns the number of warps of a block.
    pub(super) fn warps(&self) -> u32 {
        let outcome = 8 * QUERIES * MAX_WARPS + 16;
        ((MEMORY - outcome) / (DEPTH * self.tile_bytes())).min(MAX_WARPS)
    }

    /// Returns the bytes of shared memory of a block: tiles, maximum and sum of each warp and
    /// query, and a ticket.
    pub(super) fn shared(&self) -> u32 {
        self.warps() * (DEPTH * self.tile_bytes() + 8 * QUERIES) + 16
    }

    /// Returns the first position of the window, if there is a window.
    pub(super) fn start<'k>(&self, position: U32<'k>) -> Option<U32<'k>> {
        self.window
            .map(|window| position + 1 - (position + 1).min(window))
    }

    /// Checks the kernel's own fields.
    pub(super) fn check_kernel(&self) -> Result<(), ShapeError> {
        self.multiple("the kernel's head_dim", self.head_dim, 16)?;
        self.range("the kernel's head_dim", self.head_dim, 16, 256)?;
        self.range("the kernel's queries", self.queries, 1, 128)?;
        self.range("the kernel's window", self.window.unwrap_or(1), 1, 1 << 24)
    }

    /// Checks the page table and the caches.
    pub(super) fn check_cache(&self, a: &BatchAttentionArgs<Shape>) -> Result<(), ShapeError> {
        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        let of_layer = [a.cache_pages, a.kv_heads, self.head_dim];
        cache::check_pages(self, "k_cache", a.k_cache, of_layer)?;
        cache::check_pages(self, "v_cache", a.v_cache, of_layer)
    }
}
