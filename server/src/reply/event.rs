//! The events of a reply, in the terms of no protocol.

use std::time::Duration;

use crate::error::RequestError;

/// An event of one of the replies to a request.
#[derive(Debug)]
pub struct ReplyEvent {
    /// The index of the reply, from 0 to the requested number of replies.
    pub index: u32,
    /// The event.
    pub part: ReplyPart,
}

/// A part of a reply. Each reply has one `Started`, any number of the others, and ends with `Ended`
/// or `Failed`.
#[derive(Debug)]
pub enum ReplyPart {
    /// The prompt is being processed.
    Started {
        /// The number of tokens of the prompt.
        prompt_tokens: u32,
        /// The number of these that were in the cache.
        cached_tokens: u32,
    },
    /// The prompt's tokens with their log-probabilities, if they were asked for. The first token
    /// has none.
    Prompt(Vec<TokenText>),
    /// The log-probabilities of the tokens of the following texts, if they were asked for.
    Tokens(Vec<TokenText>),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// Text of the reply.
    Text(String),
    /// A complete tool call.
    Call(ReplyCall),
    /// The reply is complete.
    Ended(ReplyEnded),
    /// The reply has failed.
    Failed(RequestError),
}

/// A tool call of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyCall {
    /// The index of the call in the reply, from 0.
    pub index: u32,
    /// The id of the call, which is unique.
    pub id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments as the text of a JSON object.
    pub arguments: String,
}

/// A token with its log-probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenText {
    /// The id of the token.
    pub token: u32,
    /// The bytes of the token.
    pub bytes: Vec<u8>,
    /// The log-probability of the token, or `None` for the first token of a prompt.
    pub logprob: Option<f64>,
    /// The most likely tokens at this position with their bytes and log-probabilities, in
    /// descending order.
    pub best: Vec<(u32, Vec<u8>, f64)>,
}

/// The end of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplyEnded {
    /// The reason.
    pub reason: FinishReason,
    /// The number of generated tokens, including the one that ended the text.
    pub tokens: u32,
    /// The number of these that belong to the reasoning.
    pub reasoning_tokens: u32,
    /// A sentence for each mark of a tool call that no valid call follows.
    pub problems: Vec<String>,
    /// The time that the reply waited, read its prompt, and generated.
    pub times: ReplyTimes,
}

/// The times of a reply, and its drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyTimes {
    /// The time from the request to its slot.
    pub queued: Duration,
    /// The time from the slot to the first token.
    pub prompt: Duration,
    /// The time from the first token to the last.
    pub decode: Duration,
    /// The number of drafts that were verified. It is 0 if a stop string ended the reply.
    pub drafted: u32,
    /// The number of drafts that were right.
    pub accepted: u32,
}

/// The reason why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended the text, or the grammar allows nothing more.
    Stop,
    /// This stop string ended the text.
    StopString(String),
    /// The maximum number of tokens was reached, or the context is full.
    Length,
    /// The reply has tool calls.
    Calls,
    /// The server shuts down.
    Shutdown,
}
