//! The message object.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A message of the assistant.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MessageObject {
    /// The id, which starts with `msg_`.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The name of the model.
    pub model: String,
    /// The blocks.
    pub content: Vec<OutputBlock>,
    /// The reason why the reply ended, or null while it is generated.
    pub stop_reason: Option<StopReason>,
    /// The string of `stop_sequences` that ended the reply.
    pub stop_sequence: Option<String>,
    /// The number of tokens.
    pub usage: UsageObject,
}

/// A block of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputBlock {
    /// Reasoning.
    Thinking {
        /// The text.
        thinking: String,
        /// A mark that clients send back. Anthropic's servers verify it, and this one does not.
        signature: &'static str,
    },
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// A tool call.
    ToolUse {
        /// The id of the call.
        id: String,
        /// The name of the function.
        name: String,
        /// The arguments.
        #[schema(value_type = Object)]
        input: Map<String, Value>,
    },
}

/// The signature of reasoning. It is not empty, because some clients drop blocks without one.
pub const SIGNATURE: &str = "unsigned";

/// The reason why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model ended its turn.
    EndTurn,
    /// The maximum number of tokens was reached, or the context is full.
    MaxTokens,
    /// A string of `stop_sequences` was generated.
    StopSequence,
    /// The reply has tool calls.
    ToolUse,
}

/// The number of tokens of a prompt and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct UsageObject {
    /// The number of prompt tokens that were not in the cache, at least one.
    pub input_tokens: u32,
    /// Always 0: the server caches without being asked and without a price.
    pub cache_creation_input_tokens: u32,
    /// The number of prompt tokens that were in the cache.
    pub cache_read_input_tokens: u32,
    /// The number of generated tokens so far.
    pub output_tokens: u32,
}

/// The number of tokens of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct TokenCount {
    /// The number of tokens.
    pub input_tokens: u32,
}
