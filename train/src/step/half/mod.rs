//! A training step in `bf16` on the tensor cores of sm_90a.
//!
//! Tensors in memory are `bf16`, and sums are `f32`. Adapters, moments and gradients are `f32`.
//! Each forward pass begins by rounding the adapters to a `bf16` copy.
//!
//! One matmul kernel computes a projection together with its adapter, bias and residual. Likewise,
//! one kernel computes the gradient of an input that several projections share (see
//! [`linear`](warpwright_kernels::train::half::linear)). Idle warps of a matmul unpack the NF4
//! matrix of the next one ([`Unpacking`](crate::settings::Unpacking)). Only the update waits for
//! the gradients of adapters.
//!
//! | file | contents |
//! |---|---|
//! | `step.rs` | the kernels, weights and buffers of a step |
//! | `limits.rs` | the supported sizes |
//! | `kernels.rs` | the loaded kernels, and the choice of a matmul's tile |
//! | `maps.rs` | tensor maps, each created on first use |
//! | `packed.rs` | the NF4 matrices of a layer in one buffer |
//! | `scratch.rs` | scratch buffers |
//! | `workspaces.rs` | the positions of unpacked matrices in the workspaces |
//! | `unpacked.rs` | unpacking of frozen matrices |
//! | `linear.rs` | launches of matmuls, with adapters |
//! | `projections.rs` | projections, forward and backward |
//! | `operations.rs` | the operations of a pass |

mod kernels;
mod limits;
mod linear;
mod maps;
mod operations;
mod packed;
mod projections;
mod scratch;
mod step;
mod unpacked;
mod workspaces;

pub(super) use limits::{padded, unsupported};
pub(super) use scratch::Bf16Scratch;
pub(super) use step::Bf16Step;
