//! The error type of the crate. Each message says what is wrong, where it is, and what to do.

use warpwright_kernels::simple::choose_experts::{MAX_CHOSEN, MAX_EXPERTS};
use warpwright_model::adapter::names::PROJECTIONS;

use crate::batch::sequence_id::SequenceId;
use crate::chunked::LEAST;
use crate::decode::needs::MemoryNeeds;
use crate::pipeline::path::KernelPath;
use crate::pipeline::unsupported::Unsupported;

/// Why a model cannot be opened or run.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Model(#[from] warpwright_model::Error),
    #[error(transparent)]
    Driver(#[from] warpwright_driver::Error),
    #[error("invalid context of {ctx} positions: this model supports 1 to {limit}")]
    Context { ctx: u32, limit: u32 },
    #[error("cannot measure {needed} positions: the decoder has 1 to {room}")]
    Room { needed: u64, room: u32 },
    #[error(
        "the same steps produced different tokens when they were queued without waiting: the device or a kernel is faulty"
    )]
    OtherTokens,
    #[error("the prompt is empty: a model needs at least one token to continue from")]
    NoPrompt,
    #[error("the prompt has {len} tokens{}, but the context holds {ctx}", After(*before))]
    PromptLength { len: usize, before: u32, ctx: u32 },
    #[error("the context of {ctx} positions is full: the last token has no position")]
    ContextFull { ctx: u32 },
    #[error("token {index} of the prompt is {id}, but the vocabulary has {vocab} tokens")]
    PromptToken { index: usize, id: u32, vocab: u32 },
    #[error(
        "the model needs {} of device memory (weights {}{}, cache of {ctx} positions {}, work {}{}), \
         but {} of {} are free, {}",
        Size(needs.total()), Size(needs.weights), Besides("adapter", needs.adapter), Size(needs.cache), Size(needs.work),
        Besides("draft model", needs.draft), Size(*free), Size(*total),
        ContextAdvice(*room)
    )]
    Memory {
        needs: MemoryNeeds,
        ctx: u32,
        room: u32,
        free: u64,
        total: u64,
    },
    #[error(
        "the logit of token {token} after position {position} is {value}: the file is damaged, or the model needs \
         numbers beyond f32, or beyond f16 in its keys and values: download the file again or use another one"
    )]
    Logit {
        position: u32,
        token: usize,
        value: f32,
    },
    #[error(
        "number {index} of the hidden state at position {position} is {value}: the file is damaged, or the model needs \
         numbers beyond f32, or beyond f16 in its keys and values: download the file again or use another one"
    )]
    HiddenState {
        position: u32,
        index: usize,
        value: f32,
    },
    #[error(
        "cannot score {tokens} tokens from token {first} on: at least one token must precede the first scored one, and at least one must be scored"
    )]
    Scored { first: usize, tokens: usize },
    #[error(
        "no finite log-likelihood after position {position}, although all logits are finite: the device or a kernel is faulty"
    )]
    NoLikelihood { position: u32 },
    #[error(
        "layer {layer} of the model chooses {chosen} of {count} experts, but the kernels choose at most {} of at most {}: open another model",
        MAX_CHOSEN,
        MAX_EXPERTS
    )]
    Experts {
        layer: usize,
        count: u32,
        chosen: u32,
    },
    #[error("the tuning \"{text}\" is invalid: {problem}")]
    Tuning { text: String, problem: String },
    #[error(
        "only the kernels of the pipeline can be measured separately, but this model decodes with {path}"
    )]
    NoPipeline { path: KernelPath },
    #[error(
        "a prompt of {tokens} tokens is not prefilled in chunks: that needs {LEAST} tokens, a device of compute \
         capability 8.0 or later, and sizes that are multiples of 128 (this model decodes with {path})"
    )]
    NoChunk { tokens: u32, path: KernelPath },
    #[error(
        "the batch is full with {most} sequences: remove one before you add another, or raise the limit in its options"
    )]
    BatchFull { most: u32 },
    #[error("the sequence is not in this batch: it was removed, or belongs to another batch")]
    NoSequence,
    #[error("cannot keep the first {len} tokens: the sequence has only {tokens}")]
    SequenceShort { len: u32, tokens: u32 },
    #[error(
        "cannot append {more} tokens to a sequence of {len}: the options of the batch allow {ctx} positions"
    )]
    SequenceLength { len: u32, more: u32, ctx: u32 },
    #[error(
        "the step needs {needed} more pages of the cache, but only {free} of {all} are free: remove a sequence"
    )]
    NoPages { needed: u32, free: u32, all: u32 },
    #[error("a sequence appears twice in a step: pass all its tokens in one entry")]
    SequenceTwice,
    #[error("invalid step of {tokens} tokens: this batch accepts 1 to {most}")]
    StepTokens { tokens: usize, most: u32 },
    #[error("{error}")]
    InSequence {
        sequence: SequenceId,
        error: Box<Error>,
    },
    #[error(
        "cannot return {best} best log-probabilities per token: the batch was created for at most {most}"
    )]
    BestTokens { best: u32, most: u32 },
    #[error(
        "the logits of the sequence are not available: it was not in the latest step, or ended before the last one"
    )]
    NoLogits,
    #[error("the batch option {name} is {value}, but must be from {least} to {most}")]
    BatchOption {
        name: &'static str,
        value: u32,
        least: u32,
        most: u32,
    },
    #[error("the batch option bucket is {bucket}, but must be 8, 16, 32, 64, 128 or 256")]
    BatchBucket { bucket: u32 },
    #[error("prefixes cannot be reused in chunks of {chunk} positions: choose a multiple of 64")]
    BatchReuse { chunk: u32 },
    #[error("cannot {what} {}: {source}", path.display())]
    PageFile {
        what: &'static str,
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("the adapter has {found} layers, but the model has {wanted}")]
    AdapterLayers { found: usize, wanted: usize },
    #[error(
        "the adapter does not fit the model: the matrices of {} in layer {layer} must be for {rows} x {n} weights",
        PROJECTIONS[*projection]
    )]
    AdapterShape {
        layer: usize,
        projection: usize,
        rows: u32,
        n: u32,
    },
    #[error(
        "the adapter does not fit the model: it changes {}, but layer {layer} has experts, and adapters of \
         experts are not supported: load an adapter of attention only",
        PROJECTIONS[*projection]
    )]
    AdapterExperts { layer: usize, projection: usize },
    #[error(
        "the adapters need {} of device memory, but {} are free", Size(*needed), Size(*free)
    )]
    AdapterMemory { needed: u64, free: u64 },
    #[error("the adapter is not loaded in this batch: it was never loaded, or it was unloaded")]
    NoAdapter,
    #[error("sequences use the adapter: remove them before you unload it")]
    AdapterInUse,
    #[error(
        "the kernels of a sequence with an adapter cannot be timed one by one: profile a sequence of the base model"
    )]
    ProfileAdapter,
    #[error("sequences of this model cannot be stepped together: {why}")]
    NoBatch { why: String },
    #[error(
        "the batch needs {} of device memory (weights {}, cache of {positions} positions {}, work {}), \
         but {} of {} are free, enough for {room} positions",
        Size(needs.total()), Size(needs.weights), Size(needs.cache), Size(needs.work), Size(*free), Size(*total)
    )]
    BatchMemory {
        needs: MemoryNeeds,
        positions: u32,
        room: u64,
        free: u64,
        total: u64,
    },
    #[error("the sampling option {name} is {value}, but must be from {least} to {most}")]
    Sampling {
        name: &'static str,
        value: f64,
        least: f64,
        most: f64,
    },
    #[error("the temperature is {value}, but must be 0 (greedy) or from {least} to {most}")]
    Temperature { value: f64, least: f64, most: f64 },
    #[error("the logit bias of token {token} is invalid: the vocabulary has {vocab} tokens")]
    BiasToken { token: u32, vocab: u32 },
    #[error("token {token} has two logit biases: pass one")]
    BiasTwice { token: u32 },
    #[error(
        "cannot sample: tokens are chosen greedily unless the decoder or the batch is created with TokenChoice::Sampled"
    )]
    NotSampled,
    #[error(
        "the grammar was compiled for a vocabulary of {grammar} tokens, but the model has {model}: compile it with the model's tokenizer"
    )]
    OtherVocabulary { grammar: u32, model: u32 },
    #[error(
        "cannot apply a grammar: create the decoder or the batch with TokenChoice::Constrained"
    )]
    NotConstrained,
    #[error("the kernels record no timestamps: choose a tuning that profiles")]
    NoTimes,
    #[error(
        "cannot verify drafts, because this model decodes with {path}: decode it without speculation"
    )]
    NoDrafts { path: KernelPath },
    #[error("a grammar needs one token per step, but drafts need several: choose one of the two")]
    DraftsConstrained,
    #[error("the decoder cannot verify drafts: create it with Options::drafts from 1 to 7")]
    NotSpeculative,
    #[error(
        "the drafter received {given} tokens, but the decoder has {tokens}: pass the whole sequence"
    )]
    OtherHistory { given: usize, tokens: u32 },
    #[error("a step with drafts can have {most} rows of single tokens and drafts, not {rows}")]
    DraftRows { rows: usize, most: u32 },
    #[error("the drafter guessed token {token}, but the vocabulary has {vocab} tokens")]
    DraftToken { token: u32, vocab: u32 },
    #[error(
        "the draft model has another vocabulary, in which token {id} is {draft} and not {model}: use a \
         draft model of the same family"
    )]
    DraftVocabulary {
        id: u32,
        draft: String,
        model: String,
    },
    #[error(
        "no token was chosen after position {position}, although all logits are finite: the device or a kernel is faulty"
    )]
    NoToken { position: u32 },
}

/// Displays the number of tokens before a prompt, or nothing if there are none.
struct After(u32);

impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            before => write!(f, " after {before}"),
        }
    }
}

/// Displays the advice for a context that does not fit, from the longest context that does.
struct ContextAdvice(u32);

impl std::fmt::Display for ContextAdvice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => write!(
                f,
                "too few for any context: use a smaller model or quantization"
            ),
            room => write!(f, "enough for a context of {room}"),
        }
    }
}

/// Displays the bytes of an optional part, or nothing if it has none.
struct Besides(&'static str, u64);

impl std::fmt::Display for Besides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Besides(_, 0) => Ok(()),
            Besides(what, bytes) => write!(f, ", {what} {}", Size(*bytes)),
        }
    }
}

/// Displays a number of bytes in a readable unit.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the
/// sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(Error, Unsupported);
