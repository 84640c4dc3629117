//! The same product as [`Matmul`](super::Matmul) with `mma.sync`, whose sums a warp has for itself: sm_80.
//!
//! A block of eight warps computes 128 or 256 rows for [`MatmulSync::tokens`] tokens at a time. Each warp has one or two
//! row blocks, unpacks their tiles, and multiplies them with all tokens of the job; with two, what it reads of the
//! activations is used twice. Tiles of weights and panels of activations come through two rings in shared memory, which
//! all threads fill by copies of 16 bytes. A warp copies its own tiles, one ahead; panels are copied by the whole block,
//! and a barrier before each says that it has landed, and that everybody has done with the one before.
//!
//! A sum is added in the order of the columns, 16 at a time, as `wgmma` adds it. The bits of the two are the same where
//! `Matmul` does not split the columns; this kernel never does.

mod block;

use super::activations::PANEL;
use super::epilogue::Epilogue;
use super::product::MatmulArgs;
use crate::contract::Contract;
use crate::format::Format;
use crate::format::tile::{self, ROWS, RowOrder};
use block::Block;
use ptx_gen::*;

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MatmulSync {
    /// The format of `W`.
    pub format: Format,
    /// What is done with the sums.
    pub epilogue: Epilogue,
    /// Which row of the result a row of a tile is.
    pub rows: RowOrder,
    /// Tokens of a job, a multiple of 16: up to 128 with one row block a warp, up to 96 with two.
    pub tokens: u32,
    /// Row blocks of a warp: 1, or 2 for devices with [`LARGE`](MatmulSync::LARGE) bytes of shared memory.
    pub row_blocks: u32,
}

/// Warps of a block.
const WARPS: u32 = 8;
/// Tokens of two matrix instructions.
const PAIR: u32 = 16;
/// Stages of the ring of weights.
const WEIGHT_STAGES: u32 = 2;

impl MatmulSync {
    /// Shared memory of a block of every device from sm_80 on, in bytes.
    pub const SMALL: u32 = 99 << 10;
    /// The same of sm_80, sm_90 and sm_100.
    pub const LARGE: u32 = 163 << 10;

    /// Stages of the ring of panels; `None` if not even two fit.
    ///
    /// A tile is asked for with the panel that is a turn less one after the tile's own first, so a turn may have one
    /// panel more than a tile.
    fn stages(&self) -> Option<u32> {
        let room = if self.row_blocks == 1 {
            MatmulSync::SMALL
        } else {
            MatmulSync::LARGE
        };
        let panels = room.checked_sub(self.weight_bytes() * WEIGHT_STAGES)? / self.panel_bytes();
        Some(panels.min(self.tile_panels() + 1).min(4)).filter(|&stages| stages >= 2)
    }

    /// The most tokens of a job: more sums do not fit in a thread's 255 registers beside the weights.
    fn most_tokens(&self) -> u32 {
        if self.row_blocks == 1 { 128 } else { 96 }
    }

    /// Whether the sums fit in the registers, and the rings in the shared memory of the kernel's devices: wide tiles leave
    /// less room for tokens.
    pub fn fits(&self) -> bool {
        self.tokens <= self.most_tokens() && self.stages().is_some()
    }

    /// Jobs for a matrix of so many rows and so many tokens.
    pub fn jobs(&self, rows: u32, tokens: u32) -> u32 {
        (rows / ROWS).div_ceil(self.job_blocks()) * tokens.div_ceil(self.tokens)
    }

    /// Row blocks of a job.
    pub(super) fn job_blocks(&self) -> u32 {
        WARPS * self.row_blocks
    }

    /// Bytes of a stage of weights.
    fn weight_bytes(&self) -> u32 {
        self.job_blocks() * tile::of(self.format).bytes
    }

    fn panel_bytes(&self) -> u32 {
        self.tokens * 2 * PANEL
    }

    /// Panels that a tile is multiplied with.
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
        a.check(self, (self.format, self.rows, self.tokens), self.epilogue)?;
        let blocks = a.blocks.min(self.jobs(a.rows, a.tokens_given));
        let panels = self.stages().unwrap_or(0) * self.panel_bytes();
        Ok(Grid {
            shared: WEIGHT_STAGES * self.weight_bytes() + panels,
            ..Grid::line(blocks)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MatmulArgs<Dev<'k>>) {
        Block::new(k, self, &a).run();
    }

    fn reference(&self, mut a: MatmulArgs<Cpu<'_>>) {
        super::epilogue::reference(self.format, self.epilogue, self.rows, &mut a);
    }
}
