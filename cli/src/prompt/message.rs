//! The messages of a conversation, in the JSON form of OpenAI's chat API.
//!
//! Unlike in that API, the arguments of a tool call are an object and not its text, because
//! templates need an object. Both forms are read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use warpwright_model::chat;
use warpwright_model::chat::ToolCall;

pub(crate) const SYSTEM: &str = "system";
pub(crate) const USER: &str = "user";
pub(crate) const ASSISTANT: &str = "assistant";
pub(crate) const TOOL: &str = "tool";

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another role that the template knows.
    pub(crate) role: String,
    pub(crate) content: String,
    /// The text that the assistant wrote while it reasoned, before its reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// The tool calls of the assistant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<AssistantCall>,
    /// The id of the call that a tool answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// The name of the tool that answers, or of the participant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// Keys that other programs add to a message and that do not change its meaning.
const IGNORED: [&str; 14] = [
    "annotations",
    "created",
    "created_at",
    "date",
    "finish_reason",
    "id",
    "index",
    "logprobs",
    "metadata",
    "model",
    "timestamp",
    "updated_at",
    "usage",
    "weight",
];

/// A tool call of the assistant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AssistantCall {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(rename = "type", default = "function")]
    kind: String,
    pub(crate) function: CalledFunction,
}

/// The name and the arguments of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CalledFunction {
    pub(crate) name: String,
    #[serde(deserialize_with = "arguments")]
    pub(crate) arguments: Map<String, Value>,
}

/// Returns the only type of a call.
fn function() -> String {
    "function".to_owned()
}

/// Reads the arguments of a call: an object, its text, or nothing for a call without arguments.
fn arguments<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let object = match Value::deserialize(from)? {
        Value::Object(object) => Some(object),
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(&text).ok(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    object.ok_or_else(|| {
        serde::de::Error::custom("arguments are neither an object nor the text of an object")
    })
}

impl TryFrom<Map<String, Value>> for Message {
    type Error = String;

    /// Reads a message as clients of OpenAI's API save it.
    ///
    /// A key with an empty value counts as absent.
    ///
    /// # Errors
    /// Returns an error if the role or the content is missing, or if a key could change the meaning
    /// of the message and is not supported.
    fn try_from(mut object: Map<String, Value>) -> Result<Message, String> {
        object.retain(|_, value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(entries) => !entries.is_empty(),
            Value::String(_) | Value::Bool(_) | Value::Number(_) => true,
        });
        let mut text = |key: &str| match object.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("its {key} is not a string")),
        };
        let role = text("role")?.ok_or("it has no role")?;
        let name = text("name")?.filter(|name| !name.is_empty());
        let tool_call_id = text("tool_call_id")?.filter(|id| !id.is_empty());

        // vLLM and SGLang name the reasoning `reasoning_content`, OpenRouter and newer vLLM
        // `reasoning`, and Ollama `thinking`. Some programs save it twice, so equal texts are
        // accepted.
        let mut reasoning_content: Option<String> = None;
        for key in ["reasoning_content", "reasoning", "thinking"] {
            let Some(found) = text(key)?.filter(|found| !found.is_empty()) else {
                continue;
            };
            if reasoning_content
                .as_ref()
                .is_some_and(|known| *known != found)
            {
                return Err(format!(
                    "its {key} differs from the reasoning under another key"
                ));
            }
            reasoning_content = Some(found);
        }

        let refusal = text("refusal")?.filter(|refusal| !refusal.is_empty());
        let content = object.remove("content").map(content).transpose()?;
        let tool_calls: Vec<AssistantCall> = match object.remove("tool_calls") {
            None => vec![],
            Some(calls) => serde_json::from_value(calls).map_err(|error| error.to_string())?,
        };
        object.retain(|key, value| {
            !IGNORED.contains(&key.as_str()) && *value != Value::String(String::new())
        });
        if refusal.is_some() {
            return Err(
                "it has a refusal, which templates do not know; move its text to content"
                    .to_owned(),
            );
        }

        if let Some(key) = object.keys().next() {
            return Err(format!(
                "it has the key {key}, which is not supported; leave it out"
            ));
        }

        if role != ASSISTANT && !tool_calls.is_empty() {
            return Err("it has tool_calls, which only the assistant can have".to_owned());
        }
        if role != TOOL && tool_call_id.is_some() {
            return Err("it has a tool_call_id, which only a tool can have".to_owned());
        }

        // Calls and reasoning are an answer by themselves.
        let can_be_empty = !tool_calls.is_empty() || reasoning_content.is_some();
        let content = content
            .or(can_be_empty.then(String::new))
            .ok_or("it has no content")?;
        Ok(Message {
            role,
            content,
            reasoning_content,
            tool_calls,
            tool_call_id,
            name,
        })
    }
}

