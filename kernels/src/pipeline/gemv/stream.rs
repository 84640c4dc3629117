//! The body that all GEMVs over tiles share: a producer warp loads tiles, and consumer warps
//! multiply them.
//!
//! Each block has a range of row blocks and reads their tiles in order, so the device reads each
//! byte of the matrix once. A producer warp copies the tiles into a ring of stages in shared
//! memory, a few tiles per stage. It starts immediately, because weights never change. The
//! activations are read after the previous kernels have completed. Blocks of two kernels fit on an
//! SM at the same time, so memory stays busy across the boundary between two kernels.
//!
//! # Throttled prefetch
//!
//! A prefetched ring delays the previous kernel's own loads. A plan may therefore limit the
//! prefetch to some of the stages. The rest is loaded once the previous GEMV has issued all its
//! loads, when memory would otherwise be idle. Each block publishes a progress flag after its last
//! load, and the same block of the next GEMV polls it.
//!
//! The first pass over the ring is also throttled: only a few loads are in flight at a time. More
//! would only queue in the memory system, and the previous kernel is about to request its
//! activations.
//!
//! # Older devices
//!
//! Bulk copies and overlap need sm_90. On older devices, all lanes of the producer warp copy 16
//! bytes each, and a block occupies its SM alone.
//!
//! # Deterministic sums
//!
//! The consumer warps form groups, which process stages round-robin. Each warp of a group takes one
//! tile of a stage and thus contributes to every row of the block. It stores its partial sums in
//! shared memory, where they are added in the order of the warps. The result is therefore
//! deterministic.

use super::expert_tiles::ExpertTiles;
use super::layout::*;
use super::load_activations::Gamma;
use super::lora::Tail;
use super::plan::{Copies, Plan, Timestamp};
use super::ring::Ring;
use crate::format::activations::Activations;
use crate::format::{Format, tile};
use crate::pipeline::block_float::BlockFloat;
use ptx_gen::*;

args! {
    /// The arguments that all GEMVs share, after their own: the layout, and the data that lets them
    /// overlap.
    pub struct StreamArgs {
        /// The number of blocks of the grid.
        blocks: u32,
        /// The maximum number of row blocks of a block.
        max_row_blocks: u32,
        /// The number of stages of the ring.
        stages: u32,
        /// The bytes of shared memory.
        shared: u32,
        /// `[blocks]`: progress flags. Each is the sequence number of the latest GEMV whose block
        /// has issued its last load.
        progress: InOut<u32>,
        /// The sequence number of this GEMV among the GEMVs of a token. With a prefetch limit, the
        /// kernel polls `progress` for the previous number before it fills the rest of its ring.
        sequence: u32,
        /// `[blocks, 8]`: timestamps, if the plan profiles. See
        /// [`Timestamp`](super::plan::Timestamp).
        timestamps: Out<u64>,
    }
}

impl StreamArgs<Shape> {
    /// Returns the layout.
    pub(crate) fn layout(&self) -> Layout {
        let StreamArgs {
            blocks,
            max_row_blocks,
            stages,
            shared,
            ..
        } = *self;
        Layout {
            blocks,
            max_row_blocks,
            stages,
            shared,
        }
    }
}

/// The GEMV inside a kernel, which streams its weights.
pub(crate) struct WeightStream<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) plan: Plan,
    /// The segments of row blocks, in the order of their tiles.
    pub(crate) segments: Vec<(Format, U32<'k>)>,
    pub(crate) tiles: Ptr<'k, u8, ReadOnly>,
    pub(crate) n: U32<'k>,
    pub(crate) args: StreamArgs<Dev<'k>>,
    /// The adapter whose contribution is added to the sums.
    pub(crate) tail: Option<Tail<'k>>,
    /// The chosen experts, if the tiles are the experts of a layer instead of one matrix.
    pub(crate) experts: Option<ExpertTiles<'k>>,
}

/// A block's share of a segment.
pub(super) struct BlockShare<'k> {
    pub(super) format: Format,
    /// The first row block, relative to the segment.
    pub(super) first: U32<'k>,
    pub(super) count: U32<'k>,
    /// The address of the share's first tile.
    pub(super) tiles: Ptr<'k, u8, ReadOnly>,
    /// The number of tiles.
    pub(super) len: U32<'k>,
    /// The number of row blocks of earlier segments in this block.
    pub(super) before: U32<'k>,
}

