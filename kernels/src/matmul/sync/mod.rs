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

pub(super) mod block;
pub(super) mod definition;

use super::definition::{Epilogue, MatmulArgs};
use crate::format::tile::RowOrder;
use crate::shared::Contract;
use block::SyncBlock;
pub use definition::MatmulSync;
use definition::{PAIR, WARPS, WEIGHT_STAGES};
use ptx_gen::*;

impl MatmulSync {
    /// Checks all arguments.
    pub(crate) fn check_all(&self, a: &MatmulArgs<Shape>) -> Result<(), ShapeError> {
        self.multiple("the kernel's tokens", self.tokens, PAIR)?;
        self.range("the kernel's row_blocks", self.row_blocks, 1, 2)?;
        self.range("the kernel's tokens", self.tokens, PAIR, self.most_tokens())?;
        self.require(self.fits(), || {
            format!("{} tokens do not fit in shared memory", self.tokens)
        })?;
        a.check(self, self.format, self.rows, self.tokens, self.epilogue)
    }

    /// Returns the bytes of dynamic shared memory of a block.
    pub(crate) fn shared(&self) -> u32 {
        let panels = self.stages().unwrap_or(0) * self.panel_bytes();
        WEIGHT_STAGES * self.weight_bytes() + panels
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
        self.check_all(a)?;
        let blocks = a.blocks.min(self.jobs(a.rows, a.tokens_given));
        Ok(Grid {
            shared: self.shared(),
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
