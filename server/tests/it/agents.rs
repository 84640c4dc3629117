//! The protocols of coding agents through the router: `/v1/messages` and `/v1/responses`.

use std::path::Path;
use std::sync::Arc;

use async_openai::types::responses as oracle;
use axum::Router;
use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use warpwright_server::engine::scripted::PlannedFailure;
use warpwright_server::engine::{EngineLimits, ScriptedEngine};
use warpwright_server::models::OpenedModel;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{self, Answer, NAME, get, post, request, send};

/// A template that accepts messages of every role in every order.
const LENIENT: &str = "{% for message in messages %}[{{ message.role }}]{{ message.content }}\
    {% for call in message.tool_calls or [] %}<call {{ call.function.name }}>{% endfor %}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// A template that knows instructions only at the beginning, and refuses two messages of one role.
const STRICT: &str = "{% for message in messages %}\
    {% if message.role == 'system' and not loop.first %}{{ raise_exception('late system') }}\
    {% endif %}{% if loop.previtem and loop.previtem.role == message.role %}\
    {{ raise_exception('two of a kind') }}{% endif %}[{{ message.role }}]{{ message.content }}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

struct Setup {
    template: &'static str,
    failure: Option<PlannedFailure>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            template: LENIENT,
            failure: None,
        }
    }
}

/// Returns an application whose model replies with this text, in a context of 256 positions.
fn replying(reply: &str, setup: Setup) -> Router {
    let opened = OpenedModel::open(&harness::asset()).expect("the small model opens");
    let end = opened.tokenizer.eos().expect("the model has an end");
    let mut tokens = opened
        .tokenizer
        .encode_rest(reply)
        .expect("the reply is text");
    tokens.push(end);
    let limits = EngineLimits {
        ctx: 256,
        ..harness::limits()
    };
    let mut engine = ScriptedEngine::new(limits, vec![end], Box::new(move |_| tokens.clone()));
    if let Some(failure) = setup.failure {
        engine = engine.with_failure(failure);
    }

    let template = opened
        .model
        .chat_template_from(Path::new("test"), setup.template)
        .expect("the template compiles");
    let template = Some(Arc::new(template));
    let scheduler = Scheduler::start(Box::new(engine), SchedulerOptions::default());
    let mut model = opened.serve(NAME.to_owned(), scheduler);
    model.template = template.clone();
    model.tool_template = template;
    harness::app(Arc::new(model))
}

fn message(fields: Value) -> Value {
    let mut body = json!({"model": "claude-opus-5", "max_tokens": 20,
        "messages": [{"role": "user", "content": "Hi"}]});
    let object = body.as_object_mut().expect("an object");
    object.extend(fields.as_object().expect("an object").clone());
    body
}

fn response(fields: Value) -> Value {
    let mut body = json!({"model": "gpt-6", "input": "Hi"});
    let object = body.as_object_mut().expect("an object");
    object.extend(fields.as_object().expect("an object").clone());
    body
}

/// Returns the names and the data of the events of a stream.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let events = answer.events().into_iter();
    events
        .filter(|(_, data)| data != "[DONE]")
        .map(|(name, data)| {
            let data: Value = serde_json::from_str(&data).expect("the data is JSON");
            (name, data)
        })
        .collect()
}

#[tokio::test]
async fn a_message_is_answered_on_all_paths() {
    let app = replying("Hello there", Setup::default());
    for path in ["/v1/messages", "/messages", "/v1/messages?beta=true"] {
        let answer = post(&app, path, &message(json!({}))).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
        let json = answer.json();
        assert!(json["id"].as_str().is_some_and(|id| id.starts_with("msg_")));
        assert_eq!(json["type"], "message");
        assert_eq!(json["role"], "assistant");
        assert_eq!(json["model"], NAME);
        assert_eq!(
            json["content"],
            json!([{"type": "text", "text": "Hello there"}])
        );
        assert_eq!(json["stop_reason"], "end_turn");
        assert!(
            json["usage"]["input_tokens"]
                .as_u64()
                .is_some_and(|count| count > 0)
        );
        assert!(
            json["usage"]["output_tokens"]
                .as_u64()
                .is_some_and(|count| count > 0)
        );
    }
}

#[tokio::test]
async fn a_streamed_message_has_the_text_of_a_whole_one() {
    let app = replying("Hello there", Setup::default());
    let answer = post(&app, "/v1/messages", &message(json!({"stream": true}))).await;
    let events = events(&answer);
    let mut names: Vec<&str> = events.iter().map(|(name, _)| &**name).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let text: String = events
        .iter()
        .filter_map(|(_, data)| data["delta"]["text"].as_str())
        .collect();
    assert_eq!(text, "Hello there");
    assert!(events[0].1["message"]["usage"]["input_tokens"].as_u64() > Some(0));
    // Agents reject a `[DONE]` in this protocol.
    assert!(!answer.body.contains("[DONE]"));
}

