//! Requests of the Responses API as requests for replies.

use warpwright_engine::Sampling;
use warpwright_model::GrammarText;

use super::item::{AnswerItem, InputItem, InputPart, MessageItem};
use super::object::{ReasoningConfiguration, ResponseParameters, TextConfiguration, TextFormat};
use super::request::{ReasoningParam, ResponsesRequest, TextFormatParam};
use super::tool::{RequestTools, request_tools};
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::protocol::shared::{
    SamplingRequest, TextOr, Turns, any_object, call_arguments, json_schema, name_answers, whole_in,
};
use crate::reply::{
    CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ReplyPrompt, ReplyRequest,
    SamplingFields,
};
use crate::scheduler::AtEnd;

/// The value of `include` that asks for log-probabilities.
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// The other values of `include`. They concern tools and inputs that this server does not have, and
/// encrypted reasoning, in place of which it returns the text.
const INCLUDE_NOTHING: &[&str] = &[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// A request for a reply, and the parameters that the response repeats.
#[derive(Debug)]
pub struct TranslatedRequest {
    /// The request for a reply.
    pub reply: ReplyRequest,
    /// The parameters that the response repeats.
    pub parameters: ResponseParameters,
}

/// Translates a request to a model with these default sampling parameters.
///
/// # Errors
/// Returns an error with the name of the field if a field is missing, wrong, or not supported.
pub fn translate(
    request: &ResponsesRequest,
    info: &RequestInfo,
    defaults: &Sampling,
) -> Result<TranslatedRequest, RequestError> {
    let messages = messages(request)?;
    let tools = request_tools(request)?;
    let format = format(request)?;
    let reasoning = reasoning(request.reasoning.as_ref())?;
    let sampling = sampling(request)?;
    let max_tokens = whole_in("max_output_tokens", request.max_output_tokens, 1..=u32::MAX)?;
    let logprobs = logprobs(request)?;
    let grammar = grammar(&format);

    let parameters = parameters(&ParameterSources {
        request,
        tools: &tools,
        format,
        sampling: &sampling,
        defaults,
        max_tokens,
        logprobs,
    })?;
    let prompt = ChatPrompt {
        messages,
        tools: tools.tools,
        tool_choice: tools.choice,
        call_limit: if request.parallel_tool_calls == Some(false) {
            CallLimit::One
        } else {
            CallLimit::Many
        },
        reasoning,
        variables: request.chat_template_kwargs.clone().unwrap_or_default(),
    };
    let reply = ReplyRequest {
        request_id: info.id.clone(),
        prompt: ReplyPrompt::Chat(prompt),
        count: 1,
        max_tokens,
        sampling,
        stop: vec![],
        at_end: AtEnd::Stop,
        format: grammar,
        logprobs,
        prompt_logprobs: None,
        salt: info.salt,
    };
    Ok(TranslatedRequest { reply, parameters })
}

/// Returns the messages, starting with the instructions.
fn messages(request: &ResponsesRequest) -> Result<Vec<ChatMessage>, RequestError> {
    let mut turns = Turns::default();
    if let Some(instructions) = &request.instructions {
        turns.system(instructions);
    }
    match &request.input {
        Some(TextOr::Text(text)) => turns.user(text),
        Some(TextOr::List(items)) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                add(&mut turns, &format!("input[{index}]"), item)?;
            }
        }
        Some(TextOr::List(_)) | None => {
            return Err(RequestError::invalid(
                "input",
                "`input` is missing or empty: expected a text or at least one item",
            ));
        }
    }

    let mut messages = turns.into_messages();
    name_answers(&mut messages);
    let unanswered = messages.last().and_then(|last| last.calls.first());
    if let Some(call) = unanswered {
        return Err(RequestError::invalid(
            "input",
            format!(
                "`input` ends with the tool call {:?}: expected a function_call_output for it",
                call.id
            ),
        ));
    }
    Ok(messages)
}

