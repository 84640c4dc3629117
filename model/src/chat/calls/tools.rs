//! The functions that a model may call, and the types of their parameters.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::python;
use crate::chat::value as chat;
use crate::unique_keys;

/// Descriptions of functions that the assistant may call, in the format of OpenAI's API.
///
/// ```
/// use warpwright_model::chat::Tools;
///
/// let tools = r#"[{"type": "function", "function": {"name": "ls", "description": "Lists files"}}]"#;
/// let tools = Tools::new(tools).unwrap();
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["ls"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tools {
    list: Vec<Map<String, Value>>,
}

/// An empty list.
pub(super) static NO_TOOLS: Tools = Tools { list: vec![] };

impl Tools {
    /// Reads `[{"type": "function", "function": {"name": .., "description": .., "parameters": JSON
    /// schema}}, ..]`.
    ///
    /// # Errors
    /// Returns the end of a sentence that starts with the name of the file, such as "is not valid
    /// JSON: ..". Elements are numbered from 1.
    pub fn new(json: &str) -> Result<Tools, String> {
        let value: Value =
            serde_json::from_str(json).map_err(|error| format!("is not valid JSON: {error}"))?;
        let Value::Array(values) = value else {
            return Err(format!("is not a list of tools; {EXPECTED}"));
        };
        if values.is_empty() {
            return Err("is a list without a tool".to_owned());
        }

        let mut list = vec![];
        let mut names = HashSet::new();
        for (number, value) in (1..).zip(values) {
            let tool = tool(value)
                .map_err(|problem| format!("has a tool {number} {problem}; {EXPECTED}"))?;
            let name = name(&tool).to_owned();
            if !names.insert(name.clone()) {
                return Err(format!("has two tools with the name {name:?}"));
            }
            list.push(tool);
        }

        Ok(Tools { list })
    }

    /// Returns the list for a template, with the keys of objects in the order of the text.
    pub fn value(&self) -> chat::Value {
        chat::Value::from(chat::Serde(&self.list))
    }

    /// Returns the names of the functions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(name)
    }

    /// Returns the JSON schema of a function's parameters.
    pub(crate) fn parameters(&self, function: &str) -> Option<&Value> {
        let tool = self.list.iter().find(|tool| name(tool) == function)?;
        tool["function"].get("parameters")
    }

    /// Returns true if there is a function of this name.
    pub(super) fn has(&self, function: &str) -> bool {
        self.names().any(|name| name == function)
    }

    /// Returns true if the function declares its parameters, and this one is not among them. A
    /// function without `properties`, or with `additionalProperties`, accepts every parameter.
    pub(super) fn lacks_parameter(&self, function: &str, parameter: &str) -> bool {
        let Some(parameters) = self.parameters(function) else {
            return false;
        };
        let Some(Value::Object(properties)) = parameters.get("properties") else {
            return false;
        };

        let open = parameters
            .get("additionalProperties")
            .is_some_and(|more| *more != false);
        !open && !properties.contains_key(parameter)
    }

    /// Returns the parameters that the function requires.
    pub(super) fn required(&self, function: &str) -> impl Iterator<Item = &str> {
        let required = self
            .parameters(function)
            .and_then(|parameters| parameters["required"].as_array());
        required.into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns true if the calls agree with the schemas: all parameters are declared, all required
    /// ones are present, and all values have an allowed type. All functions but the first must be
    /// known.
    pub(super) fn agree(&self, calls: &[ToolCall]) -> bool {
        let known = calls.iter().skip(1).all(|call| self.has(&call.name));
        known
            && calls.iter().all(|call| {
                let mut arguments = call.arguments.iter();
                let mut required = self.required(&call.name);
                arguments.all(|(key, value)| {
                    !self.lacks_parameter(&call.name, key) && self.fits(&call.name, key, value)
                }) && required.all(|key| call.arguments.contains_key(key))
            })
    }

    /// Returns the types that a parameter allows. All types are allowed if the schema does not
    /// restrict them.
    fn schema(&self, function: &str, parameter: &str) -> Schema {
        let parameters = self.parameters(function);
        parameters.map_or(Schema::ANY, |parameters| {
            Schema::new(&parameters["properties"][parameter])
        })
    }

    /// Returns the value that a text means for a parameter. Formats with tags write values without
    /// quotes, so only the schema distinguishes the string `12` from the number. A string parameter
    /// takes the text unchanged. For other types the text is JSON, or the Python notation that
    /// several templates use. A text that is neither remains a string.
    pub(super) fn read(&self, function: &str, parameter: &str, text: &str) -> Value {
        let schema = self.schema(function, parameter);
        let string = || Value::String(text.to_owned());
        if schema.string {
            return if schema.null && matches!(text, "null" | "None") {
                Value::Null
            } else {
                string()
            };
        }

        match text.trim() {
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            text => {
                let json = serde_json::from_str(text)
                    .ok()
                    .filter(|_| unique_keys(text.as_bytes()).is_ok());
                json.or_else(|| python::literal(text).filter(|_| schema.container))
                    .unwrap_or_else(string)
            }
        }
    }

    /// Returns true if the schema of a parameter allows the type of a value.
    pub(super) fn fits(&self, function: &str, parameter: &str, value: &Value) -> bool {
        let schema = self.schema(function, parameter);
        if schema.any {
            return true;
        }
        match value {
            Value::Null => schema.null,
            Value::Bool(_) => schema.boolean,
            Value::Number(_) => schema.number,
            Value::String(_) => schema.string,
            Value::Array(_) | Value::Object(_) => schema.container,
        }
    }
}

/// The types that a schema allows.
#[derive(Debug, Clone, Copy, Default)]
struct Schema {
    /// True if the types are unknown, for example for a reference.
    any: bool,
    /// True for a schema of strings. A union with other types counts as those, except for null.
    string: bool,
    null: bool,
    boolean: bool,
    number: bool,
    /// Lists and objects.
    container: bool,
}

impl Schema {
    const ANY: Schema = Schema {
        any: true,
        string: false,
        null: false,
        boolean: false,
        number: false,
        container: true,
    };

    /// Returns the types that a JSON schema allows. Other keywords are ignored.
    fn new(schema: &Value) -> Schema {
        let mut found = Schema::default();
        match (&schema["type"], &schema["enum"], &schema["const"]) {
            (Value::String(kind), _, _) => found.add(kind),
            (Value::Array(kinds), _, _) if !kinds.is_empty() => {
                for kind in kinds {
                    found.add(kind.as_str().unwrap_or_default());
                }
            }
            (_, Value::Array(values), _) if !values.is_empty() => {
                for value in values {
                    found.add(kind(value));
                }
            }
            (_, _, value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
                found.add(kind(value))
            }
            _ => {
                let branches = ["anyOf", "oneOf"]
                    .iter()
                    .find_map(|key| schema[*key].as_array());
                let Some(branches) = branches.filter(|branches| !branches.is_empty()) else {
                    return Schema::ANY;
                };
                for branch in branches {
                    let branch = Schema::new(branch);
                    found.any |= branch.any;
                    found.string |= branch.string;
                    found.null |= branch.null;
                    found.boolean |= branch.boolean;
                    found.number |= branch.number;
                    found.container |= branch.container;
                }
            }
        }

        let mixed = found.any || found.boolean || found.number || found.container;
        if found.string && mixed {
            // A text such as `12` may be a string or a number here. It is read as JSON if it is
            // valid JSON, and as a string otherwise.
            found = Schema {
                any: true,
                string: false,
                ..found
            };
        }

        found
    }

    /// Adds a type by its name in JSON Schema. An unknown name allows everything.
    fn add(&mut self, kind: &str) {
        match kind {
            "string" => self.string = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "number" | "integer" => self.number = true,
            "array" | "object" => self.container = true,
            _ => self.any = true,
        }
    }
}

/// Returns the name of the type of a value in JSON Schema.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The expected form of a list, for error messages.
const EXPECTED: &str = "expected [{\"type\": \"function\", \"function\": {\"name\": \"..\", \"description\": \"..\", \"parameters\": {..}}}]";

/// Checks an element of the list.
fn tool(value: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(tool) = value else {
        return Err("that is not an object".to_owned());
    };
    if tool.get("type").is_none_or(|kind| kind != "function") {
        return Err("whose type is not \"function\"".to_owned());
    }
    let Some(Value::Object(function)) = tool.get("function") else {
        return Err("without an object under \"function\"".to_owned());
    };

    if function
        .get("name")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return Err("whose function has no name".to_owned());
    }

    match function.get("parameters") {
        None | Some(Value::Object(_)) => Ok(tool),
        Some(_) => Err("whose parameters are not a JSON schema".to_owned()),
    }
}

/// Returns the name of the function in a checked element.
fn name(tool: &Map<String, Value>) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}
