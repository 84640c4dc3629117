//! Inference for language models: decoders and batches on NVIDIA GPUs.
//!
//! A [`Model`](warpwright_model::Model) describes weights in files. A [`Decoder`] uploads them to a
//! device, keeps the keys and values of one sequence there, and generates its tokens. A [`Batch`]
//! does the same for many sequences that share a paged cache.
//!
//! The other entry points are:
//! - [`Speculation`] verifies guessed tokens several at a time, without changing the output.
//! - [`Sampling`] has the parameters by which tokens are chosen, and [`GenerationConfig`] those that
//!   a model's files set.
//! - A [`Matcher`](warpwright_model::Matcher) restricts the generated tokens to a grammar, see
//!   [`Decoder::decode_constrained`].
//!
//! # Example: generate text
//!
//! ```no_run
//! use warpwright_driver::{Context, Driver};
//! use warpwright_engine::{Decoder, Launch, Options};
//! use warpwright_model::Model;
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

mod batch;
mod buffers;
mod chunked;
mod decode;
mod distinct;
mod error;
mod kernel_terms;
mod measure;
mod pipeline;
mod sampling;
mod signed;
mod simple;
mod speculative;
mod step;
mod text;
mod weights;

#[cfg(test)]
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../tests/support/families.rs"]
mod families;
#[cfg(test)]
mod launches;
#[cfg(test)]
#[path = "../../tests/support/splitmix.rs"]
mod splitmix;
#[cfg(test)]
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../tests/support/write.rs"]
mod write;

pub use batch::{
    AdapterId, AdapterPreparer, Batch, BatchItem, BatchOptions, BatchPages, BatchRounding,
    BatchStepped, BatchWanted, ConstrainedSequence, IgnoredFile, LoadablePages, PageFolder,
    PrefixReuse, PrefixScope, PreparedAdapter, RowClass, SavedPages, SequenceId, SwappedSequence,
};
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
pub use measure::ceiling::load_multiply;
pub use measure::microbench::{ColdSet, Effort};
pub use measure::profile::{BlockTimes, KernelNode, Profile};
pub use measure::round::{Prefill, Round};
pub use pipeline::path::KernelPath;
pub use pipeline::tuning::Tuning;
pub use pipeline::{GemvKind, Unsupported};
pub use pipeline::{path, tuning};
pub use sampling::defaults::GenerationConfig;
pub use sampling::options::{Sampling, TokenChoice};
pub use sampling::probabilities::LogProbabilities;
pub use signed::{listed_map, load_listed, load_read};
pub use speculative::batch_draft_model::{BatchDraftModel, BatchDraftOptions, BatchDraftRequest};
pub use speculative::draft_model::{DraftModel, draft_sampling};
pub use speculative::drafter::Drafter;
pub use speculative::lookup::PromptLookup;
pub use speculative::speculation::{DraftCounts, Speculation};
pub use speculative::vocabulary::same_vocabulary;
pub use step::StepKind;
pub use text::TextFragment;
pub use weights::info;
