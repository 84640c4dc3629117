//! The Responses API without a server: requests as prompts, and replies as JSON.

use async_openai::types::responses as oracle;
use serde_json::{Value, json};
use warpwright_engine::Sampling;
use warpwright_model::GrammarText;

use super::event::NumberedEvent;
use super::request::{REFUSED, ResponsesRequest};
use super::stream::{ResponseStart, ResponseWriter};
use super::translate::{TranslatedRequest, translate};
use crate::error::{ErrorKind, RequestError};
use crate::http::identity::RequestInfo;
use crate::protocol::shared::Body;
use crate::reply::{
    CallLimit, ChatPrompt, FinishReason, ReplyCall, ReplyEnded, ReplyPart, ReplyPrompt, ReplyTimes,
    TokenText, ToolChoice,
};

/// Translates a request, with an input unless it is given.
fn translated(fields: &Value) -> Result<TranslatedRequest, RequestError> {
    let mut request = json!({"model": "m", "input": "hi"});
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    let body = Body::parse(request.to_string().as_bytes())?;
    body.refuse(REFUSED)?;
    let request: ResponsesRequest = body.read()?;
    let info = RequestInfo {
        id: "req_1".to_owned(),
        salt: 7,
    };
    translate(&request, &info, &Sampling::off())
}

fn chat(fields: &Value) -> ChatPrompt {
    match translated(fields).unwrap().reply.prompt {
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

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "d", "strict": false,
        "parameters": {"type": "object"}})
}

#[test]
fn a_minimal_request_leaves_everything_to_the_model() {
    let request = translated(&json!({})).unwrap().reply;
    assert_eq!(request.max_tokens, None);
    assert_eq!(request.salt, 7);
    assert_eq!(request.sampling, Default::default());
    assert_eq!(request.logprobs, None);
    assert_eq!(lines(&chat(&json!({}))), ["user: hi"]);
}

#[test]
fn a_conversation_of_codex_becomes_turns() {
    let chat = chat(&json!({
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "developer", "id": "msg_1", "content": [
                {"type": "input_text", "text": "You are an agent."},
            ]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<env>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "run echo"}]},
            {"type": "reasoning", "id": "rs_1", "content": null, "encrypted_content": null,
                "summary": [{"type": "summary_text", "text": "I run it."}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Run"},
                {"type": "output_text", "text": "ning"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec",
                "arguments": "{\"cmd\": \"echo\"}", "status": "completed"},
            {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": ""},
            {"type": "function_call_output", "call_id": "call_1", "output": "one two"},
            {"type": "function_call_output", "call_id": "call_2", "output": [
                {"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"role": "user", "content": "go on"},
        ],
    }));
    assert_eq!(
        lines(&chat),
        [
            "system: Be brief.\n\nYou are an agent.",
            "user: <env>\nrun echo",
            "assistant: Running [reasoning I run it.] [call call_1 exec {\"cmd\":\"echo\"}] \
             [call call_2 look {}]",
            "tool: one two [answers call_1 of exec]",
            "tool: a\nb [answers call_2 of look]",
            "user: go on",
        ]
    );
}

#[test]
fn tools_of_other_servers_are_left_out() {
    let translated = translated(&json!({
        "tools": [function("exec"), {"type": "web_search", "external_web_access": true},
            {"type": "namespace", "name": "agents", "description": "d", "tools": [function("spawn")]},
            {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"},
            {"type": "image_generation"}],
        "tool_choice": "auto", "parallel_tool_calls": false,
    }))
    .unwrap();
    assert_eq!(translated.parameters.tools, [function("exec")]);
    let ReplyPrompt::Chat(chat) = translated.reply.prompt else {
        panic!("not a conversation")
    };
    assert_eq!(chat.tools.unwrap().names().collect::<Vec<_>>(), ["exec"]);
    assert_eq!(chat.call_limit, CallLimit::One);
}

#[test]
fn choices_are_translated() {
    let prompt = |choice: Value| {
        chat(&json!({"tools": [function("f"), function("g")], "tool_choice": choice}))
    };
    let function_g = ToolChoice::Function("g".to_owned());
    for (choice, expected) in [
        (json!("auto"), ToolChoice::Auto),
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Required),
        (json!({"type": "function", "name": "g"}), function_g),
    ] {
        assert_eq!(prompt(choice).tool_choice, expected);
    }
    let allowed = prompt(json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "g"}, {"type": "web_search"}]}));
    assert_eq!(allowed.tool_choice, ToolChoice::Required);
    assert_eq!(allowed.tools.unwrap().names().collect::<Vec<_>>(), ["g"]);
}

