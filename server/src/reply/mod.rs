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

pub use event::{
    FinishReason, ReplyCall, ReplyEnded, ReplyEvent, ReplyPart, ReplyTimes, TokenText,
};
pub use request::{
    CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ReplyPrompt, ReplyRequest,
    SamplingFields, ToolChoice,
};
pub use start::{Replies, prompt_tokens, render, start};
