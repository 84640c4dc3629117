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
mod byte_level;
pub mod chat;
pub mod config;
mod config_keys;
mod cuts;
mod error;
mod expression;
mod fault;
mod file;
pub mod folder;
pub mod gguf;
mod gguf_vocabulary;
pub mod gguf_writer;
pub mod grammar;
pub mod info;
mod keys;
mod kind;
mod known;
pub mod merge;
pub mod nf4;
mod open;
mod outline;
mod pre_tokenizer;
mod problem;
mod reader;
mod roles;
pub mod rope;
mod sentencepiece;
pub mod shape;
mod stop;
mod text;
mod token_type;
pub mod tokenizer;
mod unique_keys;
mod value;
mod vocabulary;
mod vocabulary_fault;
mod vocabulary_tables;
mod weight_format;

pub use adapter::Adapter;
pub use architecture::{EmbeddingScaling, GateActivation, RopePairing};
pub use config::Config;
pub use error::Error;
pub use grammar::{Grammar, GrammarCompiler, GrammarText, Matcher};
pub use open::{Files, Model};
pub use outline::{Absmax, Outline, Weight, Weights};
pub use problem::Problem;
pub use roles::Block;
pub use shape::{Quantization, Shape};
pub use text::{StopStrings, TextEnding, TextStream};
pub use tokenizer::Tokenizer;
pub use unique_keys::unique_keys;
pub use weight_format::WeightFormat;