/// Returns the text of a content: a string, or a list of text parts.
fn content(value: Value) -> Result<String, String> {
    let parts = match value {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        Value::Object(part) => vec![Value::Object(part)],
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            return Err("its content is neither a string nor a list of parts".to_owned());
        }
    };
    let mut text = String::new();
    for part in parts {
        // Some programs save parts without a type.
        let kind = part["type"].as_str().unwrap_or("text");
        let is_text = matches!(kind, "text" | "input_text" | "output_text");
        match (&part, part["text"].as_str()) {
            (Value::String(part), _) => text += part,
            (_, Some(part)) if is_text => text += part,
            _ if is_text => return Err("a part of its content has no text".to_owned()),
            _ => {
                return Err(format!(
                    "its content has a part of the type {kind:?}, and only text is supported"
                ));
            }
        }
    }

    Ok(text)
}

impl Message {
    /// Returns a message with a role and a text.
    pub(crate) fn new(role: &str, content: &str) -> Message {
        Message {
            role: role.to_owned(),
            content: content.to_owned(),
            ..Message::default()
        }
    }

    /// Returns a message of the assistant with tool calls.
    ///
    /// A call without an id gets one from its number in the conversation. `before` is the number of
    /// earlier calls. The ids have nine letters and digits, because Mistral's templates require
    /// that.
    pub(crate) fn calling(content: &str, calls: &[ToolCall], before: usize) -> Message {
        let mut tool_calls = vec![];
        for (number, call) in (before + 1..).zip(calls) {
            let mut call = AssistantCall::from(call);
            call.id.get_or_insert_with(|| format!("call{number:05}"));
            tool_calls.push(call);
        }
        Message {
            tool_calls,
            ..Message::new(ASSISTANT, content)
        }
    }

    /// Returns the message with the result of a tool.
    pub(crate) fn answering(call: &AssistantCall, content: &str) -> Message {
        let name = Some(call.function.name.clone());
        Message {
            tool_call_id: call.id.clone(),
            name,
            ..Message::new(TOOL, content)
        }
    }

    /// Returns the message as a value for templates.
    pub(crate) fn value(&self) -> chat::Value {
        chat::Value::from(chat::Serde(self))
    }
}

impl From<&ToolCall> for AssistantCall {
    fn from(call: &ToolCall) -> AssistantCall {
        let ToolCall {
            id,
            name,
            arguments,
        } = call.clone();
        AssistantCall {
            id,
            kind: function(),
            function: CalledFunction { name, arguments },
        }
    }
}

/// Returns tool calls as a JSON list.
pub(crate) fn calls_json(calls: &[ToolCall]) -> Value {
    json!(calls.iter().map(AssistantCall::from).collect::<Vec<_>>())
}

/// Returns the calls at the end of a conversation that have no result yet.
pub(crate) fn waiting(messages: &[Message]) -> Vec<&AssistantCall> {
    let answers = messages
        .iter()
        .rev()
        .take_while(|message| message.role == TOOL)
        .count();
    let (before, answers) = messages.split_at(messages.len() - answers);
    let mut calls: Vec<&AssistantCall> = before
        .last()
        .map_or(vec![], |last| last.tool_calls.iter().collect());
    for answer in answers {
        // Some programs save results without ids. They are matched by the name of the tool.
        let answered = |call: &&AssistantCall| match &answer.tool_call_id {
            Some(id) => call.id.as_ref() == Some(id),
            None => Some(&call.function.name) == answer.name.as_ref(),
        };
        if let Some(at) = calls.iter().position(answered) {
            calls.remove(at);
        }
    }

    calls
}
