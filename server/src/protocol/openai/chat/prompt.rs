//! Translates the messages, tools and reasoning of a chat request.

use serde_json::Value;
use warpwright_model::chat::Tools;

use super::request::{CallRequest, ChatRequest, MessageRequest};
use crate::error::RequestError;
use crate::protocol::shared::{Joint, call_arguments, name_answers};
use crate::reply::{CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ToolChoice};

/// Returns the conversation of a request.
///
/// # Errors
/// Returns an error that names the first field that is wrong or not supported.
pub fn chat_prompt(request: &ChatRequest) -> Result<ChatPrompt, RequestError> {
    let messages = messages(request)?;
    let chosen = chosen_tools(request)?;
    Ok(ChatPrompt {
        messages,
        tools: tools(&chosen.tools)?,
        tool_choice: chosen.choice,
        call_limit: match request.parallel_tool_calls {
            Some(false) => CallLimit::One,
            Some(true) | None => CallLimit::Many,
        },
        reasoning: reasoning(request)?,
        variables: request.chat_template_kwargs.clone().unwrap_or_default(),
    })
}

fn messages(request: &ChatRequest) -> Result<Vec<ChatMessage>, RequestError> {
    let Some(requested) = &request.messages else {
        return Err(missing("messages"));
    };
    let Some(last) = requested.last() else {
        let message = "`messages` is empty: expected at least one message";
        return Err(RequestError::invalid("messages", message));
    };
    check_continuation(request, last)?;
    if let [.., before, after] = &**requested
        && is_assistant(before)
        && is_assistant(after)
    {
        return Err(RequestError::invalid(
            "messages",
            "`messages` ends with two messages of the assistant: the reply can continue only one",
        ));
    }

    let mut messages = vec![];
    for (position, message) in requested.iter().enumerate() {
        // A message that the model continues is one text, in which a line break would be visible.
        let joint = if position + 1 == requested.len() && is_assistant(message) {
            Joint::Nothing
        } else {
            Joint::Line
        };
        messages.push(translated(
            &format!("messages[{position}]"),
            message,
            joint,
        )?);
    }
    name_answers(&mut messages);
    Ok(messages)
}

/// Checks that the request does not ask for another continuation than the one that follows from the
/// role of the last message.
fn check_continuation(request: &ChatRequest, last: &MessageRequest) -> Result<(), RequestError> {
    let continues = is_assistant(last);
    if request.continue_final_message == Some(true) && request.add_generation_prompt == Some(true) {
        return Err(RequestError::invalid(
            "continue_final_message",
            "`continue_final_message` and `add_generation_prompt` are both true: leave one of them out",
        ));
    }
    if request.continue_final_message == Some(true) && !continues {
        return Err(RequestError::invalid(
            "continue_final_message",
            "`continue_final_message` is true, but the last message is not the assistant's",
        ));
    }
    if request.continue_final_message == Some(false) && continues {
        return Err(RequestError::invalid(
            "continue_final_message",
            "`continue_final_message` false is not supported: a last message of the assistant is always continued",
        ));
    }
    if request.add_generation_prompt == Some(false) && !continues {
        return Err(RequestError::invalid(
            "add_generation_prompt",
            "`add_generation_prompt` false is not supported: the reply always begins a message of the assistant",
        ));
    }
    Ok(())
}

fn is_assistant(message: &MessageRequest) -> bool {
    message.role == "assistant"
}