/// The input of a GEMV.
pub(crate) enum Input<'k, G = Ptr<'k, f32, ReadOnly>> {
    /// The block floating point output of a previous kernel.
    BlockFloat(BlockFloat<'k, Fresh>),
    /// The residual stream, with the norm's weights and epsilon.
    Normed {
        x: Ptr<'k, f32, Fresh>,
        gamma: G,
        epsilon: F32<'k>,
    },
}

impl<'k> Input<'k> {
    /// Loads the first weights of the norm into registers.
    pub(super) fn with_gamma(
        self,
        load: impl FnOnce(Ptr<'k, f32, ReadOnly>) -> Gamma<'k>,
    ) -> Input<'k, Gamma<'k>> {
        match self {
            Input::BlockFloat(x) => Input::BlockFloat(x),
            Input::Normed { x, gamma, epsilon } => Input::Normed {
                x,
                gamma: load(gamma),
                epsilon,
            },
        }
    }
}

/// The named barrier at which the ring and the activations are ready.
pub(super) const READY: u32 = 1;
/// The named barrier of the consumers.
pub(super) const CONSUMERS: u32 = 2;
/// The named barrier after the initialization of the ring's mbarriers. It is used only if
/// timestamps are recorded.
pub(super) const BARRIERS_READY: u32 = 3;

impl<'k> WeightStream<'k> {
    /// Returns the ring, whose stages follow the activations.
    pub(super) fn ring(&self, base: Ptr<'k, u8, Shared>, x: &Activations<'k>) -> Ring<'k> {
        let bytes = self
            .segments
            .iter()
            .map(|&(format, _)| tile::of(format).bytes)
            .max()
            .expect("a segment");
        Ring {
            base,
            stages: x.end(),
            size: self.plan.width * bytes,
            count: self.args.stages,
        }
    }

    /// Returns the number of tiles of a row.
    pub(super) fn row_tiles(&self) -> U32<'k> {
        self.n / tile::of(self.segments[0].0).columns
    }

    /// Records a timestamp in the threads where `who` is true, if the plan profiles.
    pub(super) fn timestamp(&self, who: Pred<'k>, timestamp: Timestamp) {
        if self.plan.profile {
            timestamp.record(self.k, who, self.args.timestamps);
        }
    }

    /// Computes the shares of this block on the device, as [`Segments::partition`] does on the
    /// host.
    pub(super) fn shares(&self) -> Vec<BlockShare<'k>> {
        let k = self.k;
        let row_tiles = self.row_tiles();
        let cost = |format| Segments::cost(tile::of(format).bytes);
        let total = self
            .segments
            .iter()
            .map(|&(format, count)| count * cost(format))
            .reduce(|a, b| a + b);
        let total = total.expect("a segment");

        // Blocks get equal costs and not equal numbers of tiles, because the tiles of the formats
        // differ in size.
        let bounds = [k.ctaid(), k.ctaid() + 1].map(|i| i * total / self.args.blocks);
        let mut from = k.val(0);
        let mut tiles = self.tiles;
        let mut before = k.val(0);
        let mut shares = vec![];
        for &(format, count) in &self.segments {
            let [first, end] =
                bounds.map(|bound| ((bound.max(from) - from) / cost(format)).min(count));
            let bytes = tile::of(format).bytes;
            let mine = tiles.row(first * row_tiles, bytes);
            let share = end - first;
            shares.push(BlockShare {
                format,
                first,
                count: share,
                tiles: mine,
                len: share * row_tiles,
                before,
            });
            tiles = tiles.row(count * row_tiles, bytes);
            from = from + count * cost(format);
            before = before + share;
        }

        shares
    }

    /// Waits until the phase of this parity is complete.
    pub(super) fn wait(&self, barrier: Mbarrier<'k>, parity: impl Src<'k, u32>) {
        // `mbarrier.try_wait` needs sm_90. Older devices poll with `test_wait`.
        match self.plan.copies {
            Copies::Bulk => barrier.wait(parity),
            Copies::Async => barrier.wait_polling(parity),
        }
    }
}
