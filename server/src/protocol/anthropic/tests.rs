//! The Messages API without a server: requests as prompts, and replies as JSON.

use serde_json::{Value, json};

use super::error::ErrorObject;
use super::request::{MessagesRequest, REFUSED};
use super::stream::{MessageStart, MessageWriter, ThinkingDisplay};
use super::translate::{chat_prompt, reply_request};
use crate::error::{ErrorKind, RequestError};
use crate::http::identity::RequestInfo;
use crate::protocol::shared::Body;
use crate::reply::{
    CallLimit, ChatPrompt, FinishReason, ReplyCall, ReplyEnded, ReplyPart, ReplyPrompt,
    ReplyRequest, ReplyTimes, ToolChoice,
};

fn read(json: &Value) -> Result<MessagesRequest, RequestError> {
    let body = Body::parse(json.to_string().as_bytes())?;
    body.refuse(REFUSED)?;
    body.read()
}

/// Returns the request for a reply, with a message and a number of tokens unless they are given.
fn translated(fields: &Value) -> Result<ReplyRequest, RequestError> {
    let mut request = json!({
        "model": "m",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "hi"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    let info = RequestInfo {
        id: "req_1".to_owned(),
        salt: 7,
    };
    reply_request(&read(&request)?, &info)
}

fn chat(fields: &Value) -> ChatPrompt {
    match translated(fields).unwrap().prompt {
        ReplyPrompt::Chat(chat) => chat,
        other => panic!("{other:?}"),
    }
}

/// Returns the messages of a prompt, each as a line.
fn lines(chat: &ChatPrompt) -> Vec<String> {
    chat.messages
        .iter()
        .map(|message| {
            let mut line = format!("{}: {}", message.role, message.content);
            if let Some(reasoning) = &message.reasoning {
                line += &format!(" [reasoning {reasoning}]");
            }
            for call in &message.calls {
                let arguments = Value::Object(call.arguments.clone());
                line += &format!(" [call {} {} {arguments}]", call.id, call.name);
            }
            if let Some(id) = &message.call_id {
                line += &format!(" [answers {id} of {}]", message.name.as_deref().unwrap());
            }
            line
        })
        .collect()
}

#[test]
fn a_minimal_request_leaves_everything_to_the_model() {
    let request = translated(&json!({})).unwrap();
    assert_eq!(request.max_tokens, Some(10));
    assert_eq!(request.salt, 7);
    assert_eq!(request.request_id, "req_1");
    assert_eq!(request.sampling, Default::default());
    let chat = chat(&json!({}));
    assert_eq!(lines(&chat), ["user: hi"]);
    assert!(chat.tools.is_none());
    assert_eq!(chat.reasoning, Default::default());
    assert_eq!(chat.call_limit, CallLimit::Many);
}

#[test]
fn a_conversation_of_claude_code_becomes_turns() {
    let chat = chat(&json!({
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=1a2b;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief."},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>today</system-reminder>"},
                {"type": "text", "text": "run echo", "cache_control": {"type": "ephemeral"}},
            ]},
            {"role": "system", "content": "Agent types: claude"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I run it.", "signature": "unsigned"},
                {"type": "redacted_thinking", "data": "AAAA"},
                {"type": "text", "text": "Run"},
                {"type": "text", "text": "ning"},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "echo"}},
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one two", "is_error": false},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true, "content": [
                    {"type": "text", "text": "no"}, {"type": "text", "text": "file"},
                ]},
                {"type": "text", "text": "go on"},
            ]},
        ],
    }));
    assert_eq!(
        lines(&chat),
        [
            "system: You are an agent.\n\nBe brief.",
            "user: <system-reminder>today</system-reminder>\nrun echo",
            "system: Agent types: claude",
            "assistant: Running [reasoning I run it.] [call toolu_1 Bash {\"command\":\"echo\"}] \
             [call toolu_2 Read {}]",
            "tool: one two [answers toolu_1 of Bash]",
            "tool: Error: no\nfile [answers toolu_2 of Read]",
            "user: go on",
        ]
    );
}

#[test]
fn the_last_message_of_the_assistant_is_continued() {
    let chat = chat(&json!({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "he"},
    ]}));
    assert_eq!(lines(&chat), ["user: hi", "assistant: he"]);
}

