//! Messages in the form that chat templates read.

use serde_json::{Value, json};
use warpwright_model::chat::{self, ArgumentsForm, ChatTemplate};

use crate::reply::request::{ChatMessage, MessageCall};

/// The form of messages that a template reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageForm {
    developer: DeveloperRole,
    reasoning: ReasoningPlace,
    arguments: ArgumentsForm,
}

/// The role of a developer's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeveloperRole {
    /// The template knows `developer`.
    Developer,
    /// The template knows only `system`.
    System,
}

/// The place of an earlier thought in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningPlace {
    /// The key with this name.
    Key(&'static str),
    /// The key `thinking`, which messages with both calls and content must not have (gpt-oss).
    ThinkingOrContent,
    /// A part of the content (Mistral).
    Part,
}

impl MessageForm {
    /// Returns the form that a template reads, by the words in its text.
    pub(super) fn of(template: &ChatTemplate) -> MessageForm {
        // Without quotes, the word may be part of a text for the model.
        let knows_developer =
            template.mentions("'developer'") || template.mentions("\"developer\"");
        let developer = if knows_developer {
            DeveloperRole::Developer
        } else {
            DeveloperRole::System
        };
        let reasoning = if template.mentions("reasoning_content") {
            ReasoningPlace::Key("reasoning_content")
        } else if template.mentions("message.thinking") {
            ReasoningPlace::ThinkingOrContent
        } else if template.mentions("block['thinking']") {
            ReasoningPlace::Part
        } else if template.mentions("message.reasoning") {
            ReasoningPlace::Key("reasoning")
        } else {
            ReasoningPlace::Key("reasoning_content")
        };
        MessageForm {
            developer,
            reasoning,
            arguments: template.arguments_form(),
        }
    }

    /// Returns a message as a value for the template, with the keys of OpenAI's chat API.
    pub(super) fn value(self, message: &ChatMessage) -> chat::Value {
        let role = match (message.role.as_str(), self.developer) {
            ("developer", DeveloperRole::System) => "system",
            (role, DeveloperRole::System | DeveloperRole::Developer) => role,
        };
        let mut entries = vec![("role", json!(role))];
        let mut content = json!(message.content);
        if let Some(reasoning) = &message.reasoning {
            match self.reasoning {
                ReasoningPlace::Key(key) => entries.push((key, json!(reasoning))),
                ReasoningPlace::ThinkingOrContent
                    if message.calls.is_empty() || message.content.is_empty() =>
                {
                    entries.push(("thinking", json!(reasoning)));
                }
                // The text in front of calls is a part of the analysis there.
                ReasoningPlace::ThinkingOrContent => {
                    content = json!(format!("{reasoning}\n\n{}", message.content));
                }
                ReasoningPlace::Part => {
                    content = json!([
                        { "type": "thinking", "thinking": reasoning },
                        { "type": "text", "text": message.content },
                    ]);
                }
            }
        }

        entries.insert(1, ("content", content));
        if !message.calls.is_empty() {
            let calls = message.calls.iter().map(|call| self.call(call));
            entries.push(("tool_calls", calls.collect()));
        }
        if let Some(id) = &message.call_id {
            entries.push(("tool_call_id", json!(id)));
        }
        if let Some(name) = &message.name {
            entries.push(("name", json!(name)));
        }

        let entries = entries
            .into_iter()
            .map(|(key, value)| (key, chat::Value::from(chat::Serde(value))));
        chat::Value::from_pairs(entries)
    }

    fn call(self, call: &MessageCall) -> Value {
        let arguments = Value::Object(call.arguments.clone());
        let arguments = match self.arguments {
            ArgumentsForm::Object => arguments,
            ArgumentsForm::Text => Value::String(arguments.to_string()),
        };
        json!({
            "id": call.id,
            "type": "function",
            "function": { "name": call.name, "arguments": arguments },
        })
    }
}
