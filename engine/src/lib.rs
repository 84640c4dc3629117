//! Model files, the forward pass and the decode graph.
//!
//! A [`Model`] is a GGUF file that has been checked whole: its [`Config`] and the shape of each tensor.
//! A [`Decoder`] holds the weights and the state on a device and makes one token a step.

pub mod config;
mod error;
pub mod gguf;
pub mod info;
pub mod model;
pub mod tokenizer;

pub use config::Config;
pub use error::Error;
pub use model::Model;
pub use tokenizer::Tokenizer;
