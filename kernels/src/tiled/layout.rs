//! What a launch of a product takes of the device: blocks, row blocks of each, and the map of their shared memory.
//!
//! From its beginning: barriers of full and of empty stages, sums of squares, the epilogue's own part, the warps' parts
//! of sums, activations, and up to the end the ring.

use super::activation::Encoding;
use super::plan::Plan;
use super::product::tile;
use super::tile::ROWS;
use crate::format::Format;

/// The most stages of a ring.
pub(super) const MOST_STAGES: u32 = 32;
/// Where barriers of full stages are, of empty stages, sums of squares, and the consumers' parts of sums. Of several
/// columns, the factors that follow from the sums of squares are in place of these, which stand before the parts.
pub(super) const FULL: u32 = 0;
pub(super) const EMPTY: u32 = 8 * MOST_STAGES;
pub(super) const SQUARES: u32 = 2 * EMPTY;
pub(super) const PARTS: u32 = 1024;
/// Bytes of a column's sums of squares: one for each warp.
pub(super) const SQUARES_BYTES: u32 = 128;
/// What a kernel's epilogue may use, between the sums of squares and the parts.
pub(crate) const SCRATCH: u32 = SQUARES + 128;

/// The part of a launch that follows from the device and the shape, not from the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Blocks of the grid: one for each multiprocessor.
    pub blocks: u32,
    /// Row blocks of the fullest block.
    pub parts: u32,
    /// Stages of the ring.
    pub stages: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

/// The rows of a product: runs of row blocks in one format each.
#[derive(Clone, Debug)]
pub struct Runs(pub Vec<(Format, u32)>);

impl Runs {
    /// The runs of matrices that follow each other: those of one format are one run.
    pub fn of(matrices: impl IntoIterator<Item = (Format, u32)>) -> Runs {
        let mut runs: Vec<(Format, u32)> = vec![];
        for (format, count) in matrices {
            match runs.last_mut() {
                Some((last, sum)) if *last == format => *sum += count,
                _ => runs.push((format, count)),
            }
        }
        Runs(runs)
    }

    /// What a row block of the format costs, against one of another format: its bytes.
    pub(super) const fn cost(bytes: u32) -> u32 {
        bytes / 32
    }

    /// The whole cost. All tiles of a product have the same number of columns.
    fn total(&self) -> u64 {
        self.0
            .iter()
            .map(|&(format, count)| u64::from(count) * u64::from(Runs::cost(tile(format).bytes)))
            .sum()
    }

    /// The row blocks of each run that block `i` of `blocks` begins with.
    pub(crate) fn cuts(&self, i: u32, blocks: u32) -> Vec<u32> {
        let mut from = 0;
        let place = u64::from(i) * self.total() / u64::from(blocks);
        let cut = |&(format, count): &(Format, u32)| {
            let cost = u64::from(Runs::cost(tile(format).bytes));
            let here = place.saturating_sub(from) / cost;
            from += u64::from(count) * cost;
            (here as u32).min(count)
        };
        self.0.iter().map(cut).collect()
    }

    /// The row blocks of the fullest of `blocks` blocks.
    fn most(&self, blocks: u32) -> u32 {
        let sum = |i| self.cuts(i, blocks).iter().sum::<u32>();
        (0..blocks).map(|i| sum(i + 1) - sum(i)).max().unwrap_or(0)
    }

    /// The largest tile, in bytes.
    fn tile_bytes(&self) -> u32 {
        self.0.iter().map(|&(format, _)| tile(format).bytes).max().unwrap_or(0)
    }

    /// How the columns' activations are encoded; `None` if the formats do not agree.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        let first = Encoding::of(self.0.first()?.0)?;
        self.0.iter().all(|&(format, _)| Encoding::of(format) == Some(first)).then_some(first)
    }

    /// The layout of a product with `n` columns; `None` if the shared memory is too small for it.
    ///
    /// As many stages as fit, up to a whole number of turns of the groups.
    pub fn layout(&self, plan: Plan, n: u32, blocks: u32, shared: u32) -> Option<Layout> {
        let parts = self.most(blocks);
        let ring = ring_offset(plan, self.encoding()?, n, parts);
        let stage = plan.width * self.tile_bytes();
        let stages = shared.checked_sub(ring)? / stage;
        let stages = stages.min(MOST_STAGES) / plan.groups * plan.groups;
        (stages > 0).then_some(Layout { blocks, parts, stages, shared })
    }

    /// What is wrong with a layout.
    pub(crate) fn check(&self, plan: Plan, n: u32, layout: Layout) -> Result<(), String> {
        let columns = tile(self.0[0].0).columns;
        let Layout { blocks, parts, stages, shared } = layout;
        if n == 0 || !n.is_multiple_of(columns) {
            return Err(format!("n is {n}, must be a positive multiple of {columns}"));
        }
        if blocks == 0 || self.total() * u64::from(blocks) > u64::from(u32::MAX) {
            return Err(format!("blocks is {blocks}, must be at least 1 and few enough to count in 32 bits"));
        }
        if parts < self.most(blocks) {
            return Err(format!("parts is {parts}, must be at least {}", self.most(blocks)));
        }
        let encoding = self.encoding().ok_or("the formats need different activations")?;
        let ring = ring_offset(plan, encoding, n, parts);
        let needed = ring + stages * plan.width * self.tile_bytes();
        if stages == 0 || stages > MOST_STAGES || !stages.is_multiple_of(plan.groups) {
            return Err(format!(
                "stages is {stages}, must be a multiple of {} up to {MOST_STAGES}",
                plan.groups
            ));
        }
        if shared < needed {
            return Err(format!("shared is {shared}, must be at least {needed}"));
        }
        Ok(())
    }
}

/// Where the parts of sums begin.
pub(super) const fn parts_offset(plan: Plan) -> u32 {
    if plan.columns == 1 { PARTS } else { PARTS + SQUARES_BYTES * plan.columns }
}

/// Bytes of a row block's parts of sums: for each column, of each warp.
pub(super) const fn part_bytes(plan: Plan) -> u32 {
    plan.columns * column_bytes(plan.warps())
}

/// The same of one column.
pub(super) const fn column_bytes(warps: u32) -> u32 {
    warps * ROWS * 4
}

/// Where the ring begins: a multiple of 128.
pub(super) fn ring_offset(plan: Plan, encoding: Encoding, n: u32, parts: u32) -> u32 {
    (parts_offset(plan) + parts * part_bytes(plan) + encoding.bytes(plan.columns * n)).next_multiple_of(128)
}
