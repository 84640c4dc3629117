//! A training step on a device: forward and backward passes over micro-batches, gradient clipping
//! and AdamW, launched as graphs.
//!
//! A [`Trainer`] has two graphs. The first processes one micro-batch: it copies the batch from host
//! memory, runs forward and backward, and adds to the gradients. The second processes the last
//! micro-batch of a step. It also clips the gradients and updates the adapters.
//! [`Trainer::evaluate`] builds a third graph on its first call, which runs forward without dropout
//! and stops at the losses.
//!
//! Each of them is written once, as a function over a [`Queue`](warpwright_driver::stream::Queue), so that
//! the work can be recorded, captured or launched kernel by kernel (see [`Launch`]). All values
//! that change from step to step are in device memory (see
//! [`state`](warpwright_kernels::train::optimizer::state)), so the graphs stay valid for all steps.
//!
//! [`Recomputation`] trades time for memory:
//!
//! - With [`Recomputation::Cheap`], all layers share one set of buffers for the projection inputs
//!   that a norm or SwiGLU computes. The backward pass computes them again from the activations
//!   that are kept.
//! - With [`Recomputation::Layers`], all layers share the activation buffers of one layer. The
//!   backward pass of each layer except the last first computes them again from the residual
//!   stream before the layer.
//!
//! The passes are written once (`passes/`), over operations that each [`Precision`] implements with
//! its kernels. The `f32` kernels (`single/`) are simple: one thread sums an element of a matmul.
//! Tests compare this precision with the [reference](mod@crate::reference). The `bf16` matmuls
//! (`half/`) run on tensor cores.
//!
//! | file | contents |
//! |---|---|
//! | `trainer.rs` | graphs, launches and records |
//! | `profile.rs` | the time of each kernel |
//! | `precision.rs` | the choice of the precision |
//! | `passes/` | the forward and backward passes |
//! | `single/` | the operations in `f32` |
//! | `half/` | the operations in `bf16` |
//! | `state.rs` | batches, counters, clip and AdamW |
//! | `adapters.rs` | adapters, moments and gradients in four flat buffers |
//! | `batch_slots.rs` | micro-batches in host memory |
//! | `weights.rs` | frozen weights |
//! | `buffers.rs` | activations and gradients |
//! | `element.rs` | the element types of activations |
//! | `sizes.rs` | the sizes of a step |
//! | `needs.rs` | the device memory that a trainer needs |

mod adapters;
mod batch_slots;
mod buffers;
mod element;
mod half;
mod needs;
mod passes;
mod precision;
mod profile;
mod single;
mod sizes;
mod state;
#[cfg(test)]
mod tests;
mod trainer;
mod weights;

pub use crate::settings::{Launch, Precision, Recomputation, Settings, Tiles, Unpacking};
pub use needs::TrainingNeeds;
pub use passes::run::StepPhase;
pub use profile::TimedKernel;
pub use trainer::{Evaluation, Snapshot, Trainer};
pub use weights::Matrix;
