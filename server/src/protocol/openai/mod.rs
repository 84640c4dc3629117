//! The protocol of OpenAI: chat completions, completions, embeddings and models.

mod chat_call;
mod chat_prompt;
mod chat_request;
mod chat_response;
mod chat_stream;
mod error;
mod logprobs;
mod usage;

pub use chat_call::{ChatCall, Delivery, ResponseForm, chat_call};
pub use chat_prompt::chat_prompt;
pub use chat_request::{
    CallRequest, CalledFunction, ChatBody, ChatRequest, MessageRequest, ReasoningRequest,
    StreamOptions, ThinkingRequest,
};
pub use chat_response::{
    CallFunction, CallMessage, ChatChoice, ChatCollector, ChatCompletion, LogprobsWanted,
    ReplyMessage, ResponseHead,
};
pub use chat_stream::{
    CallDelta, ChatChunk, ChatStream, ChunkChoice, ChunkDelta, FunctionDelta, PromptProgress,
    StreamState,
};
pub use error::{ErrorBody, ErrorFields, error_body, error_response};
pub use logprobs::{ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob};
pub use usage::{CompletionTokens, PromptTokens, Timings, Usage};
