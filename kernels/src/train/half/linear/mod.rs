//! Products of a projection with its adapter on the tensor cores of sm_90a, forward and backward:
//!
//! ```text
//! NT: y  = factor (x W^T + u B^T) + bias + residual      W [columns, depth]
//! NN: dx = factor (dy W + du A) + residual               W [depth, columns]
//! ```
//!
//! `B` is given as `B^T` `[rank, columns]`, so that in both forms the second pair of operands is `[rows, rank]` and
//! `[rank, columns]`. It is what `rank` more elements of `depth` would be: one sum, rounded once.
//!
//! A block has three warpgroups. One thread of the first asks for tiles of 64 elements of `depth`, into a ring of stages;
//! each of the others multiplies 64 rows of `x` with all columns of a tile. What is outside of a matrix is read as 0, so a
//! rank below 64 takes a stage, most of it zeros. A block takes tile after tile of `y`, in bands of 8 tiles of rows, column
//! after column, so that what is multiplied at a time is nearly square and comes from the L2 cache. What an epilogue adds or
//! multiplies sums with comes through the ring as well, after the last stage of the tile, while the products still run.
//!
//! | kernel | does |
//! |---|---|
//! | [`LoraLinear`] | a projection, or the gradient of its input |
//! | [`LoraSwiGlu`] | the feed-forward block's second projection, with SwiGLU behind it |
//! | [`LoraSum`] | the gradient of an input of several projections |
//! | [`LoraSwiGluBackward`] | the gradient of the feed-forward block's last input, through SwiGLU |
//! | [`Logits`] | logits |

mod logits;
mod projection;
mod sum;
mod swiglu;
mod swiglu_backward;
mod tiled;

pub use logits::{Logits, LogitsArgs};
pub use projection::{LoraLinear, LoraLinearArgs, MapTiles};
pub use sum::{LoraSum, LoraSumArgs};
pub use swiglu::{LoraSwiGlu, LoraSwiGluArgs};
pub use swiglu_backward::{LoraSwiGluBackward, LoraSwiGluBackwardArgs};

use crate::case::Random;
use ptx_gen::*;

/// The sum of a product's magnitudes is at most this many times its largest, and tensor cores cut off: a bound on what
/// sums of numbers from -1 to 1 lose, beside the rounding of `y`.
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
