//! The matmul of [`Matmul`](super::Matmul) with `mma.sync`, where each warp has its own sums, on
//! sm_80 and newer.
//!
//! A block of eight warps computes 128 or 256 rows for [`MatmulSync::tokens`] tokens at a time.
//! Each warp has one or two row blocks, unpacks their tiles, and multiplies them by all tokens of
//! the job. With two row blocks, the warp uses each activation that it reads twice. Tiles of
//! weights and panels of activations come through two rings in shared memory, which all threads
//! fill with 16-byte copies. A warp copies its own tiles, one ahead. The whole block copies panels.
//! A barrier before each panel ensures that the panel has arrived and that all warps are done with
//! the previous one.
//!
//! Products are added in the order of the columns, 16 at a time, as `wgmma` adds them. The results
//! are therefore bit-identical to `Matmul` where that does not split the columns. This kernel never
//! splits them.

mod block;

use super::activations::PANEL;
use super::epilogue::Epilogue;
use super::kernel::MatmulArgs;
use crate::contract::Contract;
use crate::format::Format;
use crate::format::tile::{self, ROWS, RowOrder};
use block::SyncBlock;
use ptx_gen::*;

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
const WARPS: u32 = 8;
/// The number of tokens of two matrix instructions.
const PAIR: u32 = 16;
/// The number of stages of the ring of weights.
const WEIGHT_STAGES: u32 = 2;

impl MatmulSync {
    /// The bytes of shared memory that a block has on every device from sm_80 on.
    pub const SMALL: u32 = 99 << 10;
    /// The bytes of shared memory that a block has on sm_80, sm_90 and sm_100.
    pub const LARGE: u32 = 163 << 10;

    /// Returns the number of stages of the ring of panels, or `None` if not even two fit.
    ///
    /// The ring may hold at most one panel more than a tile has. Panels are copied `stages - 1`
    /// ahead, and a tile must be requested together with or before its first panel.
    fn stages(&self) -> Option<u32> {
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
    fn most_tokens(&self) -> u32 {
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
    pub(super) fn job_blocks(&self) -> u32 {
        WARPS * self.row_blocks
    }

    /// Returns the bytes of a stage of weights.
    fn weight_bytes(&self) -> u32 {
        self.job_blocks() * tile::of(self.format).bytes
    }

    /// Returns the bytes of a stage of activations.
    fn panel_bytes(&self) -> u32 {
        self.tokens * 2 * PANEL
    }

    /// Returns the number of panels that a tile is multiplied by.
    fn tile_panels(&self) -> u32 {
        tile::of(self.format).columns / PANEL
    }
}

impl KernelDef for MatmulSync {
    type Args<S: Side> = MatmulArgs<S>;

    fn name(&self) -> String {
        let RowOrder {
            per,
            stride,
            step,
            delta,
        } = self.rows;
        let order = match self.rows {
            RowOrder::PLAIN | RowOrder::GATE_UP => String::new(),
            _ if matches!(self.epilogue, Epilogue::Append(_)) => "_pairs".into(),
            _ => format!("_rows{per}_{stride}_{step}_{delta}"),
        };
        let MatmulSync {
            tokens, row_blocks, ..
        } = self;
        format!(
            "matmul_sync_{}_{}_{tokens}x{row_blocks}{order}",
            self.epilogue.name(),
            self.format.suffix()
        )
    }

    fn block(&self) -> u32 {
        32 * WARPS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &MatmulArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's tokens", self.tokens, PAIR)?;
        self.range("the kernel's row_blocks", self.row_blocks, 1, 2)?;
        self.range("the kernel's tokens", self.tokens, PAIR, self.most_tokens())?;
        self.require(self.fits(), || {
            format!("{} tokens do not fit in shared memory", self.tokens)
        })?;
        a.check(self, self.format, self.rows, self.tokens, self.epilogue)?;
        let blocks = a.blocks.min(self.jobs(a.rows, a.tokens_given));
        let panels = self.stages().unwrap_or(0) * self.panel_bytes();
        Ok(Grid {
            shared: WEIGHT_STAGES * self.weight_bytes() + panels,
            ..Grid::line(blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulArgs<Dev<'k>>) {
        SyncBlock::new(k, self, &a).run();
    }

    fn reference(&self, mut a: MatmulArgs<Cpu<'_>>) {
        super::epilogue::reference(self.format, self.epilogue, self.rows, &mut a);
    }
}
