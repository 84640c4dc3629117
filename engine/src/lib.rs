//! Model files, the forward pass and the decode graph.
//!
//! A [`Model`] is a GGUF file that has been checked whole: its [`Config`] and the shape of each tensor.
//! A [`Tokenizer`] comes from the same file. A [`Decoder`] holds the weights and the state on a device and makes
//! one token a step.

mod buffers;
pub mod config;
mod decoder;
mod error;
mod forward;
pub mod gguf;
pub mod info;
mod kernels;
pub mod model;
pub mod tokenizer;
mod weights;

pub use config::Config;
pub use decoder::{Decoder, Generation, Kind, Launch, Options, Rows};
pub use error::Error;
pub use model::Model;
pub use tokenizer::Tokenizer;
pub use weights::bytes as weight_bytes;
