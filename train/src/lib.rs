//! Fine-tuning of language models with QLoRA: low-rank adapters over frozen weights in NF4.
//!
//! The method is due to Dettmers et al. ("QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS
//! 2023, <https://arxiv.org/abs/2305.14314>), and the adapters to Hu et al. ("LoRA: Low-Rank
//! Adaptation of Large Language Models", ICLR 2022, <https://arxiv.org/abs/2106.09685>). The model
//! families `llama`, `qwen2` and `qwen3` are supported.
//!
//! A training step exists twice. [`mod@reference`] computes it in `f64` on the CPU: forward,
//! backward, gradient clipping and AdamW, with the arithmetic of [`warpwright_kernels::train`].
//! [`step`] computes the same step on a device, as graphs of kernels in `f32` or in `bf16`. Tests
//! compare the two.
//!
//! A run has four stages:
//! 1. [`Base::from_model`] reads the frozen weights and quantizes them.
//! 2. [`data`] tokenizes a file of samples and divides it into batches.
//! 3. [`Trainer::step`] trains on one batch.
//! 4. [`peft::write`] saves the adapter, and [`checkpoint`] saves everything that is needed to
//!    resume.
//!
//! # Example: train an adapter
//!
//! This program trains two steps on the emulator. On a machine with a GPU, use `Driver::load()?` in
//! place of `Driver::from_library(..)`.
//!
//! ```
//! use std::path::Path;
//!
//! use warpwright_driver::{Context, Driver};
//! use warpwright_model::Model;
//! use warpwright_train::base::{Base, BaseFormat};
//! use warpwright_train::data::{Batches, Dataset, TrainingLength, Preprocess, BatchShape};
//! use warpwright_train::peft::{self, AdapterShapes};
//! use warpwright_train::reference::Adapters;
//! use warpwright_train::{Lora, Settings, Trainer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets");
//! # let out = tempfile::tempdir()?;
//! # let out = out.path();
//! // The frozen model, with its projections in NF4.
//! let model = Model::open(&folder.join("rustdoc-7m-Q4_K_M.gguf"))?;
//! let base = Base::from_model(&model, BaseFormat::Nf4)?;
//!
//! // Rows of 16 tokens, one row in a micro-batch.
//! let tokenizer = model.tokenizer()?;
//! let how = Preprocess { tokenizer: &tokenizer, template: None, len: 16, train_on_prompt: false };
//! let data = Dataset::read(&folder.join("samples.jsonl"), &how)?;
//! let shape = BatchShape {
//!     len: 16,
//!     rows: 1,
//!     accumulate: 1,
//!     packing: true,
//!     seed: 0,
//!     length: TrainingLength::Steps(2),
//! };
//! let batches = Batches::new(data, shape)?;
//!
//! // Adapters of rank 4 on all projections. B is zero at first, so that they change nothing yet.
//! let mut settings = Settings::new(&base, Lora::new(4));
//! settings.tokens = batches.tokens();
//! let adapters = Adapters::random(&settings.config, &settings.lora, 0);
//!
//! let driver = Driver::from_library(warpwright_cuda_emu::library())?;
//! let context = Context::new(&driver.device(0)?)?;
//! let mut trainer = Trainer::new(&context, settings.clone(), &base.weights, &adapters)?;
//! for step in 0..batches.steps() {
//!     let record = trainer.step(&batches.step(step))?;
//!     println!("step {}: loss {:.4}, learning rate {:.1e}", step + 1, record.loss, record.lr);
//! #     assert!(!record.skipped && record.lr > 0.0);
//! }
//!
//! // The adapter as PEFT reads it.
//! let shapes = AdapterShapes {
//!     config: &settings.config,
//!     lora: &settings.lora,
//!     pairing: settings.pairing,
//! };
//! peft::write(out, &shapes, &trainer.adapters()?, "rustdoc-7m")?;
//! # assert!(out.join("adapter_model.safetensors").is_file());
//! # Ok(())
//! # }
//! ```

pub mod base;
pub mod checkpoint;
mod config;
pub mod data;
mod error;
mod files;
mod kernel_terms;
pub mod peft;
mod projection;
pub mod reference;
mod settings;
mod signed;
pub mod step;
mod weights;

pub use base::Base;
pub use config::Config;
pub use error::Error;
pub use projection::Projection;
pub use settings::{Lora, Settings, Training};
pub use step::Trainer;
pub use warpwright_kernels::ProductTile;
pub use warpwright_kernels::train::flash::TensorOp;
pub use warpwright_kernels::train::optimizer::adamw::AdamW;
pub use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
pub use weights::{LayerWeights, Weights};
