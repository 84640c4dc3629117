//! A request for replies, in the terms of no protocol.

use serde_json::{Map, Value};
use warpwright_model::GrammarText;
use warpwright_model::chat::Tools;

use crate::scheduler::AtEnd;

/// A request for one or more replies to a prompt.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// The id of the HTTP request, for logs.
    pub request_id: String,
    /// The prompt.
    pub prompt: ReplyPrompt,
    /// The number of replies to generate.
    pub count: u32,
    /// The maximum number of tokens per reply, or `None` up to the end of the context.
    pub max_tokens: Option<u32>,
    /// The sampling parameters that the client has set.
    pub sampling: SamplingFields,
    /// The strings that end a reply.
    pub stop: Vec<String>,
    /// The behavior at a token that ends texts.
    pub at_end: AtEnd,
    /// The grammar that the text of a reply follows.
    pub format: Option<GrammarText>,
    /// The number of best log-probabilities per generated token, or `None` for none at all.
    pub logprobs: Option<u32>,
    /// The number of best log-probabilities per token of the prompt, or `None` for none at all.
    pub prompt_logprobs: Option<u32>,
    /// Cached prefixes are shared only among requests with the same salt.
    pub salt: u64,
}

/// The prompt of a reply.
#[derive(Debug, Clone)]
pub enum ReplyPrompt {
    /// A conversation, which the model's chat template renders.
    Chat(ChatPrompt),
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

impl ReplyPrompt {
    /// Returns the approximate size of the text to tokenize in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            ReplyPrompt::Chat(chat) => chat
                .messages
                .iter()
                .map(|message| {
                    message.content.len() + message.reasoning.as_ref().map_or(0, String::len)
                })
                .sum(),
            ReplyPrompt::Text(text) => text.len(),
            ReplyPrompt::Tokens(_) => 0,
        }
    }
}

/// A conversation.
#[derive(Debug, Clone, Default)]
pub struct ChatPrompt {
    /// The messages. If the last one is the assistant's, the reply continues it.
    pub messages: Vec<ChatMessage>,
    /// The functions that the model may call.
    pub tools: Option<Tools>,
    /// The calls that the model may make.
    pub tool_choice: ToolChoice,
    /// The number of calls that one reply may have.
    pub call_limit: CallLimit,
    /// The reasoning that the client has asked for.
    pub reasoning: ReasoningFields,
    /// Further variables of the template (`chat_template_kwargs`).
    pub variables: Map<String, Value>,
}

/// A message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub role: String,
    /// The text.
    pub content: String,
    /// The text that the assistant wrote while it reasoned.
    pub reasoning: Option<String>,
    /// The tool calls of the assistant.
    pub calls: Vec<MessageCall>,
    /// The id of the call that a tool answers.
    pub call_id: Option<String>,
    /// The name of the participant, or of the tool that answers.
    pub name: Option<String>,
}

/// A tool call in a message of the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageCall {
    /// The id of the call.
    pub id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
}

/// The calls that the model may make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Any number of calls, or none.
    #[default]
    Auto,
    /// No call.
    None,
    /// At least one call.
    Required,
    /// A call of the function with this name.
    Function(String),
}

/// The number of calls that one reply may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallLimit {
    /// Any number (`parallel_tool_calls`).
    #[default]
    Many,
    /// At most one. The reply ends after it.
    One,
}

/// The reasoning that the client has asked for. A template that knows no such switch ignores it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReasoningFields {
    /// The effort, such as `low`.
    pub effort: Option<String>,
    /// Whether the model should reason at all.
    pub enabled: Option<bool>,
}

/// Sampling parameters that a client has set. The others are the model's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "the fields are those of warpwright_engine::Sampling"
)]
pub struct SamplingFields {
    pub temperature: Option<f64>,
    pub top_k: Option<u32>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub repeat_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub penalty_window: Option<u32>,
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: Option<u64>,
}
