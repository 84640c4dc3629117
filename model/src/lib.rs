//! Models without a device: their files, tokenizers, chat templates, grammars and adapters.
//!
//! A [`Model`] is a GGUF file or a Hugging Face folder. Opening one checks its [`Config`] and the
//! shape of every tensor, and reads no weights. Its [`Tokenizer`] is built from the same files.
//!
//! The other entry points are:
//! - [`chat`] renders chat templates and parses tool calls from replies.
//! - [`Grammar`] describes a JSON schema, a grammar or a regular expression, and a [`Matcher`]
//!   returns the tokens that may come next.
//! - [`Adapter`] is a LoRA adapter, and [`merge`] adds it to the weights of a new file.
//! - [`layer`] describes each layer of a model as data.
//! - [`info`] has the sizes, formats and memory traffic of a model.
//!
//! The crate depends on neither the driver nor the kernels. It describes weights in the terms of
//! files, such as [`WeightFormat`], and the crates that run kernels translate them.
//!
//! # Example: count the tokens of a text
//!
//! ```no_run
//! use warpwright_model::Tokenizer;
//!
//! # fn main() -> Result<(), warpwright_model::Error> {
//! let tokenizer = Tokenizer::open("model.gguf".as_ref())?;
//! println!("{}", tokenizer.encode("The borrow checker")?.len());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod adapter;
mod architecture;
pub mod chat;
pub mod config;
mod error;
mod file;
pub mod folder;
mod format;
pub mod gguf;
pub mod grammar;
pub mod info;
pub mod layer;
pub mod merge;
mod open;
mod problem;
pub mod tokenizer;
mod unique_keys;

pub use adapter::Adapter;
pub use architecture::family::EmbeddingScaling;
pub use architecture::outline::{Absmax, Outline, Weight, Weights};
pub use architecture::roles::Block;
pub use architecture::shape::{self, Quantization, Shape};
pub use config::Config;
pub use config::rope;
pub use error::Error;
pub use format::nf4;
pub use format::weight_format::WeightFormat;
pub use grammar::{Grammar, GrammarCompiler, GrammarText, Matcher};
pub use layer::{GateActivation, Layer, RopePairing};
pub use open::{Files, Model};
pub use problem::Problem;
pub use tokenizer::text::{StopStrings, TextEnding, TextStream};
pub use tokenizer::{TokenBound, Tokenizer};
pub use unique_keys::unique_keys;
