//! The tools of a request, and the calls that the model may make.

use serde_json::{Map, Value, json};
use warpwright_model::chat::Tools;

use super::request::{ResponsesRequest, ToolFields};
use crate::error::RequestError;
use crate::reply::ToolChoice;

/// Tools that agents offer in every request, although only OpenAI's models or servers know them.
/// Codex cannot be told to leave them out, so they are ignored unless a request forces a call.
const IGNORED: &[&str] = &[
    "apply_patch",
    "custom",
    "image_generation",
    "local_shell",
    "namespace",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
];

/// The tools of a request.
#[derive(Debug)]
pub struct RequestTools {
    /// The functions in the form that templates know.
    pub tools: Option<Tools>,
    /// The calls that the model may make.
    pub choice: ToolChoice,
    /// The functions in the form of the response.
    pub echoed_tools: Vec<Value>,
    /// The choice in the form of the response.
    pub echoed_choice: Value,
}

/// Returns the tools of a request.
///
/// # Errors
/// Returns an error with the name of the field if a tool is wrong or not supported, or if the
/// request asks for a call of a tool that does not exist.
pub fn request_tools(request: &ResponsesRequest) -> Result<RequestTools, RequestError> {
    let offered = request.tools.as_deref().unwrap_or_default();
    let mut functions = vec![];
    for (index, tool) in offered.iter().enumerate() {
        if is_function(index, tool)? {
            functions.push(function(index, tool)?);
        }
    }
    let chosen = match &request.tool_choice {
        Some(choice) => chosen(choice, &functions)?,
        None => ChosenTools::all(ToolChoice::Auto),
    };
    check(&chosen, &functions)?;

    let tools = match &chosen.allowed {
        Some(allowed) => {
            let is_allowed = |function: &&FunctionTool<'_>| allowed.contains(&function.name);
            tools(functions.iter().filter(is_allowed))?
        }
        None => tools(functions.iter())?,
    };
    Ok(RequestTools {
        tools,
        echoed_tools: functions.iter().map(FunctionTool::echoed).collect(),
        echoed_choice: request.tool_choice.clone().unwrap_or(json!("auto")),
        choice: chosen.choice,
    })
}

/// A function that the model may call.
struct FunctionTool<'a> {
    name: &'a str,
    fields: &'a ToolFields,
}

impl FunctionTool<'_> {
    /// Returns the function in the form of the response, in which every field is present.
    fn echoed(&self) -> Value {
        json!({
            "type": "function",
            "name": self.name,
            "description": self.fields.description,
            "parameters": self.fields.parameters,
            "strict": self.fields.strict,
        })
    }

    /// Returns the function in the form that templates know.
    fn nested(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name));
        if let Some(description) = &self.fields.description {
            function.insert("description".to_owned(), json!(description));
        }
        if let Some(parameters) = &self.fields.parameters {
            function.insert("parameters".to_owned(), parameters.clone());
        }
        json!({ "type": "function", "function": function })
    }
}

/// Returns true for a function, and false for a tool to ignore.
fn is_function(index: usize, tool: &ToolFields) -> Result<bool, RequestError> {
    if tool.kind == "function" {
        return Ok(true);
    }
    if IGNORED.contains(&&*tool.kind) {
        tracing::debug!(tool = tool.kind, "the tool is ignored");
        return Ok(false);
    }
    let path = format!("tools[{index}].type");
    let message = format!(
        "`{path}` is {:?}, which is not supported: expected function",
        tool.kind
    );
    Err(RequestError::invalid(path, message))
}

fn function(index: usize, tool: &ToolFields) -> Result<FunctionTool<'_>, RequestError> {
    if let Some(parameters) = &tool.parameters
        && !parameters.is_object()
    {
        let path = format!("tools[{index}].parameters");
        let message = format!("`{path}` is not an object: expected a JSON schema");
        return Err(RequestError::invalid(path, message));
    }
    match tool.name.as_deref() {
        Some(name) if !name.is_empty() => Ok(FunctionTool { name, fields: tool }),
        Some(_) | None => {
            let path = format!("tools[{index}].name");
            let message = format!("`{path}` is missing");
            Err(RequestError::invalid(path, message))
        }
    }
}

/// Returns functions in the form that templates know.
fn tools<'a>(
    functions: impl Iterator<Item = &'a FunctionTool<'a>>,
) -> Result<Option<Tools>, RequestError> {
    let list: Vec<Value> = functions.map(FunctionTool::nested).collect();
    if list.is_empty() {
        return Ok(None);
    }
    Tools::new(&Value::Array(list).to_string())
        .map(Some)
        .map_err(|problem| RequestError::invalid("tools", format!("`tools` {problem}")))
}