#[test]
fn fields_of_sampling_reasoning_and_format_are_translated() {
    let translated = translated(&json!({
        "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 8, "top_logprobs": 3,
        "include": ["reasoning.encrypted_content"], "presence_penalty": 1,
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"const": 1}}},
        "store": true, "truncation": "disabled", "background": false, "previous_response_id": null,
        "client_metadata": {"a": "b"}, "stream_options": {"include_obfuscation": false},
        "metadata": {"k": "v"}, "prompt_cache_key": "key", "service_tier": "auto",
    }))
    .unwrap();
    let request = translated.reply;
    assert_eq!(request.sampling.temperature, Some(0.5));
    assert_eq!(request.sampling.presence_penalty, Some(1.0));
    assert_eq!(request.max_tokens, Some(8));
    assert_eq!(request.logprobs, Some(3));
    assert_eq!(
        request.format,
        Some(GrammarText::JsonSchema("{\"const\":1}".to_owned()))
    );
    let ReplyPrompt::Chat(chat) = request.prompt else {
        panic!("not a conversation")
    };
    assert_eq!(chat.reasoning.effort.as_deref(), Some("high"));
    assert!(!translated.parameters.store);

    let none = self::chat(&json!({"reasoning": {"effort": "none"}}));
    assert_eq!(none.reasoning.effort, None);
    assert_eq!(none.reasoning.enabled, Some(false));
    let object = self::translated(&json!({"text": {"format": {"type": "json_object"}}})).unwrap();
    assert!(object.reply.format.is_some());
    let include = json!({"include": ["message.output_text.logprobs"]});
    assert_eq!(self::translated(&include).unwrap().reply.logprobs, Some(0));
}

