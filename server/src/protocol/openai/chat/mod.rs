//! Chat completions.

mod call;
pub(super) mod endpoint;
mod prompt;
mod request;
mod response;
mod stream;

pub use call::{ChatCall, chat_call};
pub use prompt::chat_prompt;
pub use request::{
    CallRequest, CalledFunction, ChatBody, ChatRequest, MessageRequest, ReasoningRequest,
    StreamOptions, ThinkingRequest,
};
pub use response::{
    CallFunction, CallMessage, ChatChoice, ChatCollector, ChatCompletion, LogprobsWanted,
    ReplyMessage,
};
pub use stream::{
    CallDelta, ChatChunk, ChatStream, ChunkChoice, ChunkDelta, FunctionDelta, PromptProgress,
};