#[tokio::test]
async fn stop_sequences_and_limits_end_messages() {
    let app = replying("one two three", Setup::default());
    let stopped = message(json!({"stop_sequences": [" two"]}));
    let stopped = post(&app, "/v1/messages", &stopped).await.json();
    assert_eq!(stopped["content"][0]["text"], "one");
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], " two");
    let limited = post(&app, "/v1/messages", &message(json!({"max_tokens": 1}))).await;
    assert_eq!(limited.json()["stop_reason"], "max_tokens");
    assert_eq!(limited.json()["usage"]["output_tokens"], 1);
}

#[tokio::test]
async fn counted_tokens_are_those_of_the_prompt() {
    let app = replying("yes", Setup::default());
    let counted = json!({"messages": [{"role": "user", "content": "Hi"}], "system": "Be brief."});
    let counted = post(&app, "/v1/messages/count_tokens?beta=true", &counted).await;
    let answered = message(json!({"system": "Be brief."}));
    let answered = post(&app, "/v1/messages", &answered).await.json();
    assert_eq!(
        counted.json(),
        json!({"input_tokens": answered["usage"]["input_tokens"]})
    );

    let items = response(json!({"instructions": "Be brief."}));
    let counted = post(&app, "/v1/responses/input_tokens", &items)
        .await
        .json();
    let answered = post(&app, "/v1/responses", &items).await.json();
    assert_eq!(counted["object"], "response.input_tokens");
    assert_eq!(counted["input_tokens"], answered["usage"]["input_tokens"]);
}

/// Returns the paths of all values in a JSON value, without its own.
fn paths(value: &Value) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, child)| (name.clone(), child))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, child)| (index.to_string(), child))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    };
    let mut all = vec![];
    for (name, child) in children {
        all.push(format!("/{name}"));
        all.extend(
            paths(child)
                .into_iter()
                .map(|rest| format!("/{name}{rest}")),
        );
    }
    all
}

/// Checks that a request is answered or refused by name, whatever stands in place of each value.
async fn check_every_value(path: &str, body: &Value) {
    let junk = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"type": "text", "text": "a"}),
        json!([{"type": "input_text", "text": "a"}]),
    ];
    let app = replying("yes", Setup::default());
    for place in paths(body) {
        for value in &junk {
            let mut changed = body.clone();
            *changed.pointer_mut(&place).expect("the place exists") = value.clone();
            let answer = post(&app, path, &changed).await;
            match answer.status.as_u16() {
                200 => {}
                400 => {
                    let message = answer.json()["error"]["message"].clone();
                    let message = message.as_str().expect("a message");
                    assert!(
                        !message.contains("expected struct"),
                        "{place} = {value}: {message}"
                    );
                }
                other => panic!("{other} for {place} = {value}: {}", answer.body),
            }
        }
    }
}

#[tokio::test]
async fn wrong_values_at_every_place_are_refused_by_name() {
    let messages = message(json!({
        "system": [{"type": "text", "text": "a"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "a", "signature": "b"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [
                    {"type": "text", "text": "a"},
                ]},
            ]},
        ],
        "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": false},
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
        "output_config": {"effort": "low"},
        "stop_sequences": ["END"], "temperature": 1, "top_p": 1, "top_k": 5, "stream": false,
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    }));
    check_every_value("/v1/messages", &messages).await;

    let items = response(json!({
        "instructions": "a",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "a"},
        ],
        "tools": [{"type": "function", "name": "f", "description": "d", "strict": false,
            "parameters": {"type": "object"}}, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto",
            "tools": [{"type": "function", "name": "f"}]},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "include": ["message.output_text.logprobs"], "top_logprobs": 1, "max_output_tokens": 20,
        "temperature": 1, "top_p": 1, "metadata": {"a": "b"}, "store": true, "stream": false,
        "parallel_tool_calls": true, "truncation": "disabled", "chat_template_kwargs": {"a": 1},
    }));
    check_every_value("/v1/responses", &items).await;
}

