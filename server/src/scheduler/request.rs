//! Requests to the scheduler, and the events that it sends back.

use std::time::Duration;

use thiserror::Error;
use tokio::sync::mpsc;
use warpwright_engine::{LogProbabilities, Sampling};
use warpwright_model::Matcher;

use crate::engine::ChosenToken;

/// The behavior at a token that ends texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtEnd {
    /// The generation ends.
    #[default]
    Stop,
    /// The token is one like any other (`ignore_eos`).
    Ignore,
}

/// A request to generate tokens after a prompt.
pub struct GenerationRequest {
    /// The id of the HTTP request, for logs.
    pub request_id: String,
    /// The tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// The maximum number of tokens to generate, or `None` up to the end of the context. With 0,
    /// the prompt is only processed.
    pub max_tokens: Option<u32>,
    /// The parameters by which tokens are chosen.
    pub sampling: Sampling,
    /// The behavior at a token that ends texts.
    pub at_end: AtEnd,
    /// The grammar of the generated text.
    pub grammar: Option<Matcher>,
    /// The key of a loaded adapter, or `None`.
    pub adapter: Option<String>,
    /// Prefixes are shared only among requests with the same salt.
    pub salt: u64,
    /// The number of best log-probabilities to return for each token of the prompt, or `None`.
    pub prompt_logprobs: Option<u32>,
}

/// An event of a generation, in the order in which they are sent.
#[derive(Debug)]
pub enum GenerationEvent {
    /// The request has a slot, and its prompt is being processed.
    Started {
        /// The number of prompt tokens whose keys and values were in the cache.
        cached: u32,
    },
    /// The log-probabilities of the prompt's tokens, from the second one on, if they were asked
    /// for.
    Prompt(Vec<LogProbabilities>),
    /// Generated tokens, at least one. A token that ended the text is not among them.
    Tokens(Vec<ChosenToken>),
    /// The generation is complete. No event follows.
    Ended(GenerationEnded),
    /// The generation has failed. No event follows.
    Failed(GenerationError),
}

/// The end of a generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerationEnded {
    /// The reason.
    pub reason: EndReason,
    /// The time from the request to its slot.
    pub queued: Duration,
    /// The time from the slot to the first token.
    pub prompt: Duration,
    /// The time from the first token to the last.
    pub decode: Duration,
    /// The number of drafts that were verified.
    pub drafted: u32,
    /// The number of drafts that were right.
    pub accepted: u32,
}

/// The reason why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The model generated a token that ends texts.
    Stop,
    /// The grammar allows nothing more.
    Grammar,
    /// The maximum number of tokens was reached.
    Length,
    /// The context is full.
    Context,
    /// The server shuts down.
    Shutdown,
}

/// The reason why a generation failed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum GenerationError {
    /// The sequence cannot go on, for example because a logit is not finite.
    #[error("{0}")]
    Sequence(String),
    /// The request asks for something that the engine cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// The device has failed.
    #[error("the device has failed: {0}")]
    Lost(String),
    /// The request was refused before any work was done.
    #[error(transparent)]
    Refused(#[from] SubmitError),
}

/// The reason why a request was refused before it took a slot.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The queue is full.
    #[error("the queue is full: {waiting} requests are waiting")]
    QueueFull {
        /// The number of waiting requests.
        waiting: usize,
        /// An estimate of the time until there is space.
        retry_after: Duration,
    },
    /// The prompt has as many tokens as the context has positions, or more. Where the cache is
    /// smaller than the context, its size counts.
    // Agents look for llama.cpp's words "exceeds the available context size" to shorten a
    // conversation.
    #[error(
        "the prompt of {prompt} tokens exceeds the available context size of {ctx} tokens; shorten \
         the prompt"
    )]
    Context {
        /// The number of tokens of the prompt.
        prompt: u32,
        /// The number of positions of the context.
        ctx: u32,
    },
    /// The prompt is empty.
    #[error("the prompt is empty")]
    NoPrompt,
    /// A token id is not in the vocabulary.
    #[error("the token id {token} is not in the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        token: u32,
        /// The size of the vocabulary.
        vocab: u32,
    },
    /// A sampling parameter is out of range.
    #[error("{0}")]
    Sampling(String),
    /// The server shuts down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The device has failed.
    #[error("the device has failed: {0}")]
    Lost(String),
}

/// A running generation. Dropping it cancels the request: its slot is free after the current step.
#[derive(Debug)]
pub struct Generation {
    /// The events. The channel is not bounded, because a generation has at most as many tokens as
    /// the context has positions, and a slow reader must not stop the other sequences.
    pub events: mpsc::UnboundedReceiver<GenerationEvent>,
}
