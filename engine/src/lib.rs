//! Model files, the forward pass and the decode graph.
//!
//! A [`Model`] is a GGUF file that has been checked whole: its [`Config`] and the shape of each tensor.
//! A [`Tokenizer`] comes from the same file. A [`Decoder`] holds the weights and the state on a device and makes
//! one token a step.
//!
//! ```no_run
//! use warpwright_driver::{Context, Driver};
//! use warpwright_engine::{Decoder, Launch, Model, Options, Tokenizer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("model.gguf".as_ref())?;
//! let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
//! let context = Context::new(&Driver::load()?.devices()?[0])?;
//! let options = Options::new(1024, Launch::Graph);
//! let mut decoder = Decoder::new(&context, &model, options, |_bytes| ())?;
//! let mut text = tokenizer.stream();
//! for token in decoder.generate(&tokenizer.encode("The borrow checker")?, 48)? {
//!     print!("{}", text.push(token?));
//! }
//! # Ok(())
//! # }
//! ```

mod buffers;
pub mod config;
mod decoder;
mod distinct;
mod error;
mod file;
mod forward;
mod generation;
pub mod gguf;
pub mod info;
mod kernels;
mod keys;
mod kind;
mod known;
mod loading;
mod memory;
mod microbench;
pub mod model;
mod needs;
mod options;
pub mod path;
mod pipeline;
mod profile;
mod random;
pub mod rope;
mod round;
pub mod shape;
mod simple;
mod step;
mod stop;
pub mod tokenizer;
pub mod tuning;
mod upload;
mod value;
mod weights;

pub use config::Config;
pub use decoder::Decoder;
pub use error::Error;
pub use generation::{End, Generation, LogitRows};
pub use loading::Loading;
pub use microbench::{ColdSet, Effort};
pub use model::{Model, Outline};
pub use needs::Needs;
pub use options::{Launch, Options, Prefer};
pub use path::Path;
pub use pipeline::{Product, Unsupported};
pub use profile::{KernelNode, Profile, Times};
pub use round::{Prefill, Round};
pub use shape::{Quantization, Shape};
pub use step::StepKind;
pub use tokenizer::Tokenizer;
pub use tuning::Tuning;
