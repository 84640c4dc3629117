//! Replies: prompts from conversations, and text, reasoning and tool calls from tokens.
//!
//! All protocols translate their requests into a [`ReplyRequest`] and write [`ReplyEvent`]s in
//! their own form.

mod event;
mod grammar;
mod prompt;
mod reader;
mod request;
mod sampling;
mod start;
mod tokens;
mod work;

pub use event::{
    FinishReason, ReplyCall, ReplyEnded, ReplyEvent, ReplyPart, ReplyTimes, TokenText,
};
pub(crate) use prompt::PromptLimit;
pub use request::{
    CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ReplyPrompt, ReplyRequest,
    SamplingFields, ToolChoice,
};
pub(crate) use start::prompt_tokens;
pub use start::{Replies, render, start};
pub(crate) use work::{blocking, tokenizing};
