//! The kernel's fields, its arguments, and the sizes that follow from them.

use crate::format::Format;
use crate::format::tile::{self, ROWS, RowOrder};
use crate::matmul::activations::PANEL;
use crate::matmul::definition::Epilogue;

/// Kernel that multiplies with `mma.sync`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MatmulSync {
    /// The format of `W`.
    pub format: Format,
    /// The use of the sums.
    pub epilogue: Epilogue,
    /// The order of the result's rows in the tiles.
    pub rows: RowOrder,
    /// The number of tokens of a job, a multiple of 16: up to 128 with one row block per warp, up
    /// to 96 with two.
    pub tokens: u32,
    /// The number of row blocks of a warp: 1, or 2 for devices with [`LARGE`](MatmulSync::LARGE)
    /// bytes of shared memory.
    pub row_blocks: u32,
}

/// The number of warps of a block.
pub(super) const WARPS: u32 = 8;

/// The number of tokens of two matrix instructions.
pub(super) const PAIR: u32 = 16;

/// The number of stages of the ring of weights.
pub(super) const WEIGHT_STAGES: u32 = 2;

impl MatmulSync {
    /// The bytes of shared memory that a block has on every device from sm_80 on.
    pub const SMALL: u32 = 99 << 10;
    /// The bytes of shared memory that a block has on sm_80, sm_90 and sm_100.
    pub const LARGE: u32 = 163 << 10;

    /// Returns the number of stages of the ring of panels, or `None` if not even two fit.
    ///
    /// The ring may hold at most one panel more than a tile has. Panels are copied `stages - 1`
    /// ahead, and a tile must be requested together with or before its first panel.
    pub(super) fn stages(&self) -> Option<u32> {
        let capacity = if self.row_blocks == 1 {
            MatmulSync::SMALL
        } else {
            MatmulSync::LARGE
        };
        let panels =
            capacity.checked_sub(self.weight_bytes() * WEIGHT_STAGES)? / self.panel_bytes();
        Some(panels.min(self.tile_panels() + 1).min(4)).filter(|&stages| stages >= 2)
    }

    /// Returns the maximum number of tokens of a job. More sums do not fit in a thread's 255
    /// registers next to the weights.
    pub(super) fn most_tokens(&self) -> u32 {
        if self.row_blocks == 1 { 128 } else { 96 }
    }

    /// Returns true if the sums fit in the registers, and the rings in the shared memory of the
    /// kernel's devices. Wide tiles leave less space for tokens.
    pub fn fits(&self) -> bool {
        self.tokens <= self.most_tokens() && self.stages().is_some()
    }

    /// Returns the number of jobs for a matrix of `rows` rows and `tokens` tokens.
    pub fn jobs(&self, rows: u32, tokens: u32) -> u32 {
        (rows / ROWS).div_ceil(self.job_blocks()) * tokens.div_ceil(self.tokens)
    }

    /// Returns the number of row blocks of a job.
    pub(crate) fn job_blocks(&self) -> u32 {
        WARPS * self.row_blocks
    }

    /// Returns the bytes of a stage of weights.
    pub(super) fn weight_bytes(&self) -> u32 {
        self.job_blocks() * tile::of(self.format).bytes
    }

    /// Returns the bytes of a stage of activations.
    pub(super) fn panel_bytes(&self) -> u32 {
        self.tokens * 2 * PANEL
    }

    /// Returns the number of panels that a tile is multiplied by.
    pub(super) fn tile_panels(&self) -> u32 {
        tile::of(self.format).columns / PANEL
    }
}
