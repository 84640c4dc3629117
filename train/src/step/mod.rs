//! A training step on a device: forward and backward of micro-batches, clip and AdamW, as graphs.
//!
//! A [`Trainer`] has two graphs. One is a micro-batch: it copies the next batch from the host's
//! memory, goes forward and backward, and adds to the gradients. The other is the last micro-batch
//! of a step, which also clips and updates. A third one, forward to the losses without dropout, is
//! made when [`Trainer::evaluate`] is first called. All are written once, as functions over a
//! [`Queue`](warpwright_driver::Queue), so the same work can be captured or launched kernel by
//! kernel: see [`Launch`]. Nothing that changes from step to step is frozen in them; it is in
//! device memory, as [`warpwright_kernels::train::state`] says.
//!
//! With [`Recomputation::Cheap`] all layers share the inputs of their projections that a norm or
//! SwiGLU gives, which the backward makes again of what is kept. With [`Recomputation::Layers`] all
//! layers share the buffers of one, in which the forward leaves what the backward reads; the
//! backward of each layer but the last begins by computing them again from the residual stream
//! before the layer.
//!
//! There are two passes ([`Precision`]). In `f32` the kernels are simple ones: a thread sums an
//! element of a product. This is the precision that gates compare with the
//! [reference](mod@crate::reference). In `bf16` the products are on tensor cores.
//!
//! | file | holds |
//! |---|---|
//! | `trainer.rs` | graphs, launches and records |
//! | `profile.rs` | the time of each kernel |
//! | `settings.rs` | what shapes a trainer |
//! | `precision.rs` | the pass in either precision, and what is launched of it |
//! | `common.rs` | what both have: batches, counters, clip and AdamW |
//! | `sizes.rs` | the sizes of a step |
//! | `adapters.rs` | adapters, moments and gradients, four flat buffers |
//! | `slots.rs` | batches in the host's memory |
//! | `needs.rs` | memory, counted |
//! | `kernels.rs`, `weights.rs`, `buffers.rs` | in `f32`: the loaded kernels, frozen weights, what the forward keeps and workspace |
//! | `pass.rs` | in `f32`: products with adapters, which forward and backward share |
//! | `forward.rs`, `backward.rs` | in `f32`: the layers and the head |
//! | `half/` | the same in `bf16` |

mod adapters;
mod backward;
mod buffers;
mod common;
mod forward;
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
