//! The endpoints of OpenAI's protocol, over a scripted engine and the small model's vocabulary.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_openai::types::chat::{CreateChatCompletionResponse, CreateChatCompletionStreamResponse};
use async_openai::types::completions::CreateCompletionResponse;
use async_openai::types::embeddings::{CreateBase64EmbeddingResponse, CreateEmbeddingResponse};
use async_openai::types::models::ListModelResponse;
use axum::Router;
use serde_json::{Value, json};
use warpwright_server::engine::scripted::PlannedFailure;
use warpwright_server::engine::{EngineLimits, ScriptedEngine};
use warpwright_server::models::OpenedModel;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{self, Answer, NAME, get, post};

/// A template that writes calls as Hermes does.
const TEMPLATE: &str = "{%- if tools %}<|system|>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}
{%- for message in messages %}<|{{ message.role }}|>\n{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}<tool_call>\n{{ {\"name\": call.function.name, \"arguments\": call.function.arguments} | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}
{%- if add_generation_prompt %}<|assistant|>\n{% endif %}";

const CTX: u32 = 256;

/// The changes of an application from the usual one.
#[derive(Default)]
struct Setup {
    failure: Option<PlannedFailure>,
    options: SchedulerOptions,
    delay: Duration,
}

/// Returns an application whose model always replies with this text.
fn replying(reply: &str) -> Router {
    replying_with(reply, Setup::default())
}

fn replying_with(reply: &str, setup: Setup) -> Router {
    let opened = OpenedModel::open(&harness::asset()).expect("the small model opens");
    let end = opened.tokenizer.eos().expect("the model has an end");
    let mut tokens = opened
        .tokenizer
        .encode_rest(reply)
        .expect("the reply is text");
    tokens.push(end);
    let limits = EngineLimits {
        sequences: 4,
        ctx: CTX,
        tokens_per_step: 256,
        pages: 256,
        page_len: 16,
        vocab: opened.tokenizer.size() as u32,
        logprobs: 20,
    };
    let engine = ScriptedEngine::new(limits, vec![end], Box::new(move |_| tokens.clone()));
    let mut engine = engine.with_delays(setup.delay, Duration::ZERO);
    if let Some(failure) = setup.failure {
        engine = engine.with_failure(failure);
    }

    let template = opened
        .model
        .chat_template_from(Path::new("test"), TEMPLATE)
        .expect("the template compiles");
    let template = Some(Arc::new(template));
    let scheduler = Scheduler::start(Box::new(engine), setup.options);
    let mut model = opened.serve(NAME.to_owned(), scheduler);
    model.template = template.clone();
    model.tool_template = template;
    harness::app(Arc::new(model))
}

fn conversation(fields: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let object = body.as_object_mut().expect("an object");
    object.extend(fields.as_object().expect("an object").clone());
    body
}

/// Returns the data of a stream that ends with `[DONE]`.
fn data(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let mut events = answer.events();
    assert_eq!(
        events.pop().map(|(_, data)| data).as_deref(),
        Some("[DONE]")
    );
    let data = events.iter().map(|(name, data)| {
        assert_eq!(name, "");
        serde_json::from_str(data).expect("the data is JSON")
    });
    data.collect()
}

fn content(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
    deltas
        .filter_map(|choice| choice["delta"]["content"].as_str())
        .collect()
}

#[tokio::test]
async fn a_chat_is_answered_on_both_paths() {
    let app = replying("Hello there");
    for path in [
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/chat/completions?x=1",
    ] {
        let answer = post(&app, path, &conversation(json!({"model": "any"}))).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body = answer.json();
        assert_eq!(body["choices"][0]["message"]["content"], "Hello there");
        assert_eq!(body["choices"][0]["finish_reason"], "stop");
        assert_eq!(body["model"], NAME);
        assert!(
            body["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("chatcmpl-"))
        );
        let read: CreateChatCompletionResponse =
            serde_json::from_value(body).expect("the oracle reads it");
        assert!(read.usage.expect("usage").prompt_tokens > 0);
    }
}

#[tokio::test]
async fn the_tokens_of_a_conversation_are_counted() {
    let app = replying("Fine.");
    let body = json!({"messages": [{"role": "user", "content": "How are you?"}]});
    let answer = post(&app, "/v1/chat/completions", &body).await;
    let prompt = answer.json()["usage"]["prompt_tokens"].clone();
    for path in [
        "/v1/chat/completions/input_tokens",
        "/chat/completions/input_tokens",
    ] {
        let answer = post(&app, path, &body).await;
        assert_eq!(
            answer.json(),
            json!({"object": "response.input_tokens", "input_tokens": prompt})
        );
    }
    let answer = post(
        &app,
        "/v1/chat/completions/input_tokens",
        &json!({"messages": []}),
    )
    .await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_request_overrides_the_variables_of_the_template() {
    let mut opened = OpenedModel::open(&harness::asset()).expect("the small model opens");
    let template = "{{ mood }} {{ enable_thinking }} {{ messages[0].content }}";
    opened
        .set_template(Path::new("test"), template)
        .expect("the template compiles");
    let defaults = json!({"mood": "calm", "enable_thinking": false});
    opened.defaults.template_variables = defaults.as_object().expect("an object").clone();
    let engine = Box::new(harness::replying("Fine."));
    let scheduler = Scheduler::start(engine, SchedulerOptions::default());
    let app = harness::app(Arc::new(opened.serve(NAME.to_owned(), scheduler)));
    for (fields, prompt) in [
        (json!({}), "calm False Hi"),
        (json!({"reasoning_effort": "high"}), "calm True Hi"),
        (
            json!({"chat_template_kwargs": {"mood": "wild"}}),
            "wild False Hi",
        ),
    ] {
        let answer = post(&app, "/apply-template", &conversation(fields)).await;
        assert_eq!(answer.json(), json!({"prompt": prompt}));
    }
}

#[tokio::test]
async fn a_streamed_chat_has_the_same_text() {
    let app = replying("Hello there, äöü");
    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    let answer = post(&app, "/v1/chat/completions", &conversation(fields)).await;
    assert_eq!(answer.status, 200);
    let chunks = data(&answer);
    assert_eq!(content(&chunks), "Hello there, äöü");
    let first = json!({"role": "assistant", "content": null});
    assert_eq!(chunks[0]["choices"][0]["delta"], first);
    let last = &chunks[chunks.len() - 1];
    assert!(last["usage"]["completion_tokens"].as_u64() > Some(0));
    for chunk in chunks {
        assert_eq!(chunk["model"], NAME);
        let read: Result<CreateChatCompletionStreamResponse, _> = serde_json::from_value(chunk);
        read.expect("the oracle reads it");
    }
}

#[tokio::test]
async fn a_stop_string_a_limit_and_several_replies_work() {
    let app = replying("one two three");
    let fields = json!({"stop": " three"});
    let body = post(&app, "/v1/chat/completions", &conversation(fields))
        .await
        .json();
    assert_eq!(body["choices"][0]["message"]["content"], "one two");
    assert_eq!(body["choices"][0]["stop_reason"], " three");

    let fields = json!({"max_completion_tokens": 1, "n": 3});
    let body = post(&app, "/v1/chat/completions", &conversation(fields))
        .await
        .json();
    let choices = body["choices"].as_array().expect("choices");
    assert_eq!(choices.len(), 3);
    assert!(
        choices
            .iter()
            .all(|choice| choice["finish_reason"] == "length")
    );
    assert_eq!(body["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn log_probabilities_are_those_of_the_text() {
    let app = replying("Hello there");
    for stream in [false, true] {
        let fields = json!({"logprobs": true, "top_logprobs": 2, "stream": stream});
        let answer = post(&app, "/v1/chat/completions", &conversation(fields)).await;
        let parts = if stream {
            data(&answer)
        } else {
            vec![answer.json()]
        };
        let mut text = String::new();
        for part in parts {
            let content = part["choices"][0]["logprobs"]["content"].clone();
            for token in content.as_array().into_iter().flatten() {
                text += token["token"].as_str().expect("a text");
                assert!(token["logprob"].as_f64().expect("a number") <= 0.0);
                assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(2));
            }
        }
        assert_eq!(text, "Hello there");
    }
}

#[tokio::test]
async fn a_tool_call_is_found_in_the_text() {
    let reply =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>";
    let app = replying(reply);
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]);
    let fields = json!({"tools": tools});
    let body = post(&app, "/v1/chat/completions", &conversation(fields))
        .await
        .json();
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{body}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "weather");
    let arguments = call["function"]["arguments"].as_str().expect("a text");
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    assert_eq!(arguments, json!({"city": "Bonn"}));

    let fields = json!({"tools": tools, "stream": true});
    let answer = post(&app, "/v1/chat/completions", &conversation(fields)).await;
    let chunks = data(&answer);
    let calls: Vec<&Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"].get(0)?["delta"]["tool_calls"].get(0))
        .collect();
    assert_eq!(calls.len(), 2);
    assert!(calls[0]["id"].is_string() && calls[1].get("id").is_none());
    assert_eq!(calls[0]["index"], 0);
    assert_eq!(
        chunks[chunks.len() - 1]["choices"][0]["finish_reason"],
        "tool_calls"
    );

    // The call of an earlier turn and its answer are a valid history.
    let mut history = conversation(json!({"tools": tools}));
    let messages = history["messages"].as_array_mut().expect("messages");
    messages.push(choice["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"}));
    let answer = post(&app, "/v1/chat/completions", &history).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn wrong_requests_have_openais_shape() {
    let app = replying("x");
    for (body, param) in [
        (
            conversation(json!({"temperature": -1})),
            json!("temperature"),
        ),
        (conversation(json!({"n": 0})), json!("n")),
        (
            conversation(json!({"audio": {"voice": "x"}})),
            json!("audio"),
        ),
        (json!({}), json!("messages")),
        (json!([]), Value::Null),
    ] {
        let answer = post(&app, "/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"], param);
        assert!(error["message"].is_string() && error["code"].is_null());
    }

    let answer = get(&app, "/v1/chat/completions").await;
    assert_eq!(answer.status, 405);
    assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_with_both_numbers() {
    let app = replying("x");
    let long = "word ".repeat(600);
    let bodies = [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": long}], "stream": true}),
        ),
        ("/v1/completions", json!({"prompt": ["short", long]})),
    ];
    for (path, body) in bodies {
        let answer = post(&app, path, &body).await;
        assert_eq!(answer.status, 400);
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "exceed_context_size_error");
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["n_ctx"], CTX);
        assert!(error["n_prompt_tokens"].as_u64() > Some(u64::from(CTX)));
        let message = error["message"].as_str().expect("a message");
        assert!(
            message.contains("exceeds the available context size of 256 tokens"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_full_queue_is_a_429_that_says_when_to_retry() {
    let setup = |delay: u64| Setup {
        delay: Duration::from_millis(delay),
        options: SchedulerOptions {
            queue: 0,
            ..SchedulerOptions::default()
        },
        ..Setup::default()
    };
    // The four requests that run must not end before the fifth arrives, even on a busy machine.
    let app = replying_with("x", setup(500));
    let body = json!({"prompt": "x"});
    let send = || post(&app, "/v1/completions", &body);
    let answers: [Answer; 5] = tokio::join!(send(), send(), send(), send(), send()).into();
    let refused: Vec<&Answer> = answers
        .iter()
        .filter(|answer| answer.status == 429)
        .collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].json()["error"]["type"], "rate_limit_error");
    assert!(
        refused[0]
            .header("retry-after")
            .parse::<u32>()
            .expect("seconds")
            >= 1
    );

    // The prompts of one request wait for each other.
    let app = replying_with("x", setup(20));
    let answer = post(&app, "/v1/completions", &json!({"prompt": vec!["x"; 12]})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["choices"].as_array().map(Vec::len), Some(12));
}

#[tokio::test]
async fn a_lost_device_is_a_500_or_an_error_in_the_stream() {
    let lost = || Setup {
        failure: Some(PlannedFailure::LostAfter(0)),
        ..Setup::default()
    };
    let answer = post(
        &replying_with("x", lost()),
        "/v1/chat/completions",
        &conversation(json!({})),
    )
    .await;
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert_eq!(answer.json()["error"]["type"], "server_error");

    let app = replying_with("x", lost());
    let fields = json!({"stream": true});
    let answer = post(&app, "/v1/chat/completions", &conversation(fields)).await;
    assert_eq!(answer.status, 200);
    let events = answer.events();
    let last: Value = serde_json::from_str(&events[events.len() - 1].1).expect("JSON");
    assert_eq!(last["error"]["type"], "server_error");
    assert!(!answer.body.contains("[DONE]"));
}

#[tokio::test]
async fn completions_take_all_forms_of_prompts() {
    let app = replying("Hello");
    for (prompt, count) in [
        (json!("Once"), 1),
        (json!([5, 6, 7]), 1),
        (json!(["Once", "upon"]), 2),
        (json!([[5, 6], [7]]), 2),
    ] {
        let body = json!({"prompt": prompt, "n": 2, "ignore_eos": false});
        let answer = post(&app, "/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body = answer.json();
        let choices = body["choices"].as_array().expect("choices");
        assert_eq!(choices.len(), 2 * count);
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
            assert_eq!(choice["text"].as_str().map(str::trim), Some("Hello"));
        }
        let read: Result<CreateCompletionResponse, _> = serde_json::from_value(body);
        read.expect("the oracle reads it");
    }

    for prompt in [json!([5, 4_000_000]), json!([]), json!(null)] {
        let answer = post(&app, "/v1/completions", &json!({"prompt": prompt})).await;
        assert_eq!(answer.status, 400, "{prompt}");
    }
}

#[tokio::test]
async fn a_prompt_is_scored_as_lm_eval_asks() {
    let app = replying("Hello");
    for limit in [0, 1] {
        let body = json!({"model": "m", "prompt": [[5, 6, 7], [8, 9]], "temperature": 0,
            "max_tokens": limit, "logprobs": 1, "echo": true, "seed": 1234});
        let answer = post(&app, "/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body = answer.json();
        for (index, prompt) in [(0, 3), (1, 2)] {
            let logprobs = &body["choices"][index]["logprobs"];
            let scores = logprobs["token_logprobs"].as_array().expect("scores");
            assert_eq!(scores.len(), prompt + limit, "{body}");
            assert!(scores[0].is_null());
            assert!(scores[1..].iter().all(Value::is_number));
            assert_eq!(logprobs["top_logprobs"][0], Value::Null);
            assert!(logprobs["top_logprobs"][1].is_object());
            assert_eq!(
                logprobs["tokens"].as_array().map(Vec::len),
                Some(prompt + limit)
            );
        }
    }
}

#[tokio::test]
async fn streamed_completions_have_the_text_of_each_prompt() {
    let app = replying("Hello you");
    let body =
        json!({"prompt": ["a", "b"], "stream": true, "stream_options": {"include_usage": true}});
    let answer = post(&app, "/v1/completions", &body).await;
    let chunks = data(&answer);
    for index in [0, 1] {
        let choices = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
        let own = choices.filter(|choice| choice["index"] == index);
        let text: String = own.filter_map(|choice| choice["text"].as_str()).collect();
        assert_eq!(text.trim(), "Hello you");
    }
    let last = &chunks[chunks.len() - 1];
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["prompt_tokens"].as_u64() >= Some(2));
}

#[tokio::test]
async fn embeddings_have_both_forms() {
    let app = replying("x");
    let body = json!({"input": ["one", [5, 6]], "model": "m"});
    let answer = post(&app, "/v1/embeddings", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let read: CreateEmbeddingResponse =
        serde_json::from_value(answer.json()).expect("the oracle reads it");
    assert_eq!(read.data.len(), 2);
    assert_eq!(read.data[1].index, 1);
    assert_eq!(read.usage.prompt_tokens, read.usage.total_tokens);
    let norm: f32 = read.data[0]
        .embedding
        .iter()
        .map(|value| value * value)
        .sum();
    assert!((norm - 1.0).abs() < 1e-3);

    let body = json!({"input": "one", "encoding_format": "base64"});
    let answer = post(&app, "/v1/embeddings", &body).await;
    let encoded: CreateBase64EmbeddingResponse =
        serde_json::from_value(answer.json()).expect("the oracle reads it");
    let bytes = base64::decode(&encoded.data[0].embedding.0).expect("base64");
    let floats = bytes
        .chunks_exact(4)
        .map(|bytes| bytes.try_into().map(f32::from_le_bytes));
    let decoded: Vec<f32> = floats.map(|float| float.expect("four bytes")).collect();
    assert_eq!(decoded, read.data[0].embedding);

    for (body, param) in [
        (json!({"input": []}), "input"),
        (json!({"input": {"a": 1}}), "input"),
        (
            json!({"input": "x", "encoding_format": "int8"}),
            "encoding_format",
        ),
        (json!({"input": "x", "dimensions": 3}), "dimensions"),
        (json!({"input": ["x", "word ".repeat(600)]}), "input[1]"),
    ] {
        let answer = post(&app, "/v1/embeddings", &body).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn models_are_listed_and_described() {
    let app = replying("x");
    for path in ["/v1/models", "/models", "/v1/models?client_version=1"] {
        let body = get(&app, path).await.json();
        assert_eq!(body["data"][0]["id"], NAME);
        assert_eq!(body["data"][0]["max_model_len"], CTX);
        assert!(body["models"].is_array());
        let read: ListModelResponse = serde_json::from_value(body).expect("the oracle reads it");
        assert_eq!(read.data.len(), 1);
    }

    let answer = get(&app, &format!("/v1/models/{NAME}")).await;
    assert_eq!(answer.json()["id"], NAME);
    let answer = get(&app, "/v1/models/other/name").await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error"]["type"], "not_found_error");
}

#[test]
fn the_documentation_has_every_endpoint_and_resolves_its_references() {
    let docs =
        serde_json::to_value(warpwright_server::protocol::openai::surface().docs).expect("JSON");
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/{model}",
    ] {
        assert!(docs["paths"].get(path).is_some(), "{path}");
    }
    let text = docs.to_string();
    let mut rest = &*text;
    let mut count = 0;
    while let Some((_, after)) = rest.split_once("\"#/components/schemas/") {
        let (name, after) = after.split_once('"').expect("a reference ends");
        assert!(docs["components"]["schemas"].get(name).is_some(), "{name}");
        rest = after;
        count += 1;
    }
    assert!(count > 20);
}

#[tokio::test]
async fn the_examples_of_the_documentation_are_accepted() {
    let app = replying("Hello");
    let docs = get(&app, "/openapi.json").await.json();
    let mut accepted = 0;
    for (path, methods) in docs["paths"].as_object().expect("an object") {
        let body = &methods["post"]["requestBody"];
        if body.is_null() {
            continue;
        }
        let example = &body["content"]["application/json"]["example"];
        assert!(example.is_object(), "{path} has no example");
        let answer = post(&app, path, example).await;
        // The server has no folder of adapters.
        let wanted = if path.contains("lora") { 403 } else { 200 };
        assert_eq!(answer.status, wanted, "{path}: {}", answer.body);
        accepted += 1;
    }
    assert!(accepted >= 14, "{accepted}");
}

#[test]
fn the_documentation_has_the_ranges_of_fields() {
    let docs =
        serde_json::to_value(warpwright_server::protocol::openai::surface().docs).expect("JSON");
    let schemas = &docs["components"]["schemas"];
    let fields = &schemas["SamplingRequest"]["properties"];
    assert_eq!(fields["top_p"]["maximum"], 1.0, "{}", fields["top_p"]);
    assert_eq!(fields["top_k"]["minimum"], -1.0, "{}", fields["top_k"]);
    let chat = &schemas["ChatRequest"]["properties"];
    assert_eq!(chat["messages"]["type"], "array", "{}", chat["messages"]);
    assert_eq!(chat["messages"]["minItems"], 1);
    assert_eq!(chat["n"]["minimum"], 1.0);
}

#[test]
fn translated_gbnf_accepts_the_same_texts() {
    use warpwright_model::GrammarText;
    use warpwright_server::protocol::openai;
    use warpwright_server::protocol::shared::Body;

    let opened = OpenedModel::open(&harness::asset()).expect("the small model opens");
    let end = opened.tokenizer.eos().expect("the model has an end");
    let tokenizer = Arc::clone(&opened.tokenizer);
    let limits = EngineLimits {
        sequences: 1,
        ctx: CTX,
        tokens_per_step: 16,
        pages: 16,
        page_len: 16,
        vocab: tokenizer.size() as u32,
        logprobs: 0,
    };
    let engine = ScriptedEngine::new(limits, vec![end], Box::new(|_| vec![]));
    let scheduler = Scheduler::start(Box::new(engine), SchedulerOptions::default());
    let model = opened.serve(NAME.to_owned(), scheduler);

    let accepts = |gbnf: &str, text: &str| {
        let body = conversation(json!({"grammar": gbnf}));
        let body = Body::parse(body.to_string().as_bytes()).expect("an object");
        let call = openai::chat_call(&body, "r", 0).expect("the grammar is translated");
        let format: GrammarText = call.reply.format.expect("a grammar");
        let grammar = model
            .grammars
            .compile(&format)
            .expect("the grammar compiles");
        let mut matcher = grammar.matcher();
        let tokens = tokenizer.encode_rest(text).expect("a text");
        let taken = tokens.into_iter().all(|token| matcher.take(token).is_ok());
        taken && matcher.is_complete()
    };
    for (gbnf, text, expected) in [
        ("root ::= \"a\"{5,5}", "aaaaa", true),
        ("root ::= \"a\"{5,5}", "aaaa", false),
        // The longest lexeme would take the x away from the string.
        ("root ::= [a-z]* \"x\"", "abcx", true),
        ("root ::= [a-z]* \"x\"", "abc", false),
        // A string and a class begin with the same character.
        ("root ::= \"ab\" | [a-z] \"c\" | [a-z] \"bd\"", "ac", true),
        ("root ::= \"ab\" | [a-z] \"c\" | [a-z] \"bd\"", "abd", true),
        ("root ::= \"\" | \"b\"", "b", true),
        ("root ::= .* \"z\"", "é/\n z", true),
        ("root ::= [^\"\\\\] (\"/\" | \"\\\"\")", "a/", true),
        (
            "root ::= \"{\" pair (\",\" pair)* \"}\"\npair ::= [a-z]+ \":\" (\"1\" | \"2\")?",
            "{a:1,bc:}",
            true,
        ),
    ] {
        assert_eq!(accepts(gbnf, text), expected, "{gbnf} of {text:?}");
    }
}
#[tokio::test]
async fn a_format_is_compiled_before_the_reply_starts() {
    let app = replying("\"42\"");
    for format in [
        json!({"response_format": {"type": "json_object", "schema": {"const": "42"}}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "42"}}}}),
        json!({"json_schema": {"const": "42"}}),
        json!({"regex": "\"[0-9]+\""}),
        json!({"grammar": "start: \"\\\"42\\\"\""}),
        json!({"guided_choice": ["\"42\"", "other"]}),
    ] {
        let answer = post(&app, "/v1/chat/completions", &conversation(format.clone())).await;
        assert_eq!(answer.status, 200, "{format}: {}", answer.body);
        let content = answer.json()["choices"][0]["message"]["content"].clone();
        assert_eq!(content, "\"42\"", "{format}");
    }

    for format in [
        json!({"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}}),
        json!({"response_format": {"type": "json_object", "schema": {"type": 123}}}),
        json!({"json_schema": "{"}),
        json!({"regex": "["}),
        json!({"grammar": "start: unknown"}),
    ] {
        let answer = post(&app, "/v1/chat/completions", &conversation(format.clone())).await;
        assert_eq!(answer.status, 400, "{format}: {}", answer.body);
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
}
