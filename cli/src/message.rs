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

/// What somebody says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Read")]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
    /// Of the assistant: what it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<Call>,
    /// Of a tool: the call that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// Of a tool: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// A message in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    role: String,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

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

/// An object, or one as a text.
fn arguments<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let object = match Value::deserialize(from)? {
        Value::Object(object) => Some(object),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    };
    object.ok_or_else(|| serde::de::Error::custom("arguments are neither an object nor one as a text"))
}

impl TryFrom<Read> for Message {
    type Error = &'static str;

    fn try_from(read: Read) -> Result<Message, &'static str> {
        let Read { role, content, tool_calls, tool_call_id, name } = read;
        let tool_calls = tool_calls.unwrap_or_default();
        match (role.as_str(), tool_calls.is_empty()) {
            (ASSISTANT, _) | (_, true) => {}
            (_, false) => return Err("only the assistant calls tools"),
        }
        if role != TOOL && (tool_call_id.is_some() || name.is_some()) {
            return Err("only a tool has name and tool_call_id");
        }
        let content = content.or((!tool_calls.is_empty()).then(String::new)).ok_or("it has no content")?;
        Ok(Message { role, content, tool_calls, tool_call_id, name })
    }
}

impl Message {
    pub(crate) fn new(role: &str, content: &str) -> Message {
        Message { role: role.to_owned(), content: content.to_owned(), ..Message::default() }
    }

    /// What the assistant says and calls. Calls that it does not name are named by their number in the conversation, in
    /// nine letters and digits, as templates of Mistral want it.
    pub(crate) fn calling(content: &str, calls: &[ToolCall], before: usize) -> Message {
        let name = |number: usize| Some(format!("call{number:05}"));
        let calls = (before + 1..).zip(calls);
        let tool_calls = calls
            .map(|(number, call)| Call { id: call.id.clone().or_else(|| name(number)), ..Call::from(call) });
        Message { tool_calls: tool_calls.collect(), ..Message::new(ASSISTANT, content) }
    }

    /// What a tool answers.
    pub(crate) fn answering(call: &Call, content: &str) -> Message {
        let name = Some(call.function.name.clone());
        Message { tool_call_id: call.id.clone(), name, ..Message::new(TOOL, content) }
    }

    /// What a template gets.
    pub(crate) fn value(&self) -> chat::Value {
        chat::Value::from(chat::Serde(self))
    }
}

impl From<&ToolCall> for Call {
    fn from(call: &ToolCall) -> Call {
        let ToolCall { id, name, arguments } = call.clone();
        Call { id, kind: function(), function: Function { name, arguments } }
    }
}

/// Calls as a list for programs.
pub(crate) fn calls_json(calls: &[ToolCall]) -> Value {
    json!(calls.iter().map(Call::from).collect::<Vec<_>>())
}

/// The calls at the end of a conversation that no tool has answered yet.
pub(crate) fn waiting(messages: &[Message]) -> Vec<&Call> {
    let answers = messages.iter().rev().take_while(|message| message.role == TOOL).count();
    let (before, answers) = messages.split_at(messages.len() - answers);
    let mut calls: Vec<&Call> = before.last().map_or(vec![], |last| last.tool_calls.iter().collect());
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
