//! Messages in the form that chat templates read.

use serde::Serialize;
use serde_json::{Map, Value};
use warpwright_model::chat;

use crate::reply::request::{ChatMessage, MessageCall};

/// A message as templates know it, with the keys of OpenAI's chat API.
#[derive(Serialize)]
struct TemplateMessage<'a> {
    role: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<TemplateCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct TemplateCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: TemplateFunction<'a>,
}

#[derive(Serialize)]
struct TemplateFunction<'a> {
    name: &'a str,
    arguments: &'a Map<String, Value>,
}

/// Returns a message as a value for templates.
pub(super) fn value(message: &ChatMessage) -> chat::Value {
    chat::Value::from(chat::Serde(TemplateMessage {
        role: &message.role,
        content: &message.content,
        reasoning_content: message.reasoning.as_deref(),
        tool_calls: message.calls.iter().map(template_call).collect(),
        tool_call_id: message.call_id.as_deref(),
        name: message.name.as_deref(),
    }))
}

fn template_call(call: &MessageCall) -> TemplateCall<'_> {
    TemplateCall {
        id: &call.id,
        r#type: "function",
        function: TemplateFunction {
            name: &call.name,
            arguments: &call.arguments,
        },
    }
}
