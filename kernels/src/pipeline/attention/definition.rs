//! The kernel's fields, its arguments, and the sizes that follow from them.

use ptx_gen::*;

args! {
    /// Arguments of [`PipelinedAttention`].
    pub struct PipelinedAttentionArgs {
        /// `[batch, 8]`: the decode states, see [`state`](crate::shared::state). A token attends to
        /// the positions up to its `POSITION`.
        state: In<u32>,
        /// `[batch, heads, head_dim]`: the queries, in the range of `f16`
        q: In<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the keys, see
        /// [`cache`](crate::shared::cache)
        k_cache: In<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the values, see
        /// [`cache`](crate::shared::cache)
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
        /// `[blocks, 8]`: timestamps, if the kernel profiles. See
        /// [`Timestamp`](crate::pipeline::plan::Timestamp).
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
    /// Whether each block records [`Timestamp`](crate::pipeline::plan::Timestamp)s.
    pub profile: bool,
}

/// The bytes of shared memory of a block if two blocks share an SM of sm_90.
pub(super) const HALF_SHARED: u32 = 115_712;

/// The number of positions of a tile: the inner dimension of `mma.m16n8k16`.
pub(super) const TILE: u32 = 16;

/// The number of query heads of a block: half of the rows of an `mma`.
pub(super) const QUERIES: u32 = 8;

/// The maximum number of warps. A GEMV block with 12 warps and a producer must fit next to this
/// block. At 80 registers per thread, 8 warps leave enough registers for it in each of the four SM
/// partitions, which have 16,384 registers each.
pub(super) const MAX_WARPS: u32 = 8;

/// The maximum number of resident tiles per warp.
pub(super) const MAX_DEPTH: u32 = 3;

/// The maximum bytes of shared memory besides tiles and queries: maximum and sum of each warp and
/// query.
pub(super) const MAX_STATS_BYTES: u32 = 8 * QUERIES * MAX_WARPS;

/// The maximum number of tiles per warp for which one block processes all positions of a head. Up
/// to this number, that is faster than merging the results of two blocks.
pub(super) const MAX_UNSPLIT_TILES: u32 = 3;

/// The number of partial results that a thread has in flight when it merges.
pub(super) const PARTIALS_IN_FLIGHT: u32 = 8;

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
    pub(super) fn row_bytes(&self) -> u32 {
        2 * self.head_dim + 16
    }

    /// Returns the bytes of the keys, or of the values, of a tile.
    pub(super) fn kv_tile_bytes(&self) -> u32 {
        TILE * self.row_bytes()
    }

    /// Returns the number of 16-byte chunks of a row.
    pub(super) fn row_chunks(&self) -> u32 {
        self.head_dim / 8
    }

    /// Returns the number of tiles that fit in a block, at least one.
    /// [`KernelDef::grid`](ptx_gen::KernelDef::grid) returns an error if not even one fits.
    fn tiles_that_fit(&self) -> u32 {
        (self
            .memory
            .saturating_sub(2 * QUERIES * self.row_bytes() + MAX_STATS_BYTES)
            / (2 * self.kv_tile_bytes()))
        .max(1)
    }

    /// Returns the number of warps of a block.
    pub(super) fn warps(&self) -> u32 {
        self.tiles_that_fit().min(MAX_WARPS)
    }

    /// Returns the number of resident tiles of a block.
    pub(super) fn tiles(&self) -> u32 {
        self.tiles_that_fit().min(MAX_DEPTH * self.warps())
    }

    /// Returns the number of resident tiles per warp. The last warps may have one less.
    pub(super) fn depth(&self) -> u32 {
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