#[test]
fn tools_and_choices_are_translated() {
    let tools = json!([
        {"name": "ls", "description": "Lists", "input_schema": {"type": "object"}},
        {"type": "custom", "name": "cd", "input_schema": {"type": "object"}, "strict": true},
    ]);
    let prompt = |choice: Value| chat(&json!({"tools": tools, "tool_choice": choice}));
    let named: Vec<String> = prompt(json!({"type": "auto"}))
        .tools
        .unwrap()
        .names()
        .map(str::to_owned)
        .collect();
    assert_eq!(named, ["ls", "cd"]);
    for (choice, expected) in [
        (json!({"type": "auto"}), ToolChoice::Auto),
        (json!({"type": "none"}), ToolChoice::None),
        (json!({"type": "any"}), ToolChoice::Required),
        (
            json!({"type": "tool", "name": "cd"}),
            ToolChoice::Function("cd".to_owned()),
        ),
    ] {
        assert_eq!(prompt(choice).tool_choice, expected);
    }
    let one = prompt(json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(one.call_limit, CallLimit::One);
    assert!(chat(&json!({"tools": []})).tools.is_none());
}

#[test]
fn fields_of_sampling_reasoning_and_format_are_translated() {
    let request = translated(&json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "u"}, "service_tier": "auto", "unknown": 1,
    }))
    .unwrap();
    assert_eq!(request.sampling.temperature, Some(0.5));
    assert_eq!(request.sampling.top_p, Some(0.9));
    assert_eq!(request.sampling.top_k, Some(40));
    assert_eq!(request.stop, ["END"]);
    assert_eq!(
        request.format,
        Some(warpwright_model::GrammarText::JsonSchema(
            "{\"type\":\"object\"}".to_owned()
        ))
    );
    let ReplyPrompt::Chat(chat) = request.prompt else {
        panic!("not a conversation")
    };
    assert_eq!(chat.reasoning.enabled, Some(true));
    assert_eq!(chat.reasoning.effort.as_deref(), Some("high"));
    for (kind, enabled) in [("adaptive", None), ("disabled", Some(false))] {
        let prompt = self::chat(&json!({"thinking": {"type": kind}}));
        assert_eq!(prompt.reasoning.enabled, enabled);
    }
}

#[test]
fn counting_needs_no_number_of_tokens() {
    let request = read(&json!({"messages": [{"role": "user", "content": "hi"}]})).unwrap();
    assert_eq!(chat_prompt(&request).unwrap().messages.len(), 1);
}

