//! Fine-tuning of language models by QLoRA: adapters of low rank over frozen weights in NF4.
//!
//! So far this is the specification: [`mod@reference`] computes a step in `f64` on the CPU, forward, backward, clip and
//! AdamW, for models of the `llama`, `qwen2` and `qwen3` families. Its arithmetic is that of
//! [`warpwright_kernels::train`]; kernels of training will be compared with it one by one and as a whole step.

#![forbid(unsafe_code)]

mod config;
mod error;
mod projection;
pub mod reference;
mod settings;

pub use config::Config;
pub use error::Error;
pub use projection::Projection;
pub use settings::{Lora, Training};
