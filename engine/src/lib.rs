//! Inference for language models: model files, tokenizers, decoders and batches on NVIDIA GPUs.
//!
//! A [`Model`] is a GGUF file or a Hugging Face folder. Opening one checks its [`Config`] and the
//! shape of every tensor, and reads no weights. Its [`Tokenizer`] is built from the same files. A
//! [`Decoder`] uploads the weights to a device, keeps the keys and values of one sequence there,
//! and generates its tokens. A [`Batch`] does the same for many sequences that share a paged cache.
//!
//! The other entry points are:
//! - [`chat`] renders chat templates and parses tool calls from replies.
//! - [`Grammar`] restricts the generated tokens to a JSON schema, a grammar or a regular
//!   expression.
//! - [`Speculation`] verifies guessed tokens several at a time, without changing the output.
//! - [`Adapter`] applies a LoRA adapter, and [`merge`] adds it to the weights of a new file.
//!
//! # Example: generate text
//!
//! ```no_run
//! use warpwright_driver::{Context, Driver};
//! use warpwright_engine::{Decoder, Launch, Model, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("model.gguf".as_ref())?;
//! let tokenizer = model.tokenizer()?;
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

pub mod adapter;
mod batch;
mod buffers;
pub mod chat;
mod chunked;
mod decode;
mod distinct;
mod error;
pub mod grammar;
mod measure;
pub mod merge;
pub mod model;
mod pipeline;
mod sampling;
mod signed;
mod simple;
mod speculative;
mod step;
mod text;
mod unique_keys;
mod weights;

pub use adapter::Adapter;
pub use batch::{Batch, BatchOptions, ConstrainedSequence, SequenceId};
pub use chunked::list::{PassNode, TimedNode};
pub use decode::cached::CachedTokens;
pub use decode::decoder::Decoder;
pub use decode::generation::{Generation, GenerationEnd};
pub use decode::loading::Loading;
pub use decode::needs::MemoryNeeds;
pub use decode::options::{Launch, Options, Prefer};
pub use decode::rows::LogitRows;
pub use decode::scores::HiddenStates;
pub use error::Error;
pub use grammar::{Grammar, GrammarCompiler, GrammarText, Matcher};
pub use measure::ceiling::load_multiply;
pub use measure::microbench::{ColdSet, Effort};
pub use measure::profile::{BlockTimes, KernelNode, Profile};
pub use measure::round::{Prefill, Round};
pub use model::config::Config;
pub use model::shape::{Quantization, Shape};
pub use model::tokenizer::Tokenizer;
pub use model::{Model, Outline};
pub use model::{config, folder, gguf, gguf_writer, rope, shape, tokenizer};
pub use pipeline::path::KernelPath;
pub use pipeline::tuning::Tuning;
pub use pipeline::{GemvKind, Unsupported};
pub use pipeline::{path, tuning};
pub use sampling::defaults::GenerationConfig;
pub use sampling::options::{Sampling, TokenChoice};
pub use sampling::probabilities::LogProbabilities;
pub use signed::{listed_map, load_listed, load_read};
pub use speculative::draft_model::DraftModel;
pub use speculative::drafter::Drafter;
pub use speculative::lookup::PromptLookup;
pub use speculative::speculation::{DraftCounts, Speculation};
pub use speculative::vocabulary::same_vocabulary;
pub use step::StepKind;
pub use text::{StopStrings, TextEnding, TextFragment, TextStream};
pub use unique_keys::unique_keys;
pub use weights::info;