#[test]
fn wrong_fields_are_named() {
    let image = json!([{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "image", "source": {}},
    ]}]);
    let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let cases = [
        (
            json!({"max_tokens": null}),
            "max_tokens",
            "`max_tokens` is missing: expected the maximum number of tokens of the reply",
        ),
        (
            json!({"max_tokens": 0}),
            "max_tokens",
            "`max_tokens` is 0: expected an integer from 1 to 4294967295",
        ),
        (
            json!({"messages": []}),
            "messages",
            "`messages` has no message: expected at least one",
        ),
        (
            json!({"messages": [{"role": "tool", "content": "a"}]}),
            "messages[0].role",
            "`messages[0].role` is \"tool\": expected user, assistant or system",
        ),
        (
            json!({"messages": [{"role": "user", "content": 5}]}),
            "messages[0].content",
            "`messages[0].content`: invalid type: integer `5`, expected a string or a list",
        ),
        (
            json!({"messages": image}),
            "messages[0].content[1]",
            "`messages[0].content[1]`: image input is not supported: the model reads only text, so \
             send the text in a block of type \"text\"",
        ),
        (
            json!({"messages": [{"role": "user", "content": [call]}]}),
            "messages[0].content[0]",
            "`messages[0].content[0]` is a block that this role does not have: only messages of \
             the assistant have thinking and tool_use",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": [call]}]}),
            "messages",
            "`messages` ends with the tool call \"a\": expected a tool_result block for it",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
            "messages[0].content[0]",
            "`messages[0].content[0]`: a block of type \"tool_result\" has no `tool_use_id`",
        ),
        (
            json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools[0].type",
            "`tools[0].type` is \"web_search_20250305\", a tool that only Anthropic's models and \
             servers know: expected custom, with an `input_schema`",
        ),
        (
            json!({"tools": [{"name": "f"}]}),
            "tools[0].input_schema",
            "`tools[0].input_schema` is missing or not an object: expected a JSON schema",
        ),
        (
            json!({"tool_choice": {"type": "any"}}),
            "tool_choice",
            "`tool_choice` asks for a tool call, and `tools` has no tool",
        ),
        (
            json!({"tool_choice": {"type": "tool", "name": "g"},
                "tools": [{"name": "f", "input_schema": {}}]}),
            "tool_choice.name",
            "`tool_choice.name` is \"g\", and `tools` has no tool with this name",
        ),
        (
            json!({"temperature": 300}),
            "temperature",
            "`temperature` is 300: expected a number from 0 to 100",
        ),
        (
            json!({"stop_sequences": ["a", ""]}),
            "stop_sequences[1]",
            "`stop_sequences[1]` is empty: a stop string needs a character",
        ),
        (
            json!({"thinking": {"type": "on"}}),
            "thinking.type",
            "`thinking.type` is \"on\": expected enabled, disabled or adaptive",
        ),
        (
            json!({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
            "context_management.edits[0].type",
            "`context_management.edits[0].type` is \"clear_tool_uses_20250919\", which is not \
             supported: the server reads conversations as they are",
        ),
        (
            json!({"container": "c"}),
            "container",
            "`container` is not supported: the server does not execute code",
        ),
        (
            json!({"output_format": {"type": "json_schema"}}),
            "output_format.schema",
            "`output_format.schema` is missing",
        ),
    ];
    for (fields, param, message) in cases {
        let error = translated(&fields).unwrap_err();
        assert_eq!(
            (error.kind, error.param.as_deref(), &*error.message),
            (ErrorKind::Invalid, Some(param), message)
        );
    }
}

fn writer(thinking: ThinkingDisplay) -> MessageWriter {
    MessageWriter::new(MessageStart {
        id: "msg_1".to_owned(),
        request_id: "req_1".to_owned(),
        model: "m".to_owned(),
        thinking,
    })
}

fn started() -> ReplyPart {
    ReplyPart::Started {
        prompt_tokens: 10,
        cached_tokens: 4,
    }
}

fn ended(reason: FinishReason) -> ReplyPart {
    ReplyPart::Ended(ReplyEnded {
        reason,
        tokens: 9,
        reasoning_tokens: 2,
        problems: vec![],
        times: ReplyTimes::default(),
    })
}

fn call(index: u32) -> ReplyPart {
    ReplyPart::Call(ReplyCall {
        index,
        id: format!("call_{index}"),
        name: "ls".to_owned(),
        arguments: "{\"path\":\"/\"}".to_owned(),
    })
}

/// Writes parts and returns the events, each as its name and data.
fn events(writer: &mut MessageWriter, parts: Vec<ReplyPart>) -> Vec<(String, Value)> {
    let mut events = vec![];
    for part in parts {
        for event in writer.push(part) {
            let sse = event.sse();
            let name = sse.name.unwrap().to_owned();
            let data: Value = serde_json::from_str(&sse.data).unwrap();
            // Clients dispatch on either of the two.
            assert_eq!(data["type"], json!(name));
            events.push((name, data));
        }
    }
    events
}

#[test]
fn a_stream_has_the_events_of_the_messages_api() {
    let mut writer = writer(ThinkingDisplay::Shown);
    let events = events(
        &mut writer,
        vec![
            started(),
            ReplyPart::Reasoning("I ".to_owned()),
            ReplyPart::Reasoning("think".to_owned()),
            ReplyPart::Text("Hel".to_owned()),
            ReplyPart::Text("lo".to_owned()),
            call(0),
            call(1),
            ended(FinishReason::Calls),
        ],
    );
    let usage = |output: u32| {
        json!({"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "output_tokens": output})
    };
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    let data: Vec<Value> = events.into_iter().map(|(_, data)| data).collect();
    assert_eq!(
        data,
        [
            json!({"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage(0),
            }}),
            json!({"type": "ping"}),
            start(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""})
            ),
            delta(0, json!({"type": "thinking_delta", "thinking": "I "})),
            delta(0, json!({"type": "thinking_delta", "thinking": "think"})),
            delta(
                0,
                json!({"type": "signature_delta", "signature": "unsigned"})
            ),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Hel"})),
            delta(1, json!({"type": "text_delta", "text": "lo"})),
            stop(1),
            start(
                2,
                json!({"type": "tool_use", "id": "call_0", "name": "ls", "input": {}})
            ),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": "{\"path\":\"/\"}"})
            ),
            stop(2),
            start(
                3,
                json!({"type": "tool_use", "id": "call_1", "name": "ls", "input": {}})
            ),
            delta(
                3,
                json!({"type": "input_json_delta", "partial_json": "{\"path\":\"/\"}"})
            ),
            stop(3),
            json!({"type": "message_delta", "usage": usage(9),
                "delta": {"stop_reason": "tool_use", "stop_sequence": null}}),
            json!({"type": "message_stop"}),
        ]
    );
    assert!(writer.has_ended());
    assert_eq!(
        serde_json::to_value(writer.finish().unwrap()).unwrap(),
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "thinking", "thinking": "I think", "signature": "unsigned"},
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "call_0", "name": "ls", "input": {"path": "/"}},
                {"type": "tool_use", "id": "call_1", "name": "ls", "input": {"path": "/"}},
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": usage(9),
        })
    );
}