#[tokio::test]
async fn later_instructions_reach_every_template() {
    let body = message(json!({"messages": [
        {"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."},
    ]}));
    for template in [LENIENT, STRICT] {
        let setup = Setup {
            template,
            ..Setup::default()
        };
        let app = replying("yes", setup);
        let answer = post(&app, "/v1/messages", &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let items = response(json!({"input": [
            {"role": "user", "content": "Hi"}, {"role": "user", "content": "again"},
            {"role": "developer", "content": "Be brief."},
        ]}));
        let answer = post(&app, "/v1/responses", &items).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
}

#[tokio::test]
async fn errors_of_messages_have_their_shape() {
    let app = replying("yes", Setup::default());
    let long = "word ".repeat(600);
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    let cases = [
        (
            message(json!({"max_tokens": null})),
            "`max_tokens` is missing",
        ),
        (
            message(json!({"messages": image})),
            "`messages[0].content[0]`: image input is not supported",
        ),
        (
            message(json!({"messages": [{"role": "user", "content": long}]})),
            "prompt is too long: ",
        ),
    ];
    for (body, start) in cases {
        let answer = post(&app, "/v1/messages", &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        let json = answer.json();
        assert_eq!(json["type"], "error");
        assert_eq!(json["error"]["type"], "invalid_request_error");
        assert_eq!(json["request_id"], answer.header("request-id"));
        let text = json["error"]["message"].as_str().expect("a message");
        assert!(text.starts_with(start), "{text}");
    }

    let broken = request(Method::POST, "/v1/messages", Body::from("{\"model\": "));
    let broken = send(&app, broken).await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
    assert_eq!(broken.json()["error"]["type"], "invalid_request_error");
    let method = get(&app, "/v1/messages").await;
    assert_eq!(method.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(method.json()["type"], "error");
}

#[tokio::test]
async fn a_response_is_answered_on_all_paths() {
    let app = replying("Hello there", Setup::default());
    for path in ["/v1/responses", "/responses", "/v1/responses?a=b"] {
        let answer = post(&app, path, &response(json!({}))).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let read: oracle::Response = serde_json::from_str(&answer.body).expect("a response");
        assert!(read.id.starts_with("resp_"));
        assert_eq!(read.status, oracle::Status::Completed);
        assert_eq!(read.output_text().as_deref(), Some("Hello there"));
        assert!(read.usage.is_some_and(|usage| usage.output_tokens > 0));
    }
}

#[tokio::test]
async fn a_streamed_response_has_the_text_of_a_whole_one() {
    let app = replying("Hello there", Setup::default());
    let fields = json!({"stream": true, "top_logprobs": 2,
        "include": ["message.output_text.logprobs"]});
    let answer = post(&app, "/v1/responses", &response(fields)).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    let events = events(&answer);
    let mut text = String::new();
    let mut logprobs = vec![];
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!(data["type"], json!(name));
        assert_eq!(data["sequence_number"], json!(number));
        let read = serde_json::from_value::<oracle::ResponseStreamEvent>(data.clone());
        if let oracle::ResponseStreamEvent::ResponseOutputTextDelta(delta) =
            read.expect("an event of the API")
        {
            text.push_str(&delta.delta);
            logprobs.extend(delta.logprobs.expect("log-probabilities"));
        }
    }
    assert_eq!(text, "Hello there");
    assert!(!logprobs.is_empty());
    let joined: String = logprobs.iter().map(|logprob| &*logprob.token).collect();
    assert_eq!(joined.trim_start(), "Hello there");
    let (last, data) = events.last().expect("an event");
    assert_eq!(last, "response.completed");
    assert_eq!(data["response"]["output"][0]["content"][0]["text"], text);
}

#[tokio::test]
async fn a_response_at_its_limit_is_incomplete() {
    let app = replying("one two three", Setup::default());
    let answer = post(
        &app,
        "/v1/responses",
        &response(json!({"max_output_tokens": 1})),
    )
    .await;
    let json = answer.json();
    assert_eq!(json["status"], "incomplete");
    assert_eq!(json["incomplete_details"]["reason"], "max_output_tokens");
}

#[tokio::test]
async fn errors_of_responses_have_their_shape() {
    let app = replying("yes", Setup::default());
    let image = json!([{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]);
    let cases = [
        (
            response(json!({"input": image})),
            json!("input[0].content[0].image_url"),
            json!("invalid_value"),
        ),
        (
            response(json!({"previous_response_id": "resp_1"})),
            json!("previous_response_id"),
            Value::Null,
        ),
        (
            response(json!({"input": "word ".repeat(600)})),
            Value::Null,
            json!("context_length_exceeded"),
        ),
    ];
    for (body, param, code) in cases {
        let answer = post(&app, "/v1/responses", &body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
        assert_eq!(answer.header("content-type"), "application/json");
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param);
        assert_eq!(error["code"], code);
    }
}

#[tokio::test]
async fn a_device_that_fails_ends_streams_with_an_error() {
    let setup = || Setup {
        failure: Some(PlannedFailure::LostAfter(1)),
        ..Setup::default()
    };
    let app = replying("one two three four", setup());
    let answer = post(&app, "/v1/messages", &message(json!({"stream": true}))).await;
    let (name, data) = events(&answer).pop().expect("an event");
    assert_eq!(name, "error");
    assert_eq!(data["error"]["type"], "api_error");

    let app = replying("one two three four", setup());
    let answer = post(&app, "/v1/responses", &response(json!({"stream": true}))).await;
    let (name, data) = events(&answer).pop().expect("an event");
    assert_eq!(name, "response.failed");
    assert_eq!(data["response"]["status"], "failed");
    // The next request is refused before it starts.
    let answer = post(&app, "/v1/responses", &response(json!({}))).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}
