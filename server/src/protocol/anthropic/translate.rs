//! Requests of the Messages API as requests for replies.

use serde_json::{Value, json};
use warpwright_model::GrammarText;
use warpwright_model::chat::Tools;

use super::block::{ContentBlock, TextBlock, ToolOutcome, ToolResultBlock};
use super::request::{
    ContextManagement, MessageParam, MessagesRequest, OutputFormat, ThinkingParam, ToolChoiceParam,
    ToolParam,
};
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::protocol::shared::{
    SamplingRequest, TextOr, Turns, call_arguments, json_schema, name_answers, whole_in,
};
use crate::reply::{
    CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ReplyPrompt, ReplyRequest,
    ToolChoice,
};
use crate::scheduler::AtEnd;

/// The beginning of the line that Claude Code puts before the instructions. It names the version
/// and a checksum of the request. It is not meant for the model, and because it changes, no prompt
/// would share a prefix with an earlier one.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// Returns the request for a reply.
///
/// # Errors
/// Returns an error with the name of the field if a field is missing, wrong, or not supported.
pub fn reply_request(
    request: &MessagesRequest,
    info: &RequestInfo,
) -> Result<ReplyRequest, RequestError> {
    let Some(max_tokens) = whole_in("max_tokens", request.max_tokens, 1..=u32::MAX)? else {
        return Err(RequestError::invalid(
            "max_tokens",
            "`max_tokens` is missing: expected the maximum number of tokens of the reply",
        ));
    };
    let sampling = SamplingRequest {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        ..SamplingRequest::default()
    };
    let configured = request.output_config.as_ref();
    let configured = configured.and_then(|config| config.format.as_ref());
    let format = match (configured, &request.output_format) {
        (Some(format), _) => Some(grammar("output_config.format", format)?),
        (None, Some(format)) => Some(grammar("output_format", format)?),
        (None, None) => None,
    };

    Ok(ReplyRequest {
        request_id: info.id.clone(),
        prompt: ReplyPrompt::Chat(chat_prompt(request)?),
        count: 1,
        max_tokens: Some(max_tokens),
        sampling: sampling.fields()?,
        stop: stop(request)?,
        at_end: AtEnd::Stop,
        format,
        logprobs: None,
        prompt_logprobs: None,
        salt: info.salt,
    })
}

/// Returns the strings that end the reply.
fn stop(request: &MessagesRequest) -> Result<Vec<String>, RequestError> {
    let texts = request.stop_sequences.as_deref().unwrap_or_default();
    match texts.iter().position(String::is_empty) {
        Some(position) => {
            let path = format!("stop_sequences[{position}]");
            let message = format!("`{path}` is empty: a stop string needs a character");
            Err(RequestError::invalid(path, message))
        }
        None => Ok(texts.to_vec()),
    }
}

/// Returns the conversation.
///
/// # Errors
/// Returns an error with the name of the field if a field is missing, wrong, or not supported.
pub fn chat_prompt(request: &MessagesRequest) -> Result<ChatPrompt, RequestError> {
    let messages = messages(request)?;
    if let Some(management) = &request.context_management {
        check_edits(management)?;
    }
    let tools = match request.tools.as_deref() {
        Some([]) | None => None,
        Some(tools) => Some(self::tools(tools)?),
    };
    let choice = request.tool_choice.as_ref();
    let tool_choice = match choice {
        Some(choice) => self::tool_choice(choice, tools.as_ref())?,
        None => ToolChoice::Auto,
    };
    let is_limited = choice.and_then(|choice| choice.disable_parallel_tool_use) == Some(true);
    let call_limit = if is_limited {
        CallLimit::One
    } else {
        CallLimit::Many
    };

    Ok(ChatPrompt {
        messages,
        tools,
        tool_choice,
        call_limit,
        reasoning: reasoning(request)?,
        ..ChatPrompt::default()
    })
}

/// Returns the messages, starting with the instructions.
fn messages(request: &MessagesRequest) -> Result<Vec<ChatMessage>, RequestError> {
    let messages = request.messages.as_deref().unwrap_or_default();
    if messages.is_empty() {
        return Err(RequestError::invalid(
            "messages",
            "`messages` has no message: expected at least one",
        ));
    }

    let mut turns = Turns::default();
    match &request.system {
        Some(TextOr::Text(text)) => turns.system(text),
        Some(TextOr::List(blocks)) => {
            for TextBlock(text) in blocks {
                if !text.starts_with(BILLING_HEADER) {
                    turns.system(text);
                }
            }
        }
        None => {}
    }
    for (index, message) in messages.iter().enumerate() {
        add(&mut turns, &format!("messages[{index}]"), message)?;
    }

    let mut messages = turns.into_messages();
    name_answers(&mut messages);
    let unanswered = messages.last().and_then(|last| last.calls.first());
    if let Some(call) = unanswered {
        return Err(RequestError::invalid(
            "messages",
            format!(
                "`messages` ends with the tool call {:?}: expected a tool_result block for it",
                call.id
            ),
        ));
    }
    Ok(messages)
}

