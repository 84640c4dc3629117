//! The items of a conversation.

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::protocol::shared::TextOr;

/// An item of a conversation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "ItemFields")]
pub enum InputItem {
    /// A message.
    Message(MessageItem),
    /// A tool call of the assistant.
    Call(CallItem),
    /// The answer to a tool call.
    Answer(AnswerItem),
    /// The assistant's reasoning. It is empty if only OpenAI's servers can read it.
    Reasoning(String),
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageItem {
    /// `user`, `assistant`, `system` or `developer`.
    pub role: String,
    /// The text or parts.
    pub content: TextOr<InputPart>,
}

/// A tool call of the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct CallItem {
    /// The id of the call.
    pub call_id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments, as the text of a JSON object.
    pub arguments: Value,
}

/// The answer to a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerItem {
    /// The id of the call.
    pub call_id: String,
    /// The text or parts.
    pub output: TextOr<InputPart>,
}

/// A part of a message or of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PartFields")]
pub enum InputPart {
    /// A text.
    Text(String),
    /// An image.
    Image,
    /// A file.
    File,
}

/// The fields of an item that are needed to read it, or to name it in an error.
#[derive(Deserialize)]
#[serde(
    expecting = "an item such as {\"type\": \"message\", \"role\": \"user\", \"content\": \"..\"}"
)]
struct ItemFields {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<TextOr<InputPart>>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<Value>,
    output: Option<TextOr<InputPart>>,
    summary: Option<Vec<InputPart>>,
}

impl TryFrom<ItemFields> for InputItem {
    type Error = String;

    fn try_from(item: ItemFields) -> Result<InputItem, String> {
        // A message needs no type, but every item without a role does.
        let kind = match (&item.kind, &item.role) {
            (Some(kind), _) => kind.clone(),
            (None, Some(_)) => "message".to_owned(),
            (None, None) => return Err("an item has no `type`".to_owned()),
        };
        match &*kind {
            "message" => Ok(InputItem::Message(MessageItem {
                role: required(&kind, "role", item.role)?,
                content: required(&kind, "content", item.content)?,
            })),
            "function_call" => Ok(InputItem::Call(CallItem {
                call_id: required(&kind, "call_id", item.call_id)?,
                name: required(&kind, "name", item.name)?,
                arguments: required(&kind, "arguments", item.arguments)?,
            })),
            "function_call_output" => Ok(InputItem::Answer(AnswerItem {
                call_id: required(&kind, "call_id", item.call_id)?,
                output: required(&kind, "output", item.output)?,
            })),
            "reasoning" => Ok(InputItem::Reasoning(reasoning(item.content, item.summary))),
            "item_reference" => Err(
                "an item of type \"item_reference\" is not supported: the server keeps no items, \
                 so send the item itself"
                    .to_owned(),
            ),
            other => Err(format!(
                "an item of type \"{other}\" is not supported: expected message, function_call, \
                 function_call_output or reasoning"
            )),
        }
    }
}

/// Returns the text of reasoning: its content, or else its summary.
fn reasoning(content: Option<TextOr<InputPart>>, summary: Option<Vec<InputPart>>) -> String {
    let parts = match content {
        Some(TextOr::Text(text)) if !text.is_empty() => return text,
        Some(TextOr::List(parts)) if !parts.is_empty() => parts,
        Some(_) | None => summary.unwrap_or_default(),
    };
    let texts: Vec<String> = parts
        .into_iter()
        .filter_map(|part| match part {
            InputPart::Text(text) => Some(text),
            InputPart::Image | InputPart::File => None,
        })
        .collect();
    texts.join("\n")
}

/// The fields of a part that are needed to read it, or to name it in an error.
#[derive(Deserialize)]
#[serde(expecting = "a part such as {\"type\": \"input_text\", \"text\": \"..\"}")]
struct PartFields {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

impl TryFrom<PartFields> for InputPart {
    type Error = String;

    fn try_from(part: PartFields) -> Result<InputPart, String> {
        let kind = &part.kind;
        match &**kind {
            "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text" => {
                Ok(InputPart::Text(required(kind, "text", part.text)?))
            }
            "refusal" => Ok(InputPart::Text(required(kind, "refusal", part.refusal)?)),
            "input_image" => Ok(InputPart::Image),
            "input_file" => Ok(InputPart::File),
            other => Err(format!(
                "a part of type \"{other}\" is not supported: expected input_text or output_text"
            )),
        }
    }
}

/// Returns a required field of an item or part.
fn required<T>(kind: &str, name: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("\"{kind}\" has no `{name}`"))
}

impl PartialSchema for InputItem {
    fn schema() -> RefOr<Schema> {
        let string = || ObjectBuilder::new().schema_type(Type::String);
        let kinds = [
            "message",
            "function_call",
            "function_call_output",
            "reasoning",
        ];
        ObjectBuilder::new()
            .property("type", string().enum_values(Some(kinds)))
            .property("role", string())
            .property("content", TextOr::<InputPart>::schema())
            .property("call_id", string())
            .property("name", string())
            .property("arguments", string())
            .property("output", TextOr::<InputPart>::schema())
            .into()
    }
}

impl ToSchema for InputItem {}

impl PartialSchema for InputPart {
    fn schema() -> RefOr<Schema> {
        let string = || ObjectBuilder::new().schema_type(Type::String);
        ObjectBuilder::new()
            .property(
                "type",
                string().enum_values(Some(["input_text", "output_text"])),
            )
            .property("text", string())
            .required("type")
            .required("text")
            .into()
    }
}

impl ToSchema for InputPart {}
