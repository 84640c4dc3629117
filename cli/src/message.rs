//! Messages of a conversation: what was said, which tools were called, and what they answered.
//!
//! As JSON they are those of OpenAI's interface, with arguments as objects.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use warpwright_engine::chat::{self, ToolCall};

pub(crate) const SYSTEM: &str = "system";
pub(crate) const USER: &str = "user";
pub(crate) const ASSISTANT: &str = "assistant";
pub(crate) const TOOL: &str = "tool";

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
    /// The reasoning of the assistant before its reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    /// The calls that the assistant makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<Call>,
    /// The call that a tool answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// The name of the tool that answers, or of a participant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// Keys that other programs add to a message. They say nothing about the conversation itself.
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

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(rename = "type", default = "function")]
    kind: String,
    pub(crate) function: Function,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    #[serde(deserialize_with = "arguments")]
    pub(crate) arguments: Map<String, Value>,
}

fn function() -> String {
    "function".to_owned()
}

/// Reads the arguments of a call: an object, or its text. Nothing stands for no arguments.
fn arguments<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let object = match Value::deserialize(from)? {
        Value::Object(object) => Some(object),
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(&text).ok(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    object.ok_or_else(|| {
        serde::de::Error::custom("arguments are neither an object nor one as a text")
    })
}

impl TryFrom<Map<String, Value>> for Message {
    type Error = String;

    /// Reads a message as the programs around OpenAI's interface save it. A key without a value counts as absent. A key
    /// that could change the meaning of the message, and that has a value, is an error.
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
        // The names of the reasoning in vLLM and SGLang, in OpenRouter and newer vLLM, and in Ollama.
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
                    "its {key} differs from another key with its reasoning"
                ));
            }
            reasoning_content = Some(found);
        }
        let refusal = text("refusal")?.filter(|refusal| !refusal.is_empty());
        let content = object.remove("content").map(content).transpose()?;
        let tool_calls: Vec<Call> = match object.remove("tool_calls") {
            None => vec![],
            Some(calls) => serde_json::from_value(calls).map_err(|error| error.to_string())?,
        };
        object.retain(|key, value| {
            !IGNORED.contains(&key.as_str()) && *value != Value::String(String::new())
        });
        if refusal.is_some() {
            return Err(
                "it has a refusal, which no template knows; put its text under content".to_owned(),
            );
        }
        if let Some(key) = object.keys().next() {
            return Err(format!(
                "it has the key {key}, which cannot be used; leave it out"
            ));
        }
        if role != ASSISTANT && !tool_calls.is_empty() {
            return Err("only the assistant calls tools".to_owned());
        }
        if role != TOOL && tool_call_id.is_some() {
            return Err("only a tool has tool_call_id".to_owned());
        }
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

/// Returns the text of a content: a string, or a list of parts that are texts.
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
        let kind = part["type"].as_str().unwrap_or("text");
        let is_text = matches!(kind, "text" | "input_text" | "output_text");
        match (&part, part["text"].as_str()) {
            (Value::String(part), _) => text += part,
            (_, Some(part)) if is_text => text += part,
            _ if is_text => return Err("a part of its content has no text".to_owned()),
            _ => {
                return Err(format!(
                    "its content has a part of the type {kind:?}, and only text can be used"
                ));
            }
        }
    }
    Ok(text)
}

impl Message {
    pub(crate) fn new(role: &str, content: &str) -> Message {
        Message {
            role: role.to_owned(),
            content: content.to_owned(),
            ..Message::default()
        }
    }

    /// What the assistant says and calls. Calls that it does not name are named by their number in the conversation, in
    /// nine letters and digits, as templates of Mistral want it.
    pub(crate) fn calling(content: &str, calls: &[ToolCall], before: usize) -> Message {
        let name = |number: usize| Some(format!("call{number:05}"));
        let calls = (before + 1..).zip(calls);
        let tool_calls = calls.map(|(number, call)| Call {
            id: call.id.clone().or_else(|| name(number)),
            ..Call::from(call)
        });
        Message {
            tool_calls: tool_calls.collect(),
            ..Message::new(ASSISTANT, content)
        }
    }

    /// What a tool answers.
    pub(crate) fn answering(call: &Call, content: &str) -> Message {
        let name = Some(call.function.name.clone());
        Message {
            tool_call_id: call.id.clone(),
            name,
            ..Message::new(TOOL, content)
        }
    }

    /// What a template gets.
    pub(crate) fn value(&self) -> chat::Value {
        chat::Value::from(chat::Serde(self))
    }
}

impl From<&ToolCall> for Call {
    fn from(call: &ToolCall) -> Call {
        let ToolCall {
            id,
            name,
            arguments,
        } = call.clone();
        Call {
            id,
            kind: function(),
            function: Function { name, arguments },
        }
    }
}

/// Calls as a list for programs.
pub(crate) fn calls_json(calls: &[ToolCall]) -> Value {
    json!(calls.iter().map(Call::from).collect::<Vec<_>>())
}

/// The calls at the end of a conversation that no tool has answered yet.
pub(crate) fn waiting(messages: &[Message]) -> Vec<&Call> {
    let answers = messages
        .iter()
        .rev()
        .take_while(|message| message.role == TOOL)
        .count();
    let (before, answers) = messages.split_at(messages.len() - answers);
    let mut calls: Vec<&Call> = before
        .last()
        .map_or(vec![], |last| last.tool_calls.iter().collect());
    for answer in answers {
        let answered = |call: &&Call| match &answer.tool_call_id {
            Some(id) => call.id.as_ref() == Some(id),
            None => Some(&call.function.name) == answer.name.as_ref(),
        };
        if let Some(at) = calls.iter().position(answered) {
            calls.remove(at);
        }
    }
    calls
}
