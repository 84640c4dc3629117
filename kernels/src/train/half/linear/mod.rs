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
//! A rank below 64 takes a whole stage of the ring, most of it zeros. `shared/tiled.rs` describes
//! the tiles of these matmuls.
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
mod operands;
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
