//! A training step on a device: forward and backward passes over micro-batches, gradient clipping
//! and AdamW, launched as graphs.
//!
//! A [`Trainer`] has two graphs. The first processes one micro-batch: it copies the batch from host
//! memory, runs forward and backward, and adds to the gradients. The second processes the last
//! micro-batch of a step. It also clips the gradients and updates the adapters.
//! [`Trainer::evaluate`] builds a third graph on its first call, which runs forward without dropout
//! and stops at the losses.
//!
//! Each of them is written once, as a function over a [`Queue`](warpwright_driver::Queue), so that
//! the work can be recorded, captured or launched kernel by kernel (see [`Launch`]). All values
//! that change from step to step are in device memory (see
//! [`state`](warpwright_kernels::train::state)), so the graphs stay valid for all steps.
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
//! There are two implementations ([`Precision`]). The `f32` kernels are simple: one thread sums
//! an element of a matmul. Tests compare this precision with the
//! [reference](mod@crate::reference). The `bf16` matmuls run on tensor cores.
//!
//! | file | contents |
//! |---|---|
//! | `trainer.rs` | graphs, launches and records |
//! | `profile.rs` | the time of each kernel |
//! | `settings.rs` | the settings of a trainer |
//! | `precision.rs` | the choice of the implementation, and the phases of a step |
//! | `common.rs` | shared by both precisions: batches, counters, clip and AdamW |
//! | `sizes.rs` | the sizes of a step |
//! | `adapters.rs` | adapters, moments and gradients in four flat buffers |
//! | `slots.rs` | micro-batches in host memory |
//! | `needs.rs` | the device memory that a trainer needs |
//! | `kernels.rs`, `weights.rs`, `buffers.rs` | `f32`: loaded kernels, frozen weights, activations and workspace |
//! | `pass.rs` | `f32`: projections with adapters, used by forward and backward |
//! | `forward.rs`, `backward.rs` | `f32`: the layers and the LM head |
//! | `half/` | the implementation in `bf16` |

mod adapters;
mod backward;
mod buffers;
mod common;
mod forward;
#[cfg(test)]
mod graph_snapshot;
mod half;
mod kernels;
mod needs;
mod pass;
mod precision;
mod profile;
mod settings;
mod sizes;
mod slots;
mod trainer;
mod weights;

pub use needs::TrainingNeeds;
pub use precision::StepPhase;
pub use profile::TimedKernel;
pub use settings::{Launch, Precision, Recomputation, Settings, Tiles, Unpacking};
pub use trainer::{Evaluation, Snapshot, Trainer};
pub use weights::Matrix;
