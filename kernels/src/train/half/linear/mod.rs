//! Matmuls of a projection with its adapter on the tensor cores of sm_90a, forward and backward:
//!
//! ```text
//! NT: y  = factor (x W^T + u B^T) + bias + residual      W [columns, depth]
//! NN: dx = factor (dy W + du A) + residual               W [depth, columns]
//! ```
//!
//! `B` is given as `B^T` `[rank, columns]`, so the second pair of operands is `[rows, rank]` and
//! `[rank, columns]` in both layouts. It acts like `rank` more elements of `depth`: there is one
//! sum, rounded once.
//!
//! At the same time, the idle warps of a matmul unpack the NF4 matrix of the next matmul, as
//! [`AheadArgs`] describes.
//!
//! A rank below 64 takes a whole stage of the ring, most of it zeros. The module `tiled` describes
//! the tiles of these matmuls. computed is in `kernels/src/tiled.rs`.
//!
//! | kernel | result |
//! |---|---|
//! | [`LoraLinear`] | a projection, or the gradient of its input |
//! | [`LoraSwiGlu`] | the feed-forward block's second projection, followed by SwiGLU |
//! | [`LoraSum`] | the gradient of the common input of several projections |
//! | [`LoraSwiGluBackward`] | the gradient of the feed-forward block's last input, through SwiGLU |
//! | [`Logits`] | the logits |

mod ahead;
mod logits;
mod projection;
mod sum;
mod swiglu;
mod swiglu_backward;

pub use ahead::AheadArgs;
pub use logits::{Logits, LogitsArgs};
pub use projection::{LoraLinear, LoraLinearArgs, MapTiles};
pub use sum::{LoraSum, LoraSumArgs};
pub use swiglu::{LoraSwiGlu, LoraSwiGluArgs};
pub use swiglu_backward::{LoraSwiGluBackward, LoraSwiGluBackwardArgs};

use crate::case::Random;
use crate::contract::Contract;
use crate::tiled::ProductTile;
use ptx_gen::*;

/// The tile of left operands, and of tensors that an epilogue reads.
const X: TileOf<bf16> = ProductTile::left();
/// The tile of results.
const Y: TileOf<bf16> = ProductTile::out();

/// The bound on the error of sums of numbers from -1 to 1, apart from the rounding of `y`.
///
/// It allows for tensor cores, which truncate the terms that they add.
const BOUND: f64 = 2e-6;

fn matrix(random: &mut Random, rows: u32, columns: u32) -> CpuArg {
    let number = |_| bf16::from_f32(random.unit());
    CpuArg::Bf16((0..rows * columns).map(number).collect())
}

fn scalar(arg: &CpuArg) -> u32 {
    match arg {
        CpuArg::Scalar(bits) => *bits as u32,
        _ => 0,
    }
}

/// The sizes of a projection with its adapter, for the launch contract.
struct Operands {
    rows: u32,
    columns: u32,
    depth: u32,
    rank: u32,
    blocks: u32,
    /// The lengths of `x` and the weight.
    frozen: [usize; 2],
    /// The lengths of `u` and the adapter's matrix.
    adapter: [usize; 2],
}

impl Operands {
    /// Checks the operands. `b` is the name of the adapter's matrix.
    fn check(&self, kernel: &impl Contract, b: &str) -> Result<(), ShapeError> {
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