fn translated(
    path: &str,
    message: &MessageRequest,
    joint: Joint,
) -> Result<ChatMessage, RequestError> {
    if message.role.is_empty() {
        let field = format!("{path}.role");
        let problem = format!("`{field}` is empty: expected a role such as \"user\"");
        return Err(RequestError::invalid(field, problem));
    }
    let refused = [
        ("function_call", &message.function_call, "use `tool_calls`"),
        ("audio", &message.audio, "this model reads only text"),
    ];
    for (name, value, advice) in refused {
        if value.is_some() {
            let field = format!("{path}.{name}");
            let problem = format!("`{field}` is not supported: {advice}");
            return Err(RequestError::invalid(field, problem));
        }
    }

    // An assistant can have reasoned or called without a text. Other messages are nothing else.
    let content = message
        .content
        .as_ref()
        .map(|content| content.joined(joint));
    if content.is_none() && !is_assistant(message) {
        return Err(missing(&format!("{path}.content")));
    }

    let mut calls = vec![];
    for (position, call) in message.tool_calls.iter().flatten().enumerate() {
        calls.push(message_call(
            &format!("{path}.tool_calls[{position}]"),
            call,
        )?);
    }
    let reasoning = message.reasoning_content.as_ref();
    let reasoning = reasoning.or(message.reasoning.as_ref());
    Ok(ChatMessage {
        role: message.role.clone(),
        content: content.unwrap_or_default(),
        reasoning: reasoning.filter(|text| !text.is_empty()).cloned(),
        calls,
        call_id: message.tool_call_id.clone(),
        name: message.name.clone(),
    })
}

fn message_call(path: &str, call: &CallRequest) -> Result<MessageCall, RequestError> {
    match call.kind.as_deref() {
        None | Some("function") => {}
        Some(other) => {
            let field = format!("{path}.type");
            let problem = format!("`{field}` is \"{other}\": expected \"function\"");
            return Err(RequestError::invalid(field, problem));
        }
    }
    let Some(function) = &call.function else {
        return Err(missing(&format!("{path}.function")));
    };
    let arguments = function.arguments.as_ref().unwrap_or(&Value::Null);
    Ok(MessageCall {
        id: call.id.clone().unwrap_or_default(),
        name: function.name.clone(),
        arguments: call_arguments(&format!("{path}.function.arguments"), arguments)?,
    })
}

/// The functions that a request offers, and the calls that it allows.
struct ChosenTools {
    tools: Vec<Value>,
    choice: ToolChoice,
}

fn chosen_tools(request: &ChatRequest) -> Result<ChosenTools, RequestError> {
    let mut tools = request.tools.clone().unwrap_or_default();
    for (position, tool) in tools.iter().enumerate() {
        let kind = tool.get("type").and_then(Value::as_str);
        if kind.is_some_and(|kind| kind != "function") {
            let field = format!("tools[{position}].type");
            let problem = format!(
                "`{field}` is \"{}\": this server has only tools of type \"function\"",
                kind.unwrap_or_default()
            );
            return Err(RequestError::invalid(field, problem));
        }
    }

    let choice = match &request.tool_choice {
        None | Some(Value::Null) => ToolChoice::Auto,
        Some(Value::String(mode)) => mode_named("tool_choice", mode)?,
        Some(Value::Object(object)) => {
            match object.get("type").and_then(Value::as_str) {
                Some("function") => {
                    ToolChoice::Function(function_name("tool_choice", &request_choice(request))?)
                }
                Some("allowed_tools") => {
                    // vLLM and others accept the inner fields at the top, too.
                    let inner = object.get("allowed_tools").unwrap_or(&Value::Null);
                    let fields = inner.as_object().unwrap_or(object);
                    tools = allowed_tools(tools, fields.get("tools"))?;
                    let mode = fields.get("mode").and_then(Value::as_str);
                    mode_named("tool_choice.allowed_tools.mode", mode.unwrap_or("auto"))?
                }
                Some(_) | None => return Err(unknown_choice()),
            }
        }
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => return Err(unknown_choice()),
    };
    check_choice(&tools, &choice)?;
    Ok(ChosenTools { tools, choice })
}

fn request_choice(request: &ChatRequest) -> Value {
    request.tool_choice.clone().unwrap_or_default()
}

fn mode_named(field: &str, mode: &str) -> Result<ToolChoice, RequestError> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" | "any" => Ok(ToolChoice::Required),
        other => Err(RequestError::invalid(
            field,
            format!("`{field}` is \"{other}\": expected \"auto\", \"none\" or \"required\""),
        )),
    }
}

