//! The variables of a template: switches of reasoning, and those that the client sets itself.

use serde_json::{Map, Value, json};
use warpwright_model::chat::{self, ChatTemplate};

use crate::error::RequestError;
use crate::models::TEMPLATE_INPUTS;
use crate::reply::request::ReasoningFields;

/// Returns the variables for a template. A later one overrides an earlier one: the defaults of the
/// server come first, and the variables of the client last.
///
/// # Errors
/// Returns an error if the client sets an input that has a field of its own.
pub(super) fn variables(
    template: &ChatTemplate,
    defaults: &Map<String, Value>,
    reasoning: &ReasoningFields,
    own: &Map<String, Value>,
) -> Result<Vec<(String, chat::Value)>, RequestError> {
    for (name, instead) in TEMPLATE_INPUTS {
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
    let copied = |(name, value): (&String, &Value)| (name.clone(), value.clone());
    let all = defaults
        .iter()
        .map(copied)
        .chain(known)
        .chain(own.iter().map(copied));
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
