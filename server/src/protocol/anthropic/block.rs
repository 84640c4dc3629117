//! The blocks of which messages consist.

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::protocol::shared::TextOr;

/// A block of a message. Fields such as `cache_control` and `citations` are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "BlockFields")]
pub enum ContentBlock {
    /// A text.
    Text(String),
    /// The assistant's reasoning.
    Thinking(String),
    /// Reasoning in an encrypted form, which only Anthropic's servers can read.
    RedactedThinking,
    /// A tool call of the assistant.
    ToolUse(ToolUseBlock),
    /// The answer to a tool call.
    ToolResult(ToolResultBlock),
    /// Instructions in the middle of a conversation.
    System(String),
}

/// A tool call of the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUseBlock {
    /// The id of the call.
    pub id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments.
    pub input: Value,
}

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResultBlock {
    /// The id of the call.
    pub call_id: String,
    /// The text.
    pub text: String,
    /// The outcome of the call.
    pub outcome: ToolOutcome,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The tool has answered.
    Answered,
    /// The tool has failed, and the text is its error.
    Failed,
}

/// A block that can only be a text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BlockFields")]
pub struct TextBlock(pub String);

/// The fields of a block that are needed to read it, or to name it in an error.
#[derive(Deserialize)]
#[serde(expecting = "a block such as {\"type\": \"text\", \"text\": \"..\"}")]
struct BlockFields {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    tool_use_id: Option<String>,
    content: Option<TextOr<TextBlock>>,
    is_error: Option<bool>,
}

impl BlockFields {
    /// Returns a required field.
    fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("a block of type \"{}\" has no `{name}`", self.kind))
    }

    /// Returns the error for a block that is not supported here.
    fn refused(&self) -> String {
        let kind = &self.kind;
        match &**kind {
            "image" | "document" | "container_upload" => format!(
                "{kind} input is not supported: the model reads only text, so send the text in a \
                 block of type \"text\""
            ),
            _ => format!(
                "a block of type \"{kind}\" is not supported here: expected text, thinking, \
                 tool_use or tool_result"
            ),
        }
    }
}

impl TryFrom<BlockFields> for ContentBlock {
    type Error = String;

    fn try_from(mut block: BlockFields) -> Result<ContentBlock, String> {
        match &*block.kind {
            "text" => {
                let text = block.text.take();
                Ok(ContentBlock::Text(block.required("text", text)?))
            }
            "thinking" => {
                let thinking = block.thinking.take();
                Ok(ContentBlock::Thinking(
                    block.required("thinking", thinking)?,
                ))
            }
            "redacted_thinking" => Ok(ContentBlock::RedactedThinking),
            "tool_use" => {
                let id = block.id.take();
                let name = block.name.take();
                let input = block.input.take();
                Ok(ContentBlock::ToolUse(ToolUseBlock {
                    id: block.required("id", id)?,
                    name: block.required("name", name)?,
                    input: block.required("input", input)?,
                }))
            }
            "tool_result" => {
                let call_id = block.tool_use_id.take();
                // A tool without an output has no content.
                let text = block.content.take().map(joined).unwrap_or_default();
                let outcome = if block.is_error == Some(true) {
                    ToolOutcome::Failed
                } else {
                    ToolOutcome::Answered
                };
                Ok(ContentBlock::ToolResult(ToolResultBlock {
                    call_id: block.required("tool_use_id", call_id)?,
                    text,
                    outcome,
                }))
            }
            "mid_conv_system" => {
                let content = block.content.take();
                let content = block.required("content", content)?;
                Ok(ContentBlock::System(joined(content)))
            }
            _ => Err(block.refused()),
        }
    }
}

impl TryFrom<BlockFields> for TextBlock {
    type Error = String;

    fn try_from(mut block: BlockFields) -> Result<TextBlock, String> {
        if block.kind != "text" {
            return Err(block.refused());
        }
        let text = block.text.take();
        Ok(TextBlock(block.required("text", text)?))
    }
}

/// Returns the text of blocks, each on its own lines.
pub fn joined(content: TextOr<TextBlock>) -> String {
    match content {
        TextOr::Text(text) => text,
        TextOr::List(blocks) => {
            let texts: Vec<String> = blocks.into_iter().map(|block| block.0).collect();
            texts.join("\n")
        }
    }
}

impl PartialSchema for TextBlock {
    fn schema() -> RefOr<Schema> {
        let string = || ObjectBuilder::new().schema_type(Type::String);
        ObjectBuilder::new()
            .property("type", string().enum_values(Some(["text"])))
            .property("text", string())
            .required("type")
            .required("text")
            .into()
    }
}

impl ToSchema for TextBlock {}

impl PartialSchema for ContentBlock {
    fn schema() -> RefOr<Schema> {
        let string = || ObjectBuilder::new().schema_type(Type::String);
        let kinds = [
            "text",
            "thinking",
            "redacted_thinking",
            "tool_use",
            "tool_result",
            "mid_conv_system",
        ];
        ObjectBuilder::new()
            .property("type", string().enum_values(Some(kinds)))
            .property("text", string())
            .property("thinking", string())
            .property("id", string())
            .property("name", string())
            .property("input", ObjectBuilder::new().schema_type(Type::Object))
            .property("tool_use_id", string())
            .property("content", TextOr::<TextBlock>::schema())
            .property("is_error", ObjectBuilder::new().schema_type(Type::Boolean))
            .required("type")
            .into()
    }
}

impl ToSchema for ContentBlock {}
