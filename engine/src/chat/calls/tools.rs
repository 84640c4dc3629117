//! The tools that a model is told of: a list of functions, as OpenAI's interface has it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::chat::value as chat;

/// Descriptions of functions that the assistant may call.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    list: Vec<Map<String, Value>>,
}

impl Tools {
    /// Reads `[{"type": "function", "function": {"name": .., "description": .., "parameters": JSON schema}}, ..]`.
    ///
    /// # Errors
    /// What is no such list, with the number of the element, from 1 on.
    pub fn new(json: &str) -> Result<Tools, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| format!("is no JSON: {error}"))?;
        let Value::Array(values) = value else {
            return Err(format!("is no list of tools; {EXPECTED}"));
        };
        if values.is_empty() {
            return Err("is a list without a tool".to_owned());
        }
        let (mut list, mut names) = (vec![], HashSet::new());
        for (number, value) in (1..).zip(values) {
            let tool = tool(value).map_err(|problem| format!("has a tool {number} {problem}; {EXPECTED}"))?;
            let name = name(&tool).to_owned();
            if !names.insert(name.clone()) {
                return Err(format!("has two tools of the name {name:?}"));
            }
            list.push(tool);
        }
        Ok(Tools { list })
    }

    /// What a template gets, with the keys in the order of the text.
    pub fn value(&self) -> chat::Value {
        chat::Value::from(chat::Serde(&self.list))
    }

    /// The names of the functions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(name)
    }

    /// Whether a parameter of a function takes strings only.
    pub(super) fn is_string(&self, function: &str, parameter: &str) -> bool {
        let tool = self.list.iter().find(|tool| name(tool) == function);
        tool.is_some_and(|tool| tool["function"]["parameters"]["properties"][parameter]["type"] == "string")
    }
}

/// An element that is as expected.
const EXPECTED: &str = "expected [{\"type\": \"function\", \"function\": {\"name\": \"..\", \"description\": \"..\", \"parameters\": {..}}}]";

fn tool(value: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(tool) = value else { return Err("that is no object".to_owned()) };
    if tool.get("type").is_none_or(|kind| kind != "function") {
        return Err("whose type is not \"function\"".to_owned());
    }
    let Some(Value::Object(function)) = tool.get("function") else {
        return Err("without an object under \"function\"".to_owned());
    };
    if function.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err("whose function has no name".to_owned());
    }
    match function.get("parameters") {
        None | Some(Value::Object(_)) => Ok(tool),
        Some(_) => Err("whose parameters are no JSON schema".to_owned()),
    }
}

fn name(tool: &Map<String, Value>) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}
