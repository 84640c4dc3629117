//! The operands that these matmuls share: their tiles, their checks and their test data.

use crate::shared::tiled::Pair;
use crate::shared::{Contract, ProductTile, Random};
use crate::train::products::MatmulLayout;
use ptx_gen::*;

/// The tile of left operands, and of tensors that an epilogue reads.
pub(super) const X: TileOf<bf16> = ProductTile::left();

/// The tile of results.
pub(super) const Y: TileOf<bf16> = ProductTile::out();

/// The bound on the error of sums of numbers from -1 to 1, apart from the rounding of `y`.
///
/// It allows for tensor cores, which truncate the terms that they add.
pub(super) const BOUND: f64 = 2e-6;

/// Returns a matrix of random numbers from -1 to 1.
pub(super) fn matrix(random: &mut Random, [rows, columns]: [u32; 2]) -> CpuArg {
    let number = |_| bf16::from_f32(random.unit());
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

/// Returns the value of a scalar argument.
pub(super) fn scalar(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => 0,
    }
}

/// Returns a left operand `[rows, depth]` and a right operand, which is `[columns, depth]` for NT
/// and `[depth, columns]` for NN.
pub(super) fn pair<'k>(
    form: MatmulLayout,
    tile: ProductTile,
    left: TensorArg<'k, bf16, ReadOnly>,
    right: TensorArg<'k, bf16, ReadOnly>,
    depth: U32<'k>,
) -> Pair<'k, bf16> {
    let by_rows = form == MatmulLayout::Nn;
    Pair {
        left: left.of(X),
        right: right.of(tile.right(by_rows)),
        by_rows,
        depth,
    }
}

/// The sizes of a test case of a projection with its adapter.
#[derive(Clone, Copy)]
pub(super) struct ProjectionSizes {
    rows: u32,
    columns: u32,
    depth: u32,
    rank: u32,
    blocks: u32,
}

impl ProjectionSizes {
    /// Creates sizes from the arguments `rows`, `columns`, `depth`, `rank` and `blocks`.
    pub(super) fn new([rows, columns, depth, rank, blocks]: [u32; 5]) -> Self {
        ProjectionSizes {
            rows,
            columns,
            depth,
            rank,
            blocks,
        }
    }

    /// Returns the sizes in the arguments of a case, of which `rows` is argument `first`.
    pub(super) fn of_args(args: &[CpuArg], first: usize) -> Self {
        let sizes = [0, 1, 2, 3, 4].map(|i| scalar(&args[first + i]));
        ProjectionSizes::new(sizes)
    }

    /// Returns the sizes as arguments.
    pub(super) fn scalars(self) -> [CpuArg; 5] {
        let sizes = [self.rows, self.columns, self.depth, self.rank, self.blocks];
        sizes.map(CpuArg::scalar)
    }

    /// Returns the label of a case whose idle warps unpack `n` weights.
    pub(super) fn label(self, n: u32) -> String {
        let ProjectionSizes {
            rows,
            columns,
            depth,
            rank,
            blocks,
        } = self;
        format!("rows={rows} columns={columns} depth={depth} rank={rank} blocks={blocks} n={n}")
    }

    /// Returns the rows and columns of the result.
    pub(super) fn result(self) -> [u32; 2] {
        [self.rows, self.columns]
    }

    /// Returns the rows and columns of `x`, the weight, `u` and the adapter's matrix. Without an
    /// adapter, `u` and the matrix have a rank of 8, because a tensor map cannot be empty.
    pub(super) fn operands(self, form: MatmulLayout) -> [[u32; 2]; 4] {
        let rank = self.rank.max(8);
        let weight = match form {
            MatmulLayout::Nt => [self.columns, self.depth],
            _ => [self.depth, self.columns],
        };
        [
            [self.rows, self.depth],
            weight,
            [self.rows, rank],
            [rank, self.columns],
        ]
    }

    /// Returns the rows and columns of a parameter. `adapter` is the name of the adapter's matrix.
    pub(super) fn of_param(self, param: &str, form: MatmulLayout, adapter: &str) -> [u32; 2] {
        let [x, w, u, b] = self.operands(form);
        match param {
            "x" => x,
            "w" => w,
            "u" => u,
            _ if param == adapter => b,
            _ => self.result(),
        }
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
