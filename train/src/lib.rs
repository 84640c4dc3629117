//! Fine-tuning of language models by QLoRA: adapters of low rank over frozen weights in NF4.
//!
//! [`mod@reference`] computes a step in `f64` on the CPU, forward, backward, clip and AdamW, for models of the `llama`,
//! `qwen2` and `qwen3` families. Its arithmetic is that of [`warpwright_kernels::train`]. [`step`] is the same step on a
//! device, as graphs of kernels in `f32` or in `bf16`, which tests compare with the reference as a whole.

pub mod base;
pub mod checkpoint;
mod config;
pub mod data;
mod error;
mod files;
pub mod peft;
mod projection;
pub mod reference;
mod settings;
mod signed;
pub mod step;
mod weights;

pub use config::Config;
pub use error::Error;
pub use projection::Projection;
pub use settings::{Lora, Training};
pub use weights::{LayerWeights, Weights};
