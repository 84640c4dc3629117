//! Translates the body of `POST /v1/chat/completions`.

use super::prompt::chat_prompt;
use super::request::{ChatRequest, REFUSED_CHAT};
use crate::error::RequestError;
use crate::protocol::openai::form::{
    Delivery, MAX_BEST, MAX_REPLIES, ResponseForm, max_tokens, salt_for,
};
use crate::protocol::shared::{Body, FormatRequest, REFUSED_SAMPLING, SamplingRequest, whole_in};
use crate::reply::{ReplyPrompt, ReplyRequest};

/// A chat request, translated.
#[derive(Debug, Clone)]
pub struct ChatCall {
    /// The name of the model, if the client names one.
    pub model: Option<String>,
    /// The request for replies.
    pub reply: ReplyRequest,
    /// The form of the response.
    pub form: ResponseForm,
}

/// Reads and translates a chat request.
///
/// # Errors
/// Returns an error that names the first field that is wrong or not supported.
pub fn chat_call(body: &Body, request_id: &str, salt: u64) -> Result<ChatCall, RequestError> {
    body.refuse(REFUSED_CHAT)?;
    body.refuse(REFUSED_SAMPLING)?;
    let request: ChatRequest = body.read()?;
    let sampling: SamplingRequest = body.read()?;
    let format: FormatRequest = body.read()?;

    let logprobs = best_logprobs(&request)?;
    let options = request.stream_options.clone().unwrap_or_default();
    options.check()?;

    let reply = ReplyRequest {
        request_id: request_id.to_owned(),
        prompt: ReplyPrompt::Chat(chat_prompt(&request)?),
        count: whole_in("n", request.n, 1..=MAX_REPLIES)?.unwrap_or(1),
        max_tokens: max_tokens(&[
            ("max_completion_tokens", request.max_completion_tokens),
            ("max_tokens", request.max_tokens),
            ("n_predict", request.n_predict),
        ])?,
        sampling: sampling.fields()?,
        stop: sampling.stop()?,
        at_end: sampling.at_end(),
        format: format.grammar()?,
        logprobs,
        prompt_logprobs: None,
        salt: salt_for(request.cache_prompt, salt),
    };
    Ok(ChatCall {
        model: request.model,
        reply,
        form: ResponseForm {
            delivery: Delivery::from_stream(request.stream),
            usage_event: options.include_usage == Some(true),
            logprobs: logprobs.is_some(),
            progress: request.return_progress == Some(true),
        },
    })
}

