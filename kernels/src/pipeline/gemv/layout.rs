//! The resources of a GEMV launch: blocks, row blocks per block, and the map of shared memory.
//!
//! Shared memory holds, in this order: full and empty barriers, sums of squares, the epilogue's
//! scratch space, the partial sums of the warps, activations, and the ring.

use super::plan::Plan;
use crate::format::Format;
use crate::format::activations::Encoding;
use crate::format::tile::{self, ROWS};

/// The maximum number of stages of a ring.
pub(super) const MAX_STAGES: u32 = 32;
/// The offset of the full barriers.
pub(super) const FULL: u32 = 0;
/// The offset of the empty barriers.
pub(super) const EMPTY: u32 = 8 * MAX_STAGES;
/// The offset of the sums of squares in a batch of one. In larger batches, the sums of squares are
/// stored directly before the partial sums, and this place holds the factors computed from them.
pub(super) const SQUARES: u32 = 2 * EMPTY;
/// The offset of the partial sums in a batch of one.
pub(super) const PARTIALS: u32 = 1024;
/// The bytes of a token's sums of squares: one sum per warp.
pub(super) const SQUARES_BYTES: u32 = 128;
/// The offset of the epilogue's scratch space, between the sums of squares and the partial sums.
pub(crate) const SCRATCH: u32 = SQUARES + 128;

/// The part of a launch configuration that depends on the device and the shape, but not on the
/// model's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The number of blocks of the grid: one for each SM.
    pub blocks: u32,
    /// The maximum number of row blocks of a block.
    pub max_row_blocks: u32,
    /// The number of stages of the ring.
    pub stages: u32,
    /// The bytes of shared memory.
    pub shared: u32,
}

/// The rows of a GEMV as segments. A segment is a format and a number of consecutive row blocks in
/// it.
#[derive(Clone, Debug)]
pub struct Segments(pub Vec<(Format, u32)>);

impl Segments {
    /// Returns the segments of consecutive matrices. Neighbors with equal formats are merged.
    pub fn of(matrices: impl IntoIterator<Item = (Format, u32)>) -> Segments {
        let mut segments: Vec<(Format, u32)> = vec![];
        for (format, count) in matrices {
            match segments.last_mut() {
                Some((last, sum)) if *last == format => *sum += count,
                _ => segments.push((format, count)),
            }
        }
        Segments(segments)
    }

    /// Returns the relative cost of a row block, which is proportional to its bytes.
    pub(super) const fn cost(bytes: u32) -> u32 {
        bytes / 32
    }

    /// Returns the total cost. All tiles of a GEMV have the same number of columns, so the tile's
    /// bytes determine the cost of a row block.
    fn total(&self) -> u64 {
        self.0
            .iter()
            .map(|&(format, count)| {
                u64::from(count) * u64::from(Segments::cost(tile::of(format).bytes))
            })
            .sum()
    }

    /// Partitions the segments by cost. Returns, for each segment, the row block at which block `i`
    /// of `blocks` starts.
    pub(crate) fn partition(&self, i: u32, blocks: u32) -> Vec<u32> {
        let mut from = 0;
        let place = u64::from(i) * self.total() / u64::from(blocks);
        let cut = |&(format, count): &(Format, u32)| {
            let cost = u64::from(Segments::cost(tile::of(format).bytes));
            let here = place.saturating_sub(from) / cost;
            from += u64::from(count) * cost;
            (here as u32).min(count)
        };
        self.0.iter().map(cut).collect()
    }

    /// Returns the maximum number of row blocks of one of `blocks` blocks.
    fn max_row_blocks(&self, blocks: u32) -> u32 {
        let sum = |i| self.partition(i, blocks).iter().sum::<u32>();
        (0..blocks).map(|i| sum(i + 1) - sum(i)).max().unwrap_or(0)
    }

    /// Returns the bytes of the largest tile.
    fn tile_bytes(&self) -> u32 {
        self.0
            .iter()
            .map(|&(format, _)| tile::of(format).bytes)
            .max()
            .unwrap_or(0)
    }

    /// Returns the encoding of the activations, or `None` if the formats need different encodings.
    pub(crate) fn encoding(&self, plan: Plan) -> Option<Encoding> {
        let first = plan.encoding(self.0.first()?.0)?;
        self.0
            .iter()
            .all(|&(format, _)| plan.encoding(format) == Some(first))
            .then_some(first)
    }

    /// Returns the layout of a GEMV over rows of `n` weights, or `None` if shared memory is too
    /// small for it.
    ///
    /// The ring gets as many stages as fit, rounded down to a multiple of the groups.
    pub fn layout(&self, plan: Plan, n: u32, blocks: u32, shared: u32) -> Option<Layout> {
        let max_row_blocks = self.max_row_blocks(blocks);
        let ring = ring_offset(plan, self.encoding(plan)?, n, max_row_blocks);
        let stage = plan.width * self.tile_bytes();
        let stages = shared.checked_sub(ring)? / stage;
        let stages = stages.min(MAX_STAGES) / plan.groups * plan.groups;
        (stages > 0).then_some(Layout {
            blocks,
            max_row_blocks,
            stages,
            shared,
        })
    }

    /// Checks a layout. The error message names the value that is wrong.
    pub(crate) fn check(&self, plan: Plan, n: u32, layout: Layout) -> Result<(), String> {
        let tile_columns = tile::of(self.0[0].0).columns;
        let Layout {
            blocks,
            max_row_blocks,
            stages,
            shared,
        } = layout;
        if n == 0 || !n.is_multiple_of(tile_columns) {
            return Err(format!(
                "n is {n}, must be a positive multiple of {tile_columns}"
            ));
        }

        if blocks == 0 || self.total() * u64::from(blocks) > u64::from(u32::MAX) {
            return Err(format!(
                "blocks is {blocks}, must be at least 1 and few enough to count in 32 bits"
            ));
        }

        if max_row_blocks < self.max_row_blocks(blocks) {
            return Err(format!(
                "max_row_blocks is {max_row_blocks}, must be at least {}",
                self.max_row_blocks(blocks)
            ));
        }

        let encoding = self
            .encoding(plan)
            .ok_or("the formats need different activations")?;
        let ring = ring_offset(plan, encoding, n, max_row_blocks);
        let needed = ring + stages * plan.width * self.tile_bytes();
        if stages == 0 || stages > MAX_STAGES || !stages.is_multiple_of(plan.groups) {
            return Err(format!(
                "stages is {stages}, must be a multiple of {} up to {MAX_STAGES}",
                plan.groups
            ));
        }

        if shared < needed {
            return Err(format!("shared is {shared}, must be at least {needed}"));
        }

        Ok(())
    }
}

/// Returns the offset of the partial sums.
pub(super) const fn partials_offset(plan: Plan) -> u32 {
    if plan.batch == 1 {
        PARTIALS
    } else {
        PARTIALS + SQUARES_BYTES * plan.batch
    }
}

/// Returns the bytes of a row block's partial sums, for all tokens and warps.
pub(super) const fn partials_bytes(plan: Plan) -> u32 {
    plan.batch * token_bytes(plan.warps())
}

/// Returns the bytes of one token's partial sums of a row block.
pub(super) const fn token_bytes(warps: u32) -> u32 {
    warps * ROWS * 4
}

/// Returns the offset of the ring, a multiple of 128.
pub(super) fn ring_offset(plan: Plan, encoding: Encoding, n: u32, max_row_blocks: u32) -> u32 {
    (partials_offset(plan) + max_row_blocks * partials_bytes(plan) + encoding.bytes(plan.batch * n))
        .next_multiple_of(128)
}