/// Adds a message.
fn add(turns: &mut Turns, path: &str, message: &MessageParam) -> Result<(), RequestError> {
    match &*message.role {
        "system" => {
            let text = system_text(path, &message.content)?;
            turns.system(&text);
            Ok(())
        }
        "user" => add_user(turns, path, &message.content),
        "assistant" => add_assistant(turns, path, &message.content),
        other => Err(RequestError::invalid(
            format!("{path}.role"),
            format!("`{path}.role` is {other:?}: expected user, assistant or system"),
        )),
    }
}

fn system_text(path: &str, content: &TextOr<ContentBlock>) -> Result<String, RequestError> {
    let blocks = match content {
        TextOr::Text(text) => return Ok(text.clone()),
        TextOr::List(blocks) => blocks,
    };
    let mut texts = vec![];
    for (index, block) in blocks.iter().enumerate() {
        match block {
            ContentBlock::Text(text) | ContentBlock::System(text) => texts.push(text.clone()),
            ContentBlock::Thinking(_)
            | ContentBlock::RedactedThinking
            | ContentBlock::ToolUse(_)
            | ContentBlock::ToolResult(_) => {
                return Err(misplaced(path, index, "a system message has only texts"));
            }
        }
    }
    Ok(texts.join("\n"))
}

fn add_user(
    turns: &mut Turns,
    path: &str,
    content: &TextOr<ContentBlock>,
) -> Result<(), RequestError> {
    let blocks = match content {
        TextOr::Text(text) => {
            turns.user(text);
            return Ok(());
        }
        TextOr::List(blocks) => blocks,
    };
    for (index, block) in blocks.iter().enumerate() {
        match block {
            ContentBlock::Text(text) => turns.user(text),
            ContentBlock::ToolResult(result) => turns.answer(&result.call_id, answer(result)),
            ContentBlock::System(text) => turns.system(text),
            ContentBlock::Thinking(_)
            | ContentBlock::RedactedThinking
            | ContentBlock::ToolUse(_) => {
                let rule = "only messages of the assistant have thinking and tool_use";
                return Err(misplaced(path, index, rule));
            }
        }
    }
    Ok(())
}

/// Returns the text of a tool's answer. Templates have no mark for a failed tool.
fn answer(result: &ToolResultBlock) -> String {
    match result.outcome {
        ToolOutcome::Answered => result.text.clone(),
        ToolOutcome::Failed => format!("Error: {}", result.text),
    }
}

fn add_assistant(
    turns: &mut Turns,
    path: &str,
    content: &TextOr<ContentBlock>,
) -> Result<(), RequestError> {
    let blocks = match content {
        TextOr::Text(text) => {
            turns.assistant(text);
            return Ok(());
        }
        TextOr::List(blocks) => blocks,
    };
    let mut text = String::new();
    for (index, block) in blocks.iter().enumerate() {
        match block {
            // Blocks of one message are parts of one text, which the model has generated.
            ContentBlock::Text(part) => text.push_str(part),
            ContentBlock::Thinking(part) if part.is_empty() => {}
            ContentBlock::Thinking(part) => turns.reasoning(part),
            ContentBlock::RedactedThinking => {}
            ContentBlock::ToolUse(call) => turns.call(MessageCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call_arguments(&format!("{path}.content[{index}].input"), &call.input)?,
            }),
            ContentBlock::ToolResult(_) | ContentBlock::System(_) => {
                let rule = "only messages of the user have tool_result and mid_conv_system";
                return Err(misplaced(path, index, rule));
            }
        }
    }
    turns.assistant(&text);
    Ok(())
}

fn misplaced(path: &str, index: usize, rule: &str) -> RequestError {
    let path = format!("{path}.content[{index}]");
    let message = format!("`{path}` is a block that this role does not have: {rule}");
    RequestError::invalid(path, message)
}