#[test]
fn wrong_fields_are_named() {
    let part = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    let call = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"});
    let cases = [
        (
            json!({"input": null}),
            "input",
            "`input` is missing or empty: expected a text or at least one item",
        ),
        (
            json!({"input": [{"role": "user"}]}),
            "input[0]",
            "`input[0]`: \"message\" has no `content`",
        ),
        (
            json!({"input": [{"role": "critic", "content": "a"}]}),
            "input[0].role",
            "`input[0].role` is \"critic\": expected user, assistant, system or developer",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "msg_1"}]}),
            "input[0]",
            "`input[0]`: an item of type \"item_reference\" is not supported: the server keeps no \
             items, so send the item itself",
        ),
        (
            json!({"input": [{"type": "web_search_call", "id": "a"}]}),
            "input[0]",
            "`input[0]`: an item of type \"web_search_call\" is not supported: expected message, \
             function_call, function_call_output or reasoning",
        ),
        (
            part(json!({"type": "input_image", "image_url": "data:"})),
            "input[0].content[0].image_url",
            "`input[0].content[0].image_url`: image input is not supported: the model reads only \
             text, so send text",
        ),
        (
            part(json!({"type": "input_text"})),
            "input[0].content[0]",
            "`input[0].content[0]`: \"input_text\" has no `text`",
        ),
        (
            json!({"input": [call]}),
            "input",
            "`input` ends with the tool call \"a\": expected a function_call_output for it",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "[]"},
                {"type": "function_call_output", "call_id": "a", "output": ""}]}),
            "input[0].arguments",
            "`input[0].arguments` is not the text of a JSON object",
        ),
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
            "`previous_response_id` is not supported: the server keeps no responses; send the \
             whole conversation as `input`",
        ),
        (
            json!({"background": true}),
            "background",
            "`background` is not supported: the server keeps no responses; use `stream` for long \
             ones",
        ),
        (
            json!({"truncation": "auto"}),
            "truncation",
            "`truncation` is not supported: a conversation that is too long is an error; shorten \
             `input`",
        ),
        (
            json!({"tools": [{"type": "file_search"}]}),
            "tools[0].type",
            "`tools[0].type` is \"file_search\", which is not supported: expected function",
        ),
        (
            json!({"tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": 5}]}),
            "tools[1].parameters",
            "`tools[1].parameters` is not an object: expected a JSON schema",
        ),
        (
            json!({"tools": ["f"]}),
            "tools[0]",
            "`tools[0]`: invalid type: string \"f\", expected an object",
        ),
        (
            json!({"tools": [{"type": "web_search"}], "tool_choice": "required"}),
            "tool_choice",
            "`tool_choice` asks for a call, and there is no function to call",
        ),
        (
            json!({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
            "tool_choice.type",
            "`tool_choice.type` is \"web_search\", which is not supported: expected function or \
             allowed_tools",
        ),
        (
            json!({"tools": [function("f"), function("f")]}),
            "tools",
            "`tools` has two tools with the name \"f\"",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "test"}}}),
            "text.format.schema",
            "`text.format.schema` is missing",
        ),
        (
            json!({"text": {"verbosity": "low"}}),
            "text.verbosity",
            "`text.verbosity` is \"low\", which is not supported: expected medium; say in \
             `instructions` how long the text should be",
        ),
        (
            json!({"include": ["reasoning"]}),
            "include[0]",
            "`include[0]` is \"reasoning\": expected message.output_text.logprobs",
        ),
        (
            json!({"max_output_tokens": 0}),
            "max_output_tokens",
            "`max_output_tokens` is 0: expected an integer from 1 to 4294967295",
        ),
        (
            json!({"top_logprobs": 21}),
            "top_logprobs",
            "`top_logprobs` is 21: expected an integer from 0 to 20",
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

fn writer() -> ResponseWriter {
    let fields = json!({
        "instructions": "Be brief.", "tools": [function("ls")], "metadata": {"k": "v"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "tool_choice": {"type": "function", "name": "ls"},
    });
    ResponseWriter::new(ResponseStart {
        id: "x".to_owned(),
        created_at: 100,
        model: "m".to_owned(),
        parameters: translated(&fields).unwrap().parameters,
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

fn token(text: &str) -> ReplyPart {
    ReplyPart::Tokens(vec![TokenText {
        token: 1,
        bytes: text.as_bytes().to_vec(),
        logprob: Some(-0.5),
        best: vec![(1, text.as_bytes().to_vec(), -0.5)],
    }])
}

/// Returns the data of all events of a stream. Each must be one that async-openai can read.
fn events(writer: &mut ResponseWriter, parts: Vec<ReplyPart>) -> Vec<Value> {
    let mut events: Vec<NumberedEvent> = writer.start();
    for part in parts {
        events.extend(writer.push(part));
    }
    let mut data = vec![];
    for (number, event) in events.into_iter().enumerate() {
        let sse = event.sse();
        let value: Value = serde_json::from_str(&sse.data).unwrap();
        assert_eq!(value["type"], json!(sse.name.unwrap()));
        assert_eq!(value["sequence_number"], json!(number));
        if let Err(error) = serde_json::from_str::<oracle::ResponseStreamEvent>(&sse.data) {
            panic!("{error} in {}", sse.data);
        }
        data.push(value);
    }
    data
}

/// Removes the number of an event, and its response, which other tests check.
fn short(mut event: Value) -> Value {
    let fields = event.as_object_mut().unwrap();
    fields.remove("sequence_number");
    if let Some(response) = fields.get("response") {
        let status = response["status"].clone();
        fields["response"] = status;
    }
    event
}

#[test]
fn a_stream_has_the_events_of_the_responses_api() {
    let mut writer = writer();
    let events = events(
        &mut writer,
        vec![
            started(),
            ReplyPart::Reasoning("I ".to_owned()),
            ReplyPart::Reasoning("think".to_owned()),
            token("Hel"),
            ReplyPart::Text("Hel".to_owned()),
            ReplyPart::Text("lo".to_owned()),
            call(0),
            ended(FinishReason::Calls),
        ],
    );
    let logprob = json!({"token": "Hel", "logprob": -0.5, "bytes": [72, 101, 108], "top_logprobs": [
        {"token": "Hel", "logprob": -0.5, "bytes": [72, 101, 108]},
    ]});
    let summary = |kind: &str, more: Value| {
        let mut event = json!({"type": format!("response.reasoning_summary_{kind}"),
            "item_id": "rs_x0", "output_index": 0, "summary_index": 0});
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event
    };
    let content = |kind: &str, more: Value| {
        let mut event = json!({"type": format!("response.{kind}"),
            "item_id": "msg_x1", "output_index": 1, "content_index": 0});
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event
    };
    let item = |kind: &str, index: usize, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
    let text = |text: &str| json!({"type": "summary_text", "text": text});
    let part = |text: &str, logprobs: Value| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs});
    let message = |status: &str, content: Value| {
        json!({"type": "message", "id": "msg_x1", "status": status, "role": "assistant",
            "content": content})
    };
    let function_call = |status: &str, arguments: &str| {
        json!({"type": "function_call", "id": "fc_x2", "call_id": "call_0", "name": "ls",
            "arguments": arguments, "status": status})
    };
    let reasoning =
        |summary: Value| json!({"type": "reasoning", "id": "rs_x0", "summary": summary});
    let arguments = "{\"path\":\"/\"}";
    let whole = part("Hello", json!([logprob]));
    let expected = [
        json!({"type": "response.created", "response": "in_progress"}),
        json!({"type": "response.in_progress", "response": "in_progress"}),
        item("added", 0, reasoning(json!([]))),
        summary("part.added", json!({"part": text("")})),
        summary("text.delta", json!({"delta": "I "})),
        summary("text.delta", json!({"delta": "think"})),
        summary("text.done", json!({"text": "I think"})),
        summary("part.done", json!({"part": text("I think")})),
        item("done", 0, reasoning(json!([text("I think")]))),
        item("added", 1, message("in_progress", json!([]))),
        content("content_part.added", json!({"part": part("", json!([]))})),
        content(
            "output_text.delta",
            json!({"delta": "Hel", "logprobs": [logprob]}),
        ),
        content("output_text.delta", json!({"delta": "lo", "logprobs": []})),
        content(
            "output_text.done",
            json!({"text": "Hello", "logprobs": [logprob]}),
        ),
        content("content_part.done", json!({"part": whole})),
        item("done", 1, message("completed", json!([whole]))),
        item("added", 2, function_call("in_progress", "")),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_x2",
            "output_index": 2, "delta": arguments}),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_x2",
            "output_index": 2, "name": "ls", "arguments": arguments}),
        item("done", 2, function_call("completed", arguments)),
        json!({"type": "response.completed", "response": "completed"}),
    ];
    let events: Vec<Value> = events.into_iter().map(short).collect();
    for (event, expected) in events.iter().zip(&expected) {
        assert_eq!(event, expected);
    }
    assert_eq!(events.len(), expected.len());
}