fn best_logprobs(request: &ChatRequest) -> Result<Option<u32>, RequestError> {
    let best = whole_in("top_logprobs", request.top_logprobs, 0..=MAX_BEST)?;
    match (request.logprobs, best) {
        (Some(true), best) => Ok(Some(best.unwrap_or(0))),
        (Some(false) | None, None | Some(0)) => Ok(None),
        (Some(false) | None, Some(_)) => Err(RequestError::invalid(
            "top_logprobs",
            "`top_logprobs` needs `logprobs` to be true",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use warpwright_model::GrammarText;

    use super::*;
    use crate::reply::{
        CallLimit, ChatMessage, ChatPrompt, MessageCall, ReasoningFields, ToolChoice,
    };
    use crate::scheduler::AtEnd;

    fn call(body: &Value) -> Result<ChatCall, RequestError> {
        let body = Body::parse(body.to_string().as_bytes())?;
        chat_call(&body, "req_1", 7)
    }

    /// Returns the call of a request with one message and these fields.
    fn with(fields: Value) -> Result<ChatCall, RequestError> {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        call(&body)
    }

    fn prompt(call: ChatCall) -> ChatPrompt {
        match call.reply.prompt {
            ReplyPrompt::Chat(prompt) => prompt,
            other => panic!("{other:?}"),
        }
    }

    fn message(role: &str, content: &str) -> ChatMessage {
        ChatMessage {
            role: role.to_owned(),
            content: content.to_owned(),
            ..ChatMessage::default()
        }
    }

    fn weather() -> Value {
        json!({"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}}}})
    }

    fn time() -> Value {
        json!({"type": "function", "function": {"name": "time"}})
    }

    #[test]
    fn a_simple_request_has_the_defaults() {
        let call = with(json!({})).unwrap();
        assert_eq!(call.model, None);
        assert_eq!(call.form, ResponseForm::default());
        assert_eq!(call.reply.request_id, "req_1");
        assert_eq!(call.reply.count, 1);
        assert_eq!(call.reply.max_tokens, None);
        assert_eq!(call.reply.at_end, AtEnd::Stop);
        assert_eq!(call.reply.logprobs, None);
        assert_eq!(call.reply.salt, 7);
        assert_eq!(prompt(call).messages, [message("user", "Hi")]);
    }

    #[test]
    fn every_field_reaches_the_request() {
        let call = with(json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "n": 2.0, "max_tokens": 9, "max_completion_tokens": 8, "temperature": 0.5,
            "stop": ["x"], "ignore_eos": true, "logprobs": true, "top_logprobs": 3,
            "response_format": {"type": "json_object"}, "cache_prompt": false,
            "reasoning_effort": "low", "chat_template_kwargs": {"a": 1},
            "user": "u", "metadata": {"k": "v"}, "prompt_cache_key": "p", "store": false,
            "id_slot": 0, "timings_per_token": true, "return_progress": true,
        }))
        .unwrap();
        assert_eq!(call.model.as_deref(), Some("m"));
        let form = ResponseForm {
            delivery: Delivery::Events,
            usage_event: true,
            logprobs: true,
            progress: true,
        };
        assert_eq!(call.form, form);
        assert_eq!(call.reply.count, 2);
        assert_eq!(call.reply.max_tokens, Some(8));
        assert_eq!(call.reply.sampling.temperature, Some(0.5));
        assert_eq!(call.reply.stop, ["x"]);
        assert_eq!(call.reply.at_end, AtEnd::Ignore);
        assert_eq!(call.reply.logprobs, Some(3));
        assert!(matches!(
            call.reply.format,
            Some(GrammarText::JsonSchema(_))
        ));
        assert_ne!(call.reply.salt, 7);
        let prompt = prompt(call);
        assert_eq!(prompt.reasoning.effort.as_deref(), Some("low"));
        assert_eq!(prompt.variables["a"], 1);
    }

    #[test]
    fn messages_keep_calls_answers_and_reasoning() {
        let call = call(&json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}]},
            {"role": "user", "content": "Weather?", "name": "Ann"},
            {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Bonn\"}"}},
                {"id": "c2", "function": {"name": "time", "arguments": ""}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "assistant", "content": [{"type": "text", "text": "It "}, {"type": "text", "text": "rai"}]},
        ]}))
        .unwrap();
        let argument = json!({"city": "Bonn"}).as_object().unwrap().clone();
        let calls = vec![
            MessageCall {
                id: "c1".to_owned(),
                name: "weather".to_owned(),
                arguments: argument,
            },
            MessageCall {
                id: "c2".to_owned(),
                name: "time".to_owned(),
                arguments: serde_json::Map::new(),
            },
        ];
        let expected = [
            message("developer", "Be\nbrief"),
            ChatMessage {
                name: Some("Ann".to_owned()),
                ..message("user", "Weather?")
            },
            ChatMessage {
                reasoning: Some("hm".to_owned()),
                calls,
                ..message("assistant", "")
            },
            ChatMessage {
                call_id: Some("c1".to_owned()),
                name: Some("weather".to_owned()),
                ..message("tool", "rain")
            },
            message("assistant", "It rai"),
        ];
        assert_eq!(prompt(call).messages, expected);
    }

    #[test]
    fn tool_choice_has_all_forms() {
        let function = |name: &str| ToolChoice::Function(name.to_owned());
        for (choice, expected, names) in [
            (json!(null), ToolChoice::Auto, "weather time"),
            (json!("auto"), ToolChoice::Auto, "weather time"),
            (json!("none"), ToolChoice::None, "weather time"),
            (json!("required"), ToolChoice::Required, "weather time"),
            (
                json!({"type": "function", "function": {"name": "time"}}),
                function("time"),
                "weather time",
            ),
            (
                json!({"type": "function", "name": "time"}),
                function("time"),
                "weather time",
            ),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
                    "tools": [{"type": "function", "function": {"name": "time"}}]}}),
                ToolChoice::Required,
                "time",
            ),
        ] {
            let fields = json!({"tools": [weather(), time()], "tool_choice": choice,
                "parallel_tool_calls": false});
            let prompt = prompt(with(fields).unwrap());
            assert_eq!(prompt.tool_choice, expected, "{choice}");
            assert_eq!(prompt.call_limit, CallLimit::One);
            let tools = prompt.tools.unwrap();
            assert_eq!(tools.names().collect::<Vec<_>>().join(" "), names);
        }

        let prompt = prompt(with(json!({"tools": [], "tool_choice": "auto"})).unwrap());
        assert!(prompt.tools.is_none());
        assert_eq!(prompt.call_limit, CallLimit::Many);
    }

    #[test]
    fn reasoning_has_all_forms() {
        let fields = |effort: Option<&str>, enabled| ReasoningFields {
            effort: effort.map(str::to_owned),
            enabled,
        };
        for (json, expected) in [
            (json!({}), fields(None, None)),
            (
                json!({"reasoning_effort": "high"}),
                fields(Some("high"), None),
            ),
            (
                json!({"reasoning_effort": "none"}),
                fields(None, Some(false)),
            ),
            (
                json!({"reasoning": {"effort": "low"}}),
                fields(Some("low"), None),
            ),
            (
                json!({"reasoning": {"enabled": true}}),
                fields(None, Some(true)),
            ),
            (json!({"enable_thinking": false}), fields(None, Some(false))),
            (
                json!({"thinking": {"type": "disabled"}}),
                fields(None, Some(false)),
            ),
            (
                json!({"thinking": {"type": "enabled"}}),
                fields(None, Some(true)),
            ),
        ] {
            let prompt = prompt(with(json.clone()).unwrap());
            assert_eq!(prompt.reasoning, expected, "{json}");
        }
    }

    #[test]
    fn a_limit_of_minus_one_is_none() {
        assert_eq!(
            with(json!({"max_tokens": -1})).unwrap().reply.max_tokens,
            None
        );
        assert_eq!(
            with(json!({"n_predict": 4})).unwrap().reply.max_tokens,
            Some(4)
        );
    }

    #[test]
    fn wrong_fields_are_named() {
        for (fields, param) in [
            (json!({"messages": null}), "messages"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": "string"}), "messages"),
            (json!({"messages": [123]}), "messages[0]"),
            (json!({"messages": [{}]}), "messages[0]"),
            (json!({"messages": [{"role": 123}]}), "messages[0].role"),
            (json!({"messages": [{"role": ""}]}), "messages[0].role"),
            (
                json!({"messages": [{"role": "user"}]}),
                "messages[0].content",
            ),
            (
                json!({"messages": [{"role": "system", "content": 123}]}),
                "messages[0].content",
            ),
            (
                json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]}),
                "messages",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
                "messages[0].content[0]",
            ),
            (
                json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, {"role": "user", "content": ""}]}),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (
                json!({"messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]}]}),
                "messages[0].tool_calls[0].type",
            ),
            (
                json!({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}),
                "messages[0].function_call",
            ),
            (json!({"n": 0}), "n"),
            (json!({"n": 129}), "n"),
            (json!({"max_tokens": -2}), "max_tokens"),
            (json!({"max_tokens": "9"}), "max_tokens"),
            (
                json!({"top_logprobs": 21, "logprobs": true}),
                "top_logprobs",
            ),
            (json!({"top_logprobs": 2}), "top_logprobs"),
            (json!({"audio": {"voice": "alloy"}}), "audio"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (
                json!({"web_search_options": {"a": 1}}),
                "web_search_options",
            ),
            (json!({"functions": [{"name": "f"}]}), "functions"),
            (json!({"store": true}), "store"),
            (json!({"mirostat": 1}), "mirostat"),
            (json!({"tools": [{"type": "custom"}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"tools": {"a": 1}}), "tools"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tool_choice": "sometimes"}), "tool_choice"),
            (json!({"tool_choice": 5}), "tool_choice"),
            (
                json!({"tool_choice": {"type": "function", "function": {"name": "x"}}}),
                "tool_choice",
            ),
            (
                json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"name": "x"}]}}}),
                "tool_choice.allowed_tools.tools[0]",
            ),
            (json!({"thinking": {"type": "maybe"}}), "thinking.type"),
            (
                json!({"add_generation_prompt": false}),
                "add_generation_prompt",
            ),
            (
                json!({"continue_final_message": true}),
                "continue_final_message",
            ),
            (
                json!({
                    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                    "add_generation_prompt": true,
                    "continue_final_message": true,
                }),
                "continue_final_message",
            ),
            (
                json!({"stream_options": {"continuous_usage_stats": true}}),
                "stream_options.continuous_usage_stats",
            ),
        ] {
            let error = with(fields.clone()).unwrap_err();
            assert_eq!(
                error.param.as_deref(),
                Some(param),
                "{fields}: {}",
                error.message
            );
            assert_eq!(error.kind, crate::error::ErrorKind::Invalid);
        }
    }
}