#[test]
fn each_end_has_its_reason() {
    for (reason, name, string) in [
        (FinishReason::Stop, "end_turn", Value::Null),
        (FinishReason::Length, "max_tokens", Value::Null),
        (FinishReason::Calls, "tool_use", Value::Null),
        (
            FinishReason::StopString("END".to_owned()),
            "stop_sequence",
            json!("END"),
        ),
    ] {
        let mut writer = writer(ThinkingDisplay::Shown);
        let parts = vec![started(), ReplyPart::Text("a".to_owned()), ended(reason)];
        let events = events(&mut writer, parts);
        let (_, end) = &events[events.len() - 2];
        assert_eq!(
            end["delta"],
            json!({"stop_reason": name, "stop_sequence": string})
        );
    }
}

#[test]
fn a_reply_without_text_has_an_empty_block() {
    let mut writer = writer(ThinkingDisplay::Omitted);
    let parts = vec![
        started(),
        ReplyPart::Reasoning("hidden".to_owned()),
        ReplyPart::Text(String::new()),
        ended(FinishReason::Stop),
    ];
    let names: Vec<String> = events(&mut writer, parts)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert_eq!(
        serde_json::to_value(writer.finish().unwrap().content).unwrap(),
        json!([
            {"type": "thinking", "thinking": "", "signature": "unsigned"},
            {"type": "text", "text": ""},
        ])
    );
}

#[test]
fn a_failure_is_the_last_event() {
    let lost = || RequestError::new(ErrorKind::Internal, "the device has failed");
    let mut failed = writer(ThinkingDisplay::Shown);
    let parts = vec![
        started(),
        ReplyPart::Text("a".to_owned()),
        ReplyPart::Failed(lost()),
    ];
    let (name, data) = events(&mut failed, parts).pop().unwrap();
    assert_eq!(name, "error");
    assert_eq!(
        data,
        json!({"type": "error", "request_id": "req_1",
            "error": {"type": "api_error", "message": "the device has failed"}})
    );
    // The end of the channel adds nothing.
    assert!(failed.interrupt().is_empty());
    assert_eq!(failed.finish(), Err(lost()));

    let mut stopped = writer(ThinkingDisplay::Shown);
    let (_, data) = events(&mut stopped, vec![started(), ended(FinishReason::Shutdown)])
        .pop()
        .unwrap();
    assert_eq!(data["error"]["type"], json!("overloaded_error"));

    let mut interrupted = writer(ThinkingDisplay::Shown);
    events(&mut interrupted, vec![started()]);
    assert_eq!(interrupted.interrupt().len(), 1);
    assert!(interrupted.finish().is_err());
}

#[test]
fn a_prompt_that_is_too_long_is_reported_as_clients_expect() {
    let kind = ErrorKind::ContextExceeded {
        prompt: 5000,
        ctx: 4096,
    };
    let error = ErrorObject::new(&RequestError::new(kind, "too long"), Some("req_1"));
    assert_eq!(
        serde_json::to_value(error).unwrap(),
        json!({"type": "error", "request_id": "req_1", "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 5000 tokens > 4096 maximum",
            "n_prompt_tokens": 5000, "n_ctx": 4096,
        }})
    );
}

#[test]
fn the_documentation_has_both_paths() {
    let paths: Vec<String> = super::surface().docs.paths.paths.into_keys().collect();
    assert_eq!(paths, ["/v1/messages", "/v1/messages/count_tokens"]);
}