#[test]
fn a_response_has_all_fields_of_the_specification() {
    let mut writer = writer();
    events(
        &mut writer,
        vec![
            started(),
            ReplyPart::Text("a".to_owned()),
            ended(FinishReason::Stop),
        ],
    );
    let mut response = serde_json::to_value(writer.finish().unwrap()).unwrap();
    let read: oracle::Response = serde_json::from_value(response.clone()).unwrap();
    assert_eq!(read.status, oracle::Status::Completed);
    assert_eq!(read.tools.unwrap().len(), 1);
    assert!(response["completed_at"].as_u64().unwrap() >= 100);
    response["completed_at"] = json!(101);
    assert_eq!(
        response,
        json!({
            "id": "resp_x", "object": "response", "created_at": 100, "completed_at": 101,
            "status": "completed", "incomplete_details": null, "error": null, "model": "m",
            "output": [{"type": "message", "id": "msg_x0", "status": "completed",
                "role": "assistant", "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                ]}],
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 2},
                "total_tokens": 19},
            "previous_response_id": null, "store": false, "background": false,
            "truncation": "disabled", "service_tier": "default", "instructions": "Be brief.",
            "tools": [function("ls")], "tool_choice": {"type": "function", "name": "ls"},
            "parallel_tool_calls": true,
            "text": {"verbosity": "medium", "format": {"type": "json_schema", "name": "n",
                "description": null, "schema": {"type": "object"}, "strict": true}},
            "reasoning": {"effort": null, "summary": null}, "temperature": 1.0, "top_p": 1.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0,
            "max_output_tokens": null, "max_tool_calls": null, "metadata": {"k": "v"},
            "user": null, "safety_identifier": null, "prompt_cache_key": null,
        })
    );
}

