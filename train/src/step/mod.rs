//! A training step on a device: forward and backward of micro-batches, clip and AdamW, as graphs.
//!
//! A [`Trainer`] has two graphs. One is a micro-batch: it copies the next batch from the host's memory, goes forward and
//! backward, and adds to the gradients. The other is the last micro-batch of a step, which also clips and updates. A third
//! one, forward to the losses without dropout, is made when [`Trainer::evaluate`] is first called. All are written once, as
//! functions over a [`Queue`](warpwright_driver::Queue), so the same work can be captured or launched kernel by kernel: see
//! [`Launch`]. Nothing that changes from step to step is frozen in them; it is in device
//! memory, as [`warpwright_kernels::train::state`] says.
//!
//! All tensors are `f32`, and the kernels are simple ones: a thread sums an element of a product. This is the precision
//! that gates compare with the [reference](mod@crate::reference).
//!
//! | file | holds |
//! |---|---|
//! | `kernels.rs` | the loaded kernels |
//! | `sizes.rs` | the sizes of a step |
//! | `weights.rs` | frozen weights on the device |
//! | `adapters.rs` | adapters, moments and gradients, four flat buffers |
//! | `buffers.rs` | what the forward keeps, and workspace |
//! | `pass.rs` | products with adapters, which forward and backward share |
//! | `forward.rs`, `backward.rs` | the layers and the head |
//! | `optimizer.rs` | a micro-batch, its evaluation, clip and AdamW |
//! | `needs.rs` | memory, counted |
//! | `slots.rs` | batches in the host's memory |
//! | `trainer.rs` | graphs, launches and records |

mod adapters;
mod backward;
mod buffers;
mod forward;
mod kernels;
mod needs;
mod optimizer;
mod pass;
mod sizes;
mod slots;
mod trainer;
mod weights;

pub use needs::Needs;
pub use trainer::{Evaluation, Launch, Settings, Snapshot, Trainer};
pub use weights::Matrix;