/// Returns the functions in the form that templates know.
fn tools(tools: &[ToolParam]) -> Result<Tools, RequestError> {
    let mut list = vec![];
    for (index, tool) in tools.iter().enumerate() {
        let path = format!("tools[{index}]");
        let kind = tool.kind.as_deref().unwrap_or("custom");
        if kind != "custom" {
            return Err(RequestError::invalid(
                format!("{path}.type"),
                format!(
                    "`{path}.type` is {kind:?}, a tool that only Anthropic's models and servers \
                     know: expected custom, with an `input_schema`"
                ),
            ));
        }
        let Some(name) = &tool.name else {
            return Err(RequestError::invalid(
                format!("{path}.name"),
                format!("`{path}.name` is missing"),
            ));
        };
        let Some(schema @ Value::Object(_)) = &tool.input_schema else {
            let path = format!("{path}.input_schema");
            let message = format!("`{path}` is missing or not an object: expected a JSON schema");
            return Err(RequestError::invalid(path, message));
        };
        let mut function = json!({ "name": name });
        if let Some(description) = &tool.description {
            function["description"] = json!(description);
        }
        function["parameters"] = schema.clone();
        list.push(json!({ "type": "function", "function": function }));
    }

    let text = Value::Array(list).to_string();
    Tools::new(&text)
        .map_err(|problem| RequestError::invalid("tools", format!("`tools` {problem}")))
}

/// Returns the calls that the model may make.
fn tool_choice(
    choice: &ToolChoiceParam,
    tools: Option<&Tools>,
) -> Result<ToolChoice, RequestError> {
    let invalid = |field: &str, message: String| Err(RequestError::invalid(field, message));
    let required = match &*choice.kind {
        "auto" => return Ok(ToolChoice::Auto),
        "none" => return Ok(ToolChoice::None),
        "any" => ToolChoice::Required,
        "tool" => match &choice.name {
            Some(name) => ToolChoice::Function(name.clone()),
            None => {
                let message = "`tool_choice.name` is missing: expected the name of a tool";
                return invalid("tool_choice.name", message.to_owned());
            }
        },
        other => {
            return invalid(
                "tool_choice.type",
                format!("`tool_choice.type` is {other:?}: expected auto, any, tool or none"),
            );
        }
    };

    let Some(tools) = tools else {
        let message = "`tool_choice` asks for a tool call, and `tools` has no tool";
        return invalid("tool_choice", message.to_owned());
    };
    if let ToolChoice::Function(name) = &required
        && !tools.names().any(|known| known == name)
    {
        return invalid(
            "tool_choice.name",
            format!("`tool_choice.name` is {name:?}, and `tools` has no tool with this name"),
        );
    }
    Ok(required)
}

/// Returns the reasoning that the client asks for. Without `thinking`, it is the template's
/// default.
fn reasoning(request: &MessagesRequest) -> Result<ReasoningFields, RequestError> {
    let enabled = match &request.thinking {
        Some(thinking) => switch(thinking)?,
        None => None,
    };
    let config = request.output_config.as_ref();
    Ok(ReasoningFields {
        effort: config.and_then(|config| config.effort.clone()),
        enabled,
    })
}

fn switch(thinking: &ThinkingParam) -> Result<Option<bool>, RequestError> {
    match &*thinking.kind {
        "enabled" => Ok(Some(true)),
        // The model decides.
        "adaptive" => Ok(None),
        "disabled" => Ok(Some(false)),
        other => Err(RequestError::invalid(
            "thinking.type",
            format!("`thinking.type` is {other:?}: expected enabled, disabled or adaptive"),
        )),
    }
}

/// Returns the grammar of the text.
fn grammar(path: &str, format: &OutputFormat) -> Result<GrammarText, RequestError> {
    if format.kind != "json_schema" {
        return Err(RequestError::invalid(
            format!("{path}.type"),
            format!("`{path}.type` is {:?}: expected json_schema", format.kind),
        ));
    }
    match &format.schema {
        Some(schema) => json_schema(&format!("{path}.schema"), schema),
        None => Err(RequestError::invalid(
            format!("{path}.schema"),
            format!("`{path}.schema` is missing"),
        )),
    }
}

/// Checks that the edits of the conversation change nothing for this server.
fn check_edits(management: &ContextManagement) -> Result<(), RequestError> {
    let edits = management.edits.as_deref().unwrap_or_default();
    for (index, edit) in edits.iter().enumerate() {
        if edit.kind != "clear_thinking_20251015" {
            let path = format!("context_management.edits[{index}].type");
            let message = format!(
                "`{path}` is {:?}, which is not supported: the server reads conversations as they \
                 are",
                edit.kind
            );
            return Err(RequestError::invalid(path, message));
        }
    }
    Ok(())
}