/// Adds an item.
fn add(turns: &mut Turns, path: &str, item: &InputItem) -> Result<(), RequestError> {
    match item {
        InputItem::Message(message) => add_message(turns, path, message)?,
        InputItem::Reasoning(text) => {
            if !text.is_empty() {
                turns.reasoning(text);
            }
        }
        InputItem::Call(call) => turns.call(MessageCall {
            id: call.call_id.clone(),
            name: call.name.clone(),
            arguments: call_arguments(&format!("{path}.arguments"), &call.arguments)?,
        }),
        InputItem::Answer(AnswerItem { call_id, output }) => {
            turns.answer(call_id, text(&format!("{path}.output"), output, "\n")?);
        }
    }
    Ok(())
}

fn add_message(turns: &mut Turns, path: &str, message: &MessageItem) -> Result<(), RequestError> {
    let content = format!("{path}.content");
    match &*message.role {
        // Developers are the authority that older models know as the system.
        "system" | "developer" => turns.system(&text(&content, &message.content, "\n")?),
        "user" => turns.user(&text(&content, &message.content, "\n")?),
        // The parts are one text, which the model has generated.
        "assistant" => turns.assistant(&text(&content, &message.content, "")?),
        other => {
            let path = format!("{path}.role");
            let message =
                format!("`{path}` is {other:?}: expected user, assistant, system or developer");
            return Err(RequestError::invalid(path, message));
        }
    }
    Ok(())
}

/// Returns the text of parts.
fn text(path: &str, content: &TextOr<InputPart>, joint: &str) -> Result<String, RequestError> {
    let parts = match content {
        TextOr::Text(text) => return Ok(text.clone()),
        TextOr::List(parts) => parts,
    };
    let mut texts = vec![];
    for (index, part) in parts.iter().enumerate() {
        match part {
            InputPart::Text(text) => texts.push(&**text),
            // Codex takes an error with this path as a sign to leave out images from then on.
            InputPart::Image => {
                return Err(unsupported(&format!("{path}[{index}].image_url"), "image"));
            }
            InputPart::File => {
                return Err(unsupported(&format!("{path}[{index}].file_data"), "file"));
            }
        }
    }
    Ok(texts.join(joint))
}

fn unsupported(path: &str, input: &str) -> RequestError {
    let message = format!(
        "`{path}`: {input} input is not supported: the model reads only text, so send text"
    );
    RequestError::invalid(path, message)
}

/// Returns the reasoning that the request asks for.
fn reasoning(param: Option<&ReasoningParam>) -> Result<ReasoningFields, RequestError> {
    let Some(param) = param else {
        return Ok(ReasoningFields::default());
    };
    match param.summary.as_deref() {
        None | Some("auto" | "concise" | "detailed" | "none") => {}
        Some(other) => {
            return Err(RequestError::invalid(
                "reasoning.summary",
                format!("`reasoning.summary` is {other:?}: expected auto, concise or detailed"),
            ));
        }
    }
    match param.effort.as_deref() {
        Some("none") => Ok(ReasoningFields {
            effort: None,
            enabled: Some(false),
        }),
        effort => Ok(ReasoningFields {
            effort: effort.map(str::to_owned),
            enabled: None,
        }),
    }
}

/// Returns the format of the text.
fn format(request: &ResponsesRequest) -> Result<TextFormat, RequestError> {
    let Some(text) = &request.text else {
        return Ok(TextFormat::Text);
    };
    match text.verbosity.as_deref() {
        None | Some("medium") => {}
        Some(other) => {
            return Err(RequestError::invalid(
                "text.verbosity",
                format!(
                    "`text.verbosity` is {other:?}, which is not supported: expected medium; say \
                     in `instructions` how long the text should be"
                ),
            ));
        }
    }
    let Some(format) = &text.format else {
        return Ok(TextFormat::Text);
    };
    match &*format.kind {
        "text" => Ok(TextFormat::Text),
        "json_object" => Ok(TextFormat::JsonObject),
        "json_schema" => schema_format(format),
        other => Err(RequestError::invalid(
            "text.format.type",
            format!("`text.format.type` is {other:?}: expected text, json_object or json_schema"),
        )),
    }
}

