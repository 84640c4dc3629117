//! The operands that these matmuls share: their tiles, their checks and their test data.

use crate::shared::{Contract, ProductTile, Random};
use ptx_gen::*;

/// The tile of left operands, and of tensors that an epilogue reads.
pub(super) const X: TileOf<bf16> = ProductTile::left();

/// The tile of results.
pub(super) const Y: TileOf<bf16> = ProductTile::out();

/// The bound on the error of sums of numbers from -1 to 1, apart from the rounding of `y`.
///
/// It allows for tensor cores, which truncate the terms that they add.
pub(super) const BOUND: f64 = 2e-6;

pub(super) fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    let number = |_| bf16::from_f32(random.unit());
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

pub(super) fn scalar(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => 0,
    }
}

/// The sizes of a projection with its adapter, for the launch contract.
pub(super) struct Operands {
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) depth: u32,
    pub(super) rank: u32,
    pub(super) blocks: u32,
    /// The lengths of `x` and the weight.
    pub(super) frozen: [usize; 2],
    /// The lengths of `u` and the adapter's matrix.
    pub(super) adapter: [usize; 2],
}

impl Operands {
    /// Checks the operands. `b` is the name of the adapter's matrix.
    pub(super) fn check(&self, kernel: &impl Contract, b: &str) -> Result<(), ShapeError> {
        let Operands {
            rows,
            columns,
            depth,
            rank,
            ..
        } = *self;
        kernel.range("rows", rows, 1, 1 << 24)?;
        kernel.range("blocks", self.blocks, 1, 1 << 16)?;
        kernel.multiple("columns", columns, 8)?;
        kernel.multiple("depth", depth, 8)?;
        kernel.require(rank.is_multiple_of(8), || {
            format!("rank is {rank}, must be a multiple of 8")
        })?;
        kernel.length("x", self.frozen[0], "rows * depth", &[rows, depth])?;
        kernel.length("w", self.frozen[1], "columns * depth", &[columns, depth])?;
        if rank > 0 {
            kernel.length("u", self.adapter[0], "rows * rank", &[rows, rank])?;
            kernel.length(b, self.adapter[1], "rank * columns", &[rank, columns])?;
        }
        Ok(())
    }
}
