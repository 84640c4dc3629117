//! The GEMV inside the kernels of the pipeline: a stream of weight tiles, the activations that it
//! multiplies, and the epilogue that uses the sums.

pub(crate) mod case;
pub mod choose_experts;
pub(crate) mod consumer;
pub(crate) mod epilogue;
mod expert_biases;
mod expert_producer;
pub(crate) mod expert_tiles;
pub(crate) mod layout;
pub(crate) mod load_activations;
pub mod lora;
pub mod plan;
mod producer;
mod ring;
mod run;
pub mod stream;
