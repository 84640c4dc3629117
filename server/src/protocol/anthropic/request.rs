//! The requests of the Messages API, as far as this server reads them.
//!
//! The fields are those of `MessageCreateParams` in <https://github.com/anthropics/anthropic-sdk-python>.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::block::{ContentBlock, TextBlock};
use crate::protocol::shared::{Refused, TextOr, Unless, Whole};

/// The fields of the Messages API that this server does not support.
pub const REFUSED: &[Refused] = &[
    Refused {
        field: "container",
        unless: Unless::Empty,
        advice: "the server does not execute code",
    },
    Refused {
        field: "mcp_servers",
        unless: Unless::Empty,
        advice: "the server does not connect to MCP servers; the client can offer their functions \
                 as `tools`",
    },
];

/// A request for a message, or for the number of its tokens.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct MessagesRequest {
    /// The name of the model.
    pub model: Option<String>,
    /// The conversation. If the last message is the assistant's, the reply continues it.
    #[schema(required = true, nullable = false, min_items = 1)]
    pub messages: Option<Vec<MessageParam>>,
    /// The maximum number of tokens of the reply. It is required, except to count tokens.
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub max_tokens: Option<Whole>,
    /// The instructions.
    #[schema(schema_with = TextOr::<TextBlock>::schema)]
    pub system: Option<TextOr<TextBlock>>,
    /// The functions that the model may call.
    pub tools: Option<Vec<ToolParam>>,
    /// The calls that the model may make.
    pub tool_choice: Option<ToolChoiceParam>,
    /// The reasoning of the model.
    pub thinking: Option<ThinkingParam>,
    /// The effort of the reasoning and the format of the text.
    pub output_config: Option<OutputConfig>,
    /// The format of the text, as in an earlier version of the API.
    pub output_format: Option<OutputFormat>,
    /// The strings that end the reply.
    pub stop_sequences: Option<Vec<String>>,
    /// The temperature: 0 for the most likely token.
    #[schema(minimum = 0, maximum = 100)]
    pub temperature: Option<f64>,
    /// The share of the probability from which tokens are chosen.
    #[schema(minimum = 0, maximum = 1)]
    pub top_p: Option<f64>,
    /// The number of tokens from which one is chosen. 0 means all.
    #[schema(value_type = Option<u32>)]
    pub top_k: Option<Whole>,
    /// Whether events are sent while the reply is generated.
    pub stream: Option<bool>,
    /// The edits of the conversation before it is read.
    pub context_management: Option<ContextManagement>,
}

/// A message of a conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct MessageParam {
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// The text, or blocks.
    #[schema(schema_with = TextOr::<ContentBlock>::schema)]
    pub content: TextOr<ContentBlock>,
}

/// A tool.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ToolParam {
    /// `custom`, or absent. Other types are tools of Anthropic's servers.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The name of the function.
    pub name: Option<String>,
    /// The description of the function.
    pub description: Option<String>,
    /// The JSON schema of the parameters.
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Value>,
}

/// The calls that the model may make.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ToolChoiceParam {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the function, for `tool`.
    pub name: Option<String>,
    /// Whether a reply has at most one call.
    pub disable_parallel_tool_use: Option<bool>,
}

/// The reasoning of the model.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ThinkingParam {
    /// `enabled`, `disabled` or `adaptive`. The number `budget_tokens` is a target that the server
    /// does not enforce: `max_tokens` limits text and reasoning together.
    #[serde(rename = "type")]
    pub kind: String,
    /// `summarized`, or `omitted` for blocks without text.
    pub display: Option<String>,
}

/// The effort of the reasoning and the format of the text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct OutputConfig {
    /// The effort, such as `low`.
    pub effort: Option<String>,
    /// The format of the text.
    pub format: Option<OutputFormat>,
}

/// The format of the text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct OutputFormat {
    /// `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The JSON schema of the text.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
}

/// The edits of the conversation before it is read.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ContextManagement {
    /// The edits.
    pub edits: Option<Vec<ContextEdit>>,
}

/// An edit of the conversation.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(expecting = "an object")]
pub struct ContextEdit {
    /// The type of the edit. `clear_thinking_20251015` is accepted, because chat templates leave
    /// out the reasoning of earlier turns anyway.
    #[serde(rename = "type")]
    pub kind: String,
}