fn schema_format(format: &TextFormatParam) -> Result<TextFormat, RequestError> {
    let path = "text.format.schema";
    let Some(schema) = &format.schema else {
        return Err(RequestError::invalid(path, format!("`{path}` is missing")));
    };
    // The error of a schema that is not one names its field.
    json_schema(path, schema)?;
    Ok(TextFormat::JsonSchema {
        name: format.name.clone().unwrap_or_default(),
        description: format.description.clone(),
        schema: schema.clone(),
        strict: true,
    })
}

/// Returns the grammar of a format.
fn grammar(format: &TextFormat) -> Option<GrammarText> {
    match format {
        TextFormat::Text => None,
        TextFormat::JsonObject => Some(any_object()),
        TextFormat::JsonSchema { schema, .. } => json_schema("text.format.schema", schema).ok(),
    }
}

fn sampling(request: &ResponsesRequest) -> Result<SamplingFields, RequestError> {
    SamplingRequest {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        presence_penalty: request.presence_penalty,
        frequency_penalty: request.frequency_penalty,
        seed: request.seed,
        ..SamplingRequest::default()
    }
    .fields()
}

/// Returns the number of most likely tokens per token, or `None` for no log-probabilities.
fn logprobs(request: &ResponsesRequest) -> Result<Option<u32>, RequestError> {
    let best = whole_in("top_logprobs", request.top_logprobs, 0..=20_u32)?;
    let mut is_included = false;
    for (index, value) in request.include.iter().flatten().enumerate() {
        if value == INCLUDE_LOGPROBS {
            is_included = true;
        } else if !INCLUDE_NOTHING.contains(&&**value) {
            let path = format!("include[{index}]");
            let message = format!("`{path}` is {value:?}: expected {INCLUDE_LOGPROBS}");
            return Err(RequestError::invalid(path, message));
        }
    }
    match best {
        Some(best) if best > 0 => Ok(Some(best)),
        Some(_) | None if is_included => Ok(Some(0)),
        Some(_) | None => Ok(None),
    }
}

/// The sources of the parameters that a response repeats.
struct ParameterSources<'a> {
    request: &'a ResponsesRequest,
    tools: &'a RequestTools,
    format: TextFormat,
    sampling: &'a SamplingFields,
    defaults: &'a Sampling,
    max_tokens: Option<u32>,
    logprobs: Option<u32>,
}

fn parameters(sources: &ParameterSources<'_>) -> Result<ResponseParameters, RequestError> {
    let request = sources.request;
    let sampling = sources.sampling;
    let defaults = sources.defaults;
    let reasoning = match &request.reasoning {
        Some(param) => ReasoningConfiguration {
            effort: param.effort.clone(),
            summary: param.summary.clone(),
        },
        None => ReasoningConfiguration::default(),
    };
    Ok(ResponseParameters {
        previous_response_id: (),
        store: false,
        background: false,
        truncation: "disabled",
        service_tier: "default",
        instructions: request.instructions.clone(),
        tools: sources.tools.echoed_tools.clone(),
        tool_choice: sources.tools.echoed_choice.clone(),
        parallel_tool_calls: request.parallel_tool_calls.unwrap_or(true),
        text: TextConfiguration {
            format: sources.format.clone(),
            verbosity: "medium",
        },
        reasoning,
        temperature: sampling.temperature.unwrap_or(defaults.temperature),
        top_p: sampling.top_p.unwrap_or(defaults.top_p),
        presence_penalty: sampling
            .presence_penalty
            .unwrap_or(defaults.presence_penalty),
        frequency_penalty: sampling
            .frequency_penalty
            .unwrap_or(defaults.frequency_penalty),
        top_logprobs: sources.logprobs.unwrap_or(0),
        max_output_tokens: sources.max_tokens,
        max_tool_calls: whole_in("max_tool_calls", request.max_tool_calls, 1..=u32::MAX)?,
        metadata: request.metadata.clone().unwrap_or_default(),
        user: request.user.clone(),
        safety_identifier: request.safety_identifier.clone(),
        prompt_cache_key: request.prompt_cache_key.clone(),
    })
}