#[test]
fn a_response_that_reaches_its_limit_is_incomplete() {
    let mut writer = writer();
    let events = events(
        &mut writer,
        vec![
            started(),
            ReplyPart::Text("a".to_owned()),
            ended(FinishReason::Length),
        ],
    );
    let last = events.last().unwrap();
    assert_eq!(last["type"], json!("response.incomplete"));
    let response = &last["response"];
    assert_eq!(response["status"], json!("incomplete"));
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["completed_at"], Value::Null);
    assert_eq!(response["output"][0]["status"], json!("incomplete"));
}

#[test]
fn a_response_without_text_has_an_empty_message() {
    let mut writer = writer();
    let parts = vec![
        started(),
        ReplyPart::Reasoning("hm".to_owned()),
        ended(FinishReason::Stop),
    ];
    let events = events(&mut writer, parts);
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["type"], json!("reasoning"));
    assert_eq!(output[1]["content"][0]["text"], json!(""));
}

#[test]
fn a_failure_ends_the_open_item_and_the_response() {
    let lost = || RequestError::new(ErrorKind::Internal, "the device has failed");
    let mut failed = writer();
    let parts = vec![
        started(),
        ReplyPart::Text("a".to_owned()),
        ReplyPart::Failed(lost()),
    ];
    let events = events(&mut failed, parts);
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        names[5..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "error",
            "response.failed",
        ]
    );
    let last = &events[events.len() - 1]["response"];
    assert_eq!(
        last["error"],
        json!({"code": "server_error", "message": "the device has failed"})
    );
    assert!(failed.interrupt().is_empty());
    assert_eq!(failed.finish(), Err(lost()));

    let mut interrupted = writer();
    assert_eq!(interrupted.interrupt().len(), 2);
    assert!(interrupted.finish().is_err());
}

#[test]
fn an_image_is_refused_with_the_code_that_codex_knows() {
    let error = translated(&json!({"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:"}]}]}))
    .unwrap_err();
    let body = super::error::error_fields(&error);
    assert_eq!(body.error.code, Some("invalid_value"));
}

#[test]
fn the_documentation_has_both_paths() {
    let paths: Vec<String> = super::surface().docs.paths.paths.into_keys().collect();
    assert_eq!(paths, ["/v1/responses", "/v1/responses/input_tokens"]);
}
