//! The variables of a template: switches of reasoning, and those that the client sets itself.

use serde_json::{Map, Value, json};
use warpwright_model::chat::{self, ChatTemplate};

use crate::error::RequestError;
use crate::reply::request::ReasoningFields;

/// The inputs of a template that are not variables of the client.
const RESERVED: [(&str, &str); 4] = [
    ("messages", "it is the conversation itself"),
    ("tools", "use the field tools"),
    ("documents", "documents are not supported"),
    (
        "add_generation_prompt",
        "a last message of the assistant is continued, and any other one is answered",
    ),
];

/// Returns the variables for a template. Those of the client come last, because they override the
/// others.
///
/// # Errors
/// Returns an error if the client sets an input that has a field of its own.
pub(super) fn variables(
    template: &ChatTemplate,
    reasoning: &ReasoningFields,
    own: &Map<String, Value>,
) -> Result<Vec<(String, chat::Value)>, RequestError> {
    for (name, instead) in RESERVED {
        if own.contains_key(name) {
            let message =
                format!("the variable {name} of chat_template_kwargs cannot be set: {instead}");
            return Err(RequestError::invalid(
                format!("chat_template_kwargs.{name}"),
                message,
            ));
        }
    }

    let switches = switches(template, reasoning);
    let known = switches
        .into_iter()
        .filter(|(name, _)| template.mentions(name))
        .map(|(name, value)| (name.to_owned(), value));
    let own = own
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let all = known.chain(own);
    Ok(all
        .map(|(name, value)| (name, chat::Value::from(chat::Serde(value))))
        .collect())
}

/// Returns the variables with which templates switch reasoning.
fn switches(template: &ChatTemplate, reasoning: &ReasoningFields) -> Vec<(&'static str, Value)> {
    let mut switches = vec![];
    let effort = reasoning.effort.as_deref();

    // A client that asks for effort wants reasoning, even if the template needs a switch for it.
    let enabled = reasoning.enabled.or(effort.map(|effort| effort != "none"));
    if let Some(enabled) = enabled {
        // Qwen, GLM, SmolLM, Gemma, Nemotron; DeepSeek, Granite, Kimi.
        switches.push(("enable_thinking", json!(enabled)));
        switches.push(("thinking", json!(enabled)));
        if !enabled {
            // Seed-OSS.
            switches.push(("thinking_budget", json!(0)));
        }
    }

    if let Some(effort) = effort {
        switches.push(("reasoning_effort", json!(known_effort(template, effort))));
    }
    switches
}

/// Returns the effort in the words of a template. OpenAI knows more levels than most models.
fn known_effort<'a>(template: &ChatTemplate, effort: &'a str) -> &'a str {
    let knows =
        template.mentions(&format!("'{effort}'")) || template.mentions(&format!("\"{effort}\""));
    match effort {
        _ if knows => effort,
        "none" | "minimal" => "low",
        "xhigh" | "max" => "high",
        effort => effort,
    }
}
