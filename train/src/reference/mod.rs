//! A training step in `f64` on the CPU, for models of a few thousand weights: what the step on a device must give.
//!
//! A [`Model`] is frozen weights and the settings of its adapters. [`Model::gradients`] is one micro-batch, forward and
//! backward; a [`Trainer`] adds micro-batches up, clips, and updates the adapters. What tells the families apart is in
//! the [`Weights`]: `qwen2` has biases, `qwen3` head norms, and a model without a head of its own uses its embedding.
//!
//! Every operation goes through [`Ops`]. Its default methods are the references of kernels; an implementation may
//! replace single ones, by kernels that run on a device, or by faults that tests plant.
//!
//! Tensors that a device keeps in memory are rounded to the model's [`Storage`], once, where they are stored; sums
//! inside of an operation are not.

mod adapters;
mod backward;
mod batch;
mod forward;
mod gradients;
mod head;
mod model;
mod ops;
mod run;
mod trainer;
mod weights;

pub use crate::weights::{LayerWeights, Weights};
pub use adapters::{Adapter, Adapters};
pub use backward::LayerGradients;
pub use batch::MicroBatch;
pub use forward::{Activations, LayerActivations, Rotated};
pub use gradients::Gradients;
pub use head::HeadResult;
pub use model::Model;
pub use ops::{Applied, Norm, Ops, References};
pub use trainer::{Moments, Record, State, Trainer};
pub use warpwright_kernels::train::Storage;
