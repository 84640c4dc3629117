//! A training step in `f64` on the CPU: the reference for the step on a device. It is meant for
//! models with a few thousand weights.
//!
//! A [`Model`] consists of frozen weights and the settings of its adapters. [`Model::gradients`]
//! computes the forward and backward pass of one micro-batch. A [`Trainer`] adds up micro-batches,
//! clips the gradients, and updates the adapters. The families differ only in their [`Weights`]:
//! `qwen2` has biases, `qwen3` has head norms, and a model without an LM head uses its embedding.
//!
//! Every operation goes through [`Ops`]. Its default methods are the references of the kernels. An
//! implementation can replace single operations, for example by kernels on a device, or by faults
//! that tests plant.
//!
//! Tensors that a device keeps in memory are rounded to the model's [`Storage`] once, when they are
//! stored. Sums inside an operation are not rounded.

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