/// The choice of a request.
struct ChosenTools<'a> {
    choice: ToolChoice,
    /// The names of the functions that the model may call, or `None` for all.
    allowed: Option<Vec<&'a str>>,
}

impl ChosenTools<'_> {
    fn all(choice: ToolChoice) -> ChosenTools<'static> {
        ChosenTools {
            choice,
            allowed: None,
        }
    }
}

/// Reads `tool_choice`.
fn chosen<'a>(
    choice: &'a Value,
    functions: &[FunctionTool<'_>],
) -> Result<ChosenTools<'a>, RequestError> {
    let fields = match choice {
        Value::Null => return Ok(ChosenTools::all(ToolChoice::Auto)),
        Value::String(mode) => return Ok(ChosenTools::all(mode_named("tool_choice", mode)?)),
        Value::Object(fields) => fields,
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err(RequestError::invalid(
                "tool_choice",
                "`tool_choice` is neither a string nor an object",
            ));
        }
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("function") => {
            let name = function_name("tool_choice", fields)?;
            Ok(ChosenTools::all(ToolChoice::Function(name.to_owned())))
        }
        Some("allowed_tools") => {
            let mode = fields.get("mode").and_then(Value::as_str);
            let choice = mode_named("tool_choice.mode", mode.unwrap_or("auto"))?;
            let allowed = allowed(fields, functions)?;
            Ok(ChosenTools {
                choice,
                allowed: Some(allowed),
            })
        }
        Some(other) => Err(RequestError::invalid(
            "tool_choice.type",
            format!(
                "`tool_choice.type` is {other:?}, which is not supported: expected function or \
                 allowed_tools"
            ),
        )),
        None => Err(RequestError::invalid(
            "tool_choice.type",
            "`tool_choice.type` is missing: expected function or allowed_tools",
        )),
    }
}

fn mode_named(path: &str, mode: &str) -> Result<ToolChoice, RequestError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => Err(RequestError::invalid(
            path,
            format!("`{path}` is {other:?}: expected auto, none or required"),
        )),
    }
}

fn function_name<'a>(path: &str, fields: &'a Map<String, Value>) -> Result<&'a str, RequestError> {
    fields.get("name").and_then(Value::as_str).ok_or_else(|| {
        let path = format!("{path}.name");
        let message = format!("`{path}` is missing: expected the name of a function");
        RequestError::invalid(path, message)
    })
}

/// Returns the names in `tool_choice.tools`. Tools that are not functions are left out there as in
/// `tools`.
fn allowed<'a>(
    fields: &'a Map<String, Value>,
    functions: &[FunctionTool<'_>],
) -> Result<Vec<&'a str>, RequestError> {
    let list = fields.get("tools").and_then(Value::as_array);
    let Some(list) = list else {
        return Err(RequestError::invalid(
            "tool_choice.tools",
            "`tool_choice.tools` is missing: expected a list of tools",
        ));
    };
    let mut names = vec![];
    for (index, tool) in list.iter().enumerate() {
        let path = format!("tool_choice.tools[{index}]");
        let kind = tool.get("type").and_then(Value::as_str);
        if kind.is_some_and(|kind| IGNORED.contains(&kind)) {
            continue;
        }
        let Some(tool) = tool.as_object() else {
            let message = format!("`{path}` is not an object");
            return Err(RequestError::invalid(path, message));
        };
        let name = function_name(&path, tool)?;
        if !functions.iter().any(|function| function.name == name) {
            return Err(unknown(&format!("{path}.name"), name));
        }
        names.push(name);
    }
    Ok(names)
}

/// Checks that a call is possible if one is required.
fn check(chosen: &ChosenTools<'_>, functions: &[FunctionTool<'_>]) -> Result<(), RequestError> {
    let count = match &chosen.allowed {
        Some(allowed) => allowed.len(),
        None => functions.len(),
    };
    match &chosen.choice {
        ToolChoice::Auto | ToolChoice::None => Ok(()),
        ToolChoice::Required if count > 0 => Ok(()),
        ToolChoice::Required => Err(RequestError::invalid(
            "tool_choice",
            "`tool_choice` asks for a call, and there is no function to call",
        )),
        ToolChoice::Function(name) => {
            if functions.iter().any(|function| function.name == name) {
                Ok(())
            } else {
                Err(unknown("tool_choice.name", name))
            }
        }
    }
}

fn unknown(path: &str, name: &str) -> RequestError {
    let message = format!("`{path}` is {name:?}, and `tools` has no function with this name");
    RequestError::invalid(path, message)
}
