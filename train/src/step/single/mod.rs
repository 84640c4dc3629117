//! A training step in `f32`, for models of every size on every device.
//!
//! The kernels are simple: one thread sums an element of a matmul. Matmuls and the backward of a
//! norm add to their outputs, so an output that starts as zeros is filled first.
//!
//! | file | contents |
//! |---|---|
//! | `step.rs` | the kernels, weights and buffers of a step |
//! | `kernels.rs` | the loaded kernels |
//! | `scratch.rs` | scratch buffers |
//! | `matmul.rs` | matmuls, and the frozen matrices that they read |
//! | `operations.rs` | the operations of a pass |

mod kernels;
mod matmul;
mod operations;
mod scratch;
mod step;

pub(super) use scratch::F32Scratch;
pub(super) use step::F32Step;