fn unknown_choice() -> RequestError {
    RequestError::invalid(
        "tool_choice",
        "`tool_choice` is neither \"auto\", \"none\" nor \"required\", nor an object such as {\"type\": \"function\", \"function\": {\"name\": \"..\"}}",
    )
}

/// Returns the name in `{"type": "function", "function": {"name": ".."}}`. The Responses protocol
/// has the name at the top, which is accepted too.
fn function_name(path: &str, value: &Value) -> Result<String, RequestError> {
    let inner = value
        .get("function")
        .and_then(|function| function.get("name"));
    let name = inner.or(value.get("name")).and_then(Value::as_str);
    match name {
        Some(name) => Ok(name.to_owned()),
        None => Err(missing(&format!("{path}.function.name"))),
    }
}

/// Keeps the tools that `allowed_tools` names. The prompt then contains only these.
fn allowed_tools(tools: Vec<Value>, allowed: Option<&Value>) -> Result<Vec<Value>, RequestError> {
    let path = "tool_choice.allowed_tools.tools";
    let Some(allowed) = allowed.and_then(Value::as_array) else {
        return Err(missing(path));
    };

    let mut kept = vec![];
    for (position, reference) in allowed.iter().enumerate() {
        let field = format!("{path}[{position}]");
        let name = function_name(&field, reference)?;
        let found = tools.iter().find(|tool| tool_name(tool) == Some(&name));
        let Some(tool) = found else {
            return Err(not_a_tool(&field, &name));
        };
        kept.push(tool.clone());
    }
    Ok(kept)
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

fn not_a_tool(field: &str, name: &str) -> RequestError {
    RequestError::invalid(
        field,
        format!("`{field}` names the function \"{name}\", which is not in `tools`"),
    )
}

fn check_choice(tools: &[Value], choice: &ToolChoice) -> Result<(), RequestError> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => Ok(()),
        ToolChoice::Required if tools.is_empty() => Err(RequestError::invalid(
            "tool_choice",
            "`tool_choice` requires a call, but there are no `tools`",
        )),
        ToolChoice::Required => Ok(()),
        ToolChoice::Function(name) => {
            if tools.iter().any(|tool| tool_name(tool) == Some(name)) {
                Ok(())
            } else {
                Err(not_a_tool("tool_choice", name))
            }
        }
    }
}

fn tools(list: &[Value]) -> Result<Option<Tools>, RequestError> {
    if list.is_empty() {
        return Ok(None);
    }
    let text = Value::Array(list.to_vec()).to_string();
    match Tools::new(&text) {
        Ok(tools) => Ok(Some(tools)),
        Err(problem) => Err(RequestError::invalid("tools", format!("`tools` {problem}"))),
    }
}

fn reasoning(request: &ChatRequest) -> Result<ReasoningFields, RequestError> {
    let openrouter = request.reasoning.clone().unwrap_or_default();
    if openrouter.max_tokens.is_some() {
        return Err(RequestError::invalid(
            "reasoning.max_tokens",
            "`reasoning.max_tokens` is not supported: use `reasoning.effort`",
        ));
    }
    let thinking = request.thinking.as_ref();
    let thinking = match thinking.and_then(|thinking| thinking.kind.as_deref()) {
        None | Some("auto" | "adaptive") => None,
        Some("enabled") => Some(true),
        Some("disabled") => Some(false),
        Some(other) => {
            return Err(RequestError::invalid(
                "thinking.type",
                format!(
                    "`thinking.type` is \"{other}\": expected \"enabled\", \"disabled\" or \"auto\""
                ),
            ));
        }
    };

    let effort = request.reasoning_effort.clone().or(openrouter.effort);
    let switch = request.enable_thinking.or(openrouter.enabled).or(thinking);
    if effort.as_deref() == Some("none") {
        return Ok(ReasoningFields {
            effort: None,
            enabled: Some(switch.unwrap_or(false)),
        });
    }
    Ok(ReasoningFields {
        effort,
        enabled: switch,
    })
}

fn missing(field: &str) -> RequestError {
    RequestError::invalid(field, format!("`{field}` is missing"))
}
