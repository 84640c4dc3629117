//! The tiles of the chosen experts of a layer, in the order in which a GEMV multiplies them.
//!
//! A mixture of experts has one matrix per expert, one after another. A GEMV reads the matrices of
//! the chosen experts as if they were one matrix: side by side along the rows (gate and up) or along
//! the columns (down). Only the producer warp knows the experts. The other warps see the tiles of
//! one matrix in their ring.

use super::choose_experts::{ChooseExperts, MAX_CHOSEN, MAX_EXPERTS};
use super::layout::SCRATCH;
use ptx_gen::*;

/// The tiles of the chosen experts.
pub(crate) struct ExpertTiles<'k> {
    pub(crate) source: ExpertSource<'k>,
    /// The number of experts of the layer.
    pub(crate) count: U32<'k>,
    /// The number of chosen experts.
    pub(crate) chosen: U32<'k>,
    /// The number of adjacent tiles of an expert in the order of the GEMV.
    pub(crate) run: U32<'k>,
    /// The number of runs of an expert.
    pub(crate) runs: U32<'k>,
    /// `[blocks, chosen]`: the chosen experts that each block publishes for the same block of the
    /// next GEMV, see [`published`].
    pub(crate) published: Ptr<'k, u32, ReadWrite>,
    /// The biases of the experts, if they have biases and the GEMV chooses the experts.
    pub(crate) biases: Option<ExpertBiases<'k>>,
}

/// The biases of the experts of a layer.
#[derive(Clone, Copy)]
pub(crate) struct ExpertBiases<'k> {
    /// `[count, width]`: the biases of the gate projections
    pub(crate) gate: Ptr<'k, f32, ReadOnly>,
    /// `[count, width]`: the biases of the up projections
    pub(crate) up: Ptr<'k, f32, ReadOnly>,
    /// `[count, hidden]`: the biases of the down projections
    pub(crate) down: Ptr<'k, f32, ReadOnly>,
    /// `[hidden]`: the sum of the chosen experts' biases of the down projections, each times the
    /// expert's weight
    pub(crate) sum: Ptr<'k, f32, WriteOnly>,
    /// The number of rows of a gate projection.
    pub(crate) width: U32<'k>,
    /// The number of rows of a down projection.
    pub(crate) hidden: U32<'k>,
}

/// The number of bits of an expert's index in a published word.
const INDEX_BITS: u32 = MAX_EXPERTS.ilog2();
const _: () = assert!(1 << INDEX_BITS == MAX_EXPERTS);

/// Returns the word that publishes the index of an expert: the index in the low bits, and the
/// sequence number of the GEMV that reads it. A reader resets the word to 0, so that it never finds
/// the word of an earlier token.
pub(crate) const fn published(index: u32, reader: u32) -> u32 {
    reader << INDEX_BITS | index
}

/// Returns the word that publishes an index, on the device.
pub(super) fn published_word<'k>(index: U32<'k>, reader: U32<'k>) -> U32<'k> {
    (reader << INDEX_BITS) | index
}

/// Returns true if the word is published for this reader.
pub(super) fn is_for<'k>(word: U32<'k>, reader: U32<'k>) -> Pred<'k> {
    ((word ^ (reader << INDEX_BITS)) >> INDEX_BITS).eq(0)
}

/// Returns the index in a published word.
pub(crate) const fn published_index(word: u32) -> u32 {
    word & (MAX_EXPERTS - 1)
}

/// The origin of the chosen experts' indices.
pub(crate) enum ExpertSource<'k> {
    /// Each block chooses the experts itself and publishes them.
    Router(ChooseExperts<'k>),
    /// The block with the same number in the previous GEMV publishes them.
    Previous,
}

/// The indices of the chosen experts in the shared memory of a block, which starts at `base`.
pub(super) fn shared_indices<'k>(base: Ptr<'k, u8, Shared>) -> Ptr<'k, u32, Shared> {
    scratch_indices(base.at(SCRATCH))
}

/// The indices of the chosen experts, in the epilogue's scratch space of a block.
pub(crate) fn scratch_indices<'k>(scratch: Ptr<'k, u8, Shared>) -> Ptr<'k, u32, Shared> {
    scratch.cast::<u32>()
}

/// The weights of the chosen experts, in the epilogue's scratch space of a block.
pub(crate) fn shared_weights<'k>(scratch: Ptr<'k, u8, Shared>) -> Ptr<'k, f32, Shared> {
    scratch.at(4 * MAX_CHOSEN).cast::<f32>()
}

/// The position of a tile: a chosen expert, its run, and the tile in the run.
#[derive(Clone, Copy)]
pub(super) struct ExpertTile<'k> {
    pub(super) slot: U32<'k>,
    row: U32<'k>,
    pub(super) within: U32<'k>,
}

impl<'k> ExpertTiles<'k> {
    /// Returns the position of tile `i` in the order of the GEMV.
    pub(super) fn tile(&self, i: U32<'k>) -> ExpertTile<'k> {
        let run = i / self.run;
        let row = run / self.chosen;
        ExpertTile {
            slot: run - row * self.chosen,
            row,
            within: i - run * self.run,
        }
    }

    /// Returns the position of the next tile.
    pub(super) fn next(&self, tile: ExpertTile<'k>) -> ExpertTile<'k> {
        let within = tile.within + 1;
        let past_run = within.eq(self.run);
        let slot = past_run.select(tile.slot + 1, tile.slot);
        let past_row = slot.eq(self.chosen);
        ExpertTile {
            slot: past_row.select(0, slot),
            row: past_row.select(tile.row + 1, tile.row),
            within: past_run.select(0, within),
        }
    }

    /// Returns the index of a tile among the tiles of all experts.
    pub(super) fn index(&self, expert: U32<'k>, tile: ExpertTile<'k>) -> U32<'k> {
        expert.mad(self.runs, tile.row).mad(self.run, tile.within)
    }
}
