//! The one error type: each sentence says what, where, and what instead.

use std::path::PathBuf;

use crate::adapter::fault as adapter_fault;
use crate::chunked::LEAST;
use crate::decode::needs::Needs;
use crate::grammar::fault as grammar_fault;
use crate::merge::fault as merge_fault;
use crate::model::folder::folder_fault;
use crate::model::problem::Problem;
use crate::model::{fault, vocabulary_fault};
use crate::pipeline::path::Path;
use crate::pipeline::unsupported::Unsupported;

/// Why a model cannot be opened or run.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Error {
    #[error("cannot open {}: {source}", path.display())]
    Open {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} changed while it was read; wait until it is written, and start again", path.display())]
    Changed { path: PathBuf },
    #[error(
        "{}: weight {index} of tensor {tensor:?} is {value}: the file is damaged; download it again or try another one",
        path.display()
    )]
    Weight {
        path: PathBuf,
        tensor: String,
        index: usize,
        value: f32,
    },
    #[error("{} is {what}", path.display())]
    NoFile { path: PathBuf, what: &'static str },
    #[error("{}: {fault}", path.display())]
    Gguf {
        path: PathBuf,
        fault: Box<fault::Fault>,
    },
    #[error("{}: {fault}", path.display())]
    Folder {
        path: PathBuf,
        fault: Box<folder_fault::Fault>,
    },
    #[error("{}: {problem}", path.display())]
    Model {
        path: PathBuf,
        problem: Box<Problem>,
    },
    #[error("{shape} has no {quantization}: {problem}; it has {others}")]
    Shape {
        shape: &'static str,
        quantization: &'static str,
        problem: Box<Problem>,
        others: String,
    },
    #[error("{}: {fault}", path.display())]
    Tokenizer {
        path: PathBuf,
        fault: Box<vocabulary_fault::Fault>,
    },
    #[error("{}: the chat template {problem}", path.display())]
    ChatTemplate { path: PathBuf, problem: String },
    #[error("the chat template {0}")]
    Chat(String),
    #[error("{}: {fault}", path.display())]
    Adapter {
        path: PathBuf,
        fault: Box<adapter_fault::Fault>,
    },
    #[error("{}: {fault}", path.display())]
    Merge {
        path: PathBuf,
        fault: Box<merge_fault::Fault>,
    },
    #[error("the prompt cannot be tokenized: {0}")]
    Encode(String),
    #[error("a stop string is empty, and would end each text before its first character")]
    EmptyStop,
    #[error(transparent)]
    Driver(#[from] warpwright_driver::Error),
    #[error("a context of {ctx} positions; this model has 1 to {limit}")]
    Context { ctx: u32, limit: u32 },
    #[error("a round of {needed} positions; the decoder has room for 1 to {room}")]
    Room { needed: u64, room: u32 },
    #[error(
        "the same steps gave other tokens when they were queued without waiting: the device or a kernel is at fault"
    )]
    OtherTokens,
    #[error("the prompt has no tokens; a model needs at least one to continue from")]
    NoPrompt,
    #[error("the prompt has {len} tokens{}; the context has room for {ctx}", After(*before))]
    PromptLength { len: usize, before: u32, ctx: u32 },
    #[error("the context of {ctx} positions is full; the last token has no room in it")]
    ContextFull { ctx: u32 },
    #[error("token {index} of the prompt is {id}; the vocabulary ends before {vocab}")]
    PromptToken { index: usize, id: u32, vocab: u32 },
    #[error(
        "the model needs {} of device memory (weights {}{}, cache of {ctx} positions {}, work {}{}); \
         {} of {} are free, {}",
        Size(needs.total()), Size(needs.weights), Besides("adapter", needs.adapter), Size(needs.cache), Size(needs.work),
        Besides("draft model", needs.draft), Size(*free), Size(*total),
        Instead(*room)
    )]
    Memory {
        needs: Needs,
        ctx: u32,
        room: u32,
        free: u64,
        total: u64,
    },
    #[error(
        "the logit of token {token} after position {position} is {value}: the file is damaged, or the model needs \
         numbers beyond f32, or beyond f16 in its keys and values; download the file again or try another one"
    )]
    Logit {
        position: u32,
        token: usize,
        value: f32,
    },
    #[error(
        "number {index} of the hidden state at position {position} is {value}: the file is damaged, or the model needs \
         numbers beyond f32, or beyond f16 in its keys and values; download the file again or try another one"
    )]
    HiddenState {
        position: u32,
        index: usize,
        value: f32,
    },
    #[error(
        "log-likelihoods of {tokens} tokens from token {first} on: there must be a token before the first, and one to score"
    )]
    Scored { first: usize, tokens: usize },
    #[error(
        "there is no log-likelihood after position {position}, of finite logits: the device or a kernel is at fault"
    )]
    NoLikelihood { position: u32 },
    #[error("the tuning \"{text}\" is not understood: {problem}")]
    Tuning { text: String, problem: String },
    #[error(
        "only the pipeline's kernels can be measured separately; this model decodes with {path}"
    )]
    NoPipeline { path: Path },
    #[error(
        "a prompt of {tokens} tokens is not prefilled in chunks: that takes {LEAST} tokens, a device of compute \
         capability 8.0 or later, and sizes that are multiples of 128; this model decodes with {path}"
    )]
    NoChunk { tokens: u32, path: Path },
    #[error(
        "the batch has {most} sequences, as many as its options allow; one must leave before another joins"
    )]
    BatchFull { most: u32 },
    #[error("the sequence is not in this batch: it has left, or belongs to another batch")]
    NoSequence,
    #[error("the first {len} tokens of a sequence that has {tokens}")]
    SequenceShort { len: u32, tokens: u32 },
    #[error(
        "a sequence of {len} tokens has no room for {more} more: the batch's options allow {ctx} positions"
    )]
    SequenceLength { len: u32, more: u32, ctx: u32 },
    #[error(
        "the step needs {needed} more pages of the cache; {free} of {all} are free: let a sequence leave"
    )]
    NoPages { needed: u32, free: u32, all: u32 },
    #[error("a sequence is named twice in a step; give all its tokens at once")]
    SequenceTwice,
    #[error("a step of {tokens} tokens; this batch takes 1 to {most}")]
    StepTokens { tokens: usize, most: u32 },
    #[error(
        "the logits of the sequence are not kept: it was not in the latest step, or ended before the last of the steps \
         that were decoded"
    )]
    NoLogits,
    #[error("the batch's option {name} is {value}; it can be {least} to {most}")]
    BatchOption {
        name: &'static str,
        value: u32,
        least: u32,
        most: u32,
    },
    #[error("the batch's option bucket is {bucket}; it can be 8, 16, 32, 64, 128 or 256")]
    BatchBucket { bucket: u32 },
    #[error("sequences of this model cannot be stepped together: {why}")]
    NoBatch { why: String },
    #[error(
        "the batch needs {} of device memory (weights {}, cache of {positions} positions {}, work {}); \
         {} of {} are free, enough for {room} positions",
        Size(needs.total()), Size(needs.weights), Size(needs.cache), Size(needs.work), Size(*free), Size(*total)
    )]
    BatchMemory {
        needs: Needs,
        positions: u32,
        room: u64,
        free: u64,
        total: u64,
    },
    #[error("the sampling option {name} is {value}; it can be {least} to {most}")]
    Sampling {
        name: &'static str,
        value: f64,
        least: f64,
        most: f64,
    },
    #[error(
        "the temperature is {value}; it can be 0, the most likely token each time, or {least} to {most}"
    )]
    Temperature { value: f64, least: f64, most: f64 },
    #[error("the logit bias of token {token}: the vocabulary ends before {vocab}")]
    BiasToken { token: u32, vocab: u32 },
    #[error("token {token} has two logit biases; give one")]
    BiasTwice { token: u32 },
    #[error("tokens are chosen greedily here; to sample them, make it with TokenChoice::Sampled")]
    NotSampled,
    #[error("the {what} cannot be used: {fault}")]
    Grammar {
        what: &'static str,
        fault: Box<grammar_fault::Fault>,
    },
    #[error("the grammar cannot be followed after {tokens} tokens: {problem}")]
    WithinGrammar { tokens: u32, problem: String },
    #[error(
        "the grammar is for a vocabulary of {grammar} tokens, the model has {model}; compile it with the model's own"
    )]
    OtherVocabulary { grammar: u32, model: u32 },
    #[error(
        "no grammar can be followed here; make the decoder or the batch with TokenChoice::Within"
    )]
    NotWithin,
    #[error("the kernels record no timestamps; choose a tuning that profiles")]
    NoTimes,
    #[error(
        "drafts are verified by the pipeline's kernels, and this model decodes with {path}; decode it without \
         speculation"
    )]
    NoDrafts { path: Path },
    #[error(
        "tokens within a grammar are made one by one, and drafts are verified several at a time; ask for one of both"
    )]
    DraftsWithin,
    #[error("the decoder was made to verify no drafts; make it with Options::drafts from 1 to 7")]
    NotSpeculative,
    #[error(
        "the drafter was given {given} tokens, and the decoder has {tokens}; give all that it has"
    )]
    OtherHistory { given: usize, tokens: u32 },
    #[error("the drafter's token {token} is outside the vocabulary, which ends before {vocab}")]
    DraftToken { token: u32, vocab: u32 },
    #[error(
        "the draft model has another vocabulary: token {id} is {draft}, and {model} in the model that verifies; take a \
         draft model of the same family"
    )]
    DraftVocabulary {
        id: u32,
        draft: String,
        model: String,
    },
    #[error(
        "no token was chosen after position {position}, of finite logits: the device or a kernel is at fault"
    )]
    NoToken { position: u32 },
}

/// The tokens before a prompt, if there are any.
struct After(u32);

impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            before => write!(f, " after {before}"),
        }
    }
}

/// What fits where a context does not, given the longest that does.
struct Instead(u32);

impl std::fmt::Display for Instead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => write!(
                f,
                "too few for any context: a smaller model or quantization is needed"
            ),
            room => write!(f, "enough for a context of {room}"),
        }
    }
}

/// Bytes of something, if there is any.
struct Besides(&'static str, u64);

impl std::fmt::Display for Besides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Besides(_, 0) => Ok(()),
            Besides(what, bytes) => write!(f, ", {what} {}", Size(*bytes)),
        }
    }
}

/// Bytes, for people.
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

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(
    Error,
    Unsupported,
    Problem,
    adapter_fault::Fault,
    fault::Fault,
    folder_fault::Fault,
    grammar_fault::Fault,
    merge_fault::Fault,
    vocabulary_fault::Fault
);
