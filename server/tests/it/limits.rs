//! Every limit and failure in the shape of every protocol, for whole and for streamed replies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use warpwright_server::engine::ScriptedEngine;
use warpwright_server::engine::scripted::PlannedFailure;
use warpwright_server::http::keys::ApiKeys;
use warpwright_server::http::router::router;
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::models::{
    LoadError, LoadProgress, ModelEntry, ModelLoader, Models, OpenedModel, RegistryOptions,
    ServedModel,
};
use warpwright_server::protocol;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

use crate::harness::{Answer, NAME, app_with, asset, get, limits, post, request, send};

/// A template that accepts every conversation.
const TEMPLATE: &str = "{% for message in messages %}[{{ message.role }}]{{ message.content }}\n\
    {% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// The endpoint of a protocol that generates text.
struct Endpoint {
    path: &'static str,
    /// Returns a request with this text as its prompt.
    body: fn(&str) -> Value,
    shape: ErrorShape,
}

/// The shape of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorShape {
    /// `{"error": {"message", "type", "code", "param"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
}

const ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        path: "/v1/chat/completions",
        body: |text| json!({"messages": [{"role": "user", "content": text}]}),
        shape: ErrorShape::OpenAi,
    },
    Endpoint {
        path: "/v1/completions",
        body: |text| json!({"prompt": text}),
        shape: ErrorShape::OpenAi,
    },
    Endpoint {
        path: "/v1/responses",
        body: |text| json!({"model": "any", "input": text}),
        shape: ErrorShape::OpenAi,
    },
    Endpoint {
        path: "/v1/messages",
        body: |text| {
            json!({"model": "any", "max_tokens": 20,
                "messages": [{"role": "user", "content": text}]})
        },
        shape: ErrorShape::Anthropic,
    },
];

/// The form in which a reply is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyForm {
    Whole,
    Streamed,
}

const FORMS: [ReplyForm; 2] = [ReplyForm::Whole, ReplyForm::Streamed];

impl Endpoint {
    fn request(&self, text: &str, form: ReplyForm) -> Value {
        let mut body = (self.body)(text);
        body["stream"] = json!(form == ReplyForm::Streamed);
        body
    }
}

/// An error as both shapes name it.
struct ExpectedError {
    status: u16,
    openai: &'static str,
    anthropic: &'static str,
}

/// Checks the status, the content type and the shape of an error, and returns its fields.
#[track_caller]
fn check(endpoint: &Endpoint, answer: &Answer, expected: &ExpectedError) -> Value {
    let path = endpoint.path;
    assert_eq!(answer.status, expected.status, "{path}: {answer:?}");
    assert_eq!(answer.header("content-type"), "application/json", "{path}");
    assert!(!answer.header("x-request-id").is_empty(), "{path}");
    let body = answer.json();
    let error = &body["error"];
    let message = error["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{path}: {body}");
    match endpoint.shape {
        ErrorShape::OpenAi => {
            assert_eq!(error["type"], expected.openai, "{path}: {body}");
            for field in ["code", "param"] {
                assert!(error.get(field).is_some(), "{path}: no {field} in {body}");
            }
        }
        ErrorShape::Anthropic => {
            assert_eq!(body["type"], "error", "{path}: {body}");
            assert_eq!(error["type"], expected.anthropic, "{path}: {body}");
        }
    }
    error.clone()
}

/// Serves the small model with this engine and the template.
fn serve(engine: ScriptedEngine, options: SchedulerOptions) -> Arc<ServedModel> {
    let mut opened = OpenedModel::open(&asset()).expect("the small model opens");
    opened
        .set_template(Path::new("test"), TEMPLATE)
        .expect("the template compiles");
    Arc::new(opened.serve(NAME.to_owned(), Scheduler::start(Box::new(engine), options)))
}

/// Returns an engine that answers with `tokens` tokens, in a context of 512 positions.
fn long_replies(tokens: usize) -> ScriptedEngine {
    let opened = OpenedModel::open(&asset()).expect("the small model opens");
    let word = opened
        .tokenizer
        .encode_rest(" word")
        .expect("it has tokens");
    let end = opened.model.outline.stop.clone();
    let reply: Vec<u32> = word.into_iter().cycle().take(tokens).collect();
    ScriptedEngine::new(limits(), end, Box::new(move |_| reply.clone()))
}

/// Returns an application that serves a usual engine within these limits.
fn limited(change: impl FnOnce(&mut HttpLimits)) -> Router {
    let mut limits = HttpLimits::default();
    change(&mut limits);
    app_with(serve(long_replies(5), SchedulerOptions::default()), limits)
}

/// Waits until the number of sequences in the engine is this one.
async fn wait_for_sequences(app: &Router, count: usize) {
    let start = Instant::now();
    loop {
        let slots = get(app, "/slots").await.json();
        let busy = slots.as_array().expect("a list").iter();
        let busy = busy.filter(|slot| slot["is_processing"] == true).count();
        if busy == count {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{busy} of {count}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_full_queue_is_a_429_with_retry_after() {
    // Replies of the running requests take 20 s, unless they are canceled.
    let engine = long_replies(400).with_delays(Duration::from_millis(50), Duration::ZERO);
    let options = SchedulerOptions {
        queue: 0,
        steps_per_launch: 1,
        ..SchedulerOptions::default()
    };
    let app = app_with(serve(engine, options), HttpLimits::default());
    let mut running = JoinSet::new();
    for _ in 0..limits().sequences {
        let app = app.clone();
        running.spawn(async move {
            let body = json!({"prompt": "a", "n_predict": 400});
            post(&app, "/completion", &body).await.status
        });
    }
    wait_for_sequences(&app, limits().sequences as usize).await;

    let expected = ExpectedError {
        status: 429,
        openai: "rate_limit_error",
        anthropic: "rate_limit_error",
    };
    for endpoint in &ENDPOINTS {
        for form in FORMS {
            let answer = post(&app, endpoint.path, &endpoint.request("Hi", form)).await;
            check(endpoint, &answer, &expected);
            let seconds = answer.header("retry-after").parse::<u64>();
            assert!(seconds.is_ok_and(|seconds| seconds >= 1), "{answer:?}");
        }
    }

    // The clients that leave make space, so each endpoint answers again.
    running.shutdown().await;
    wait_for_sequences(&app, 0).await;
    for endpoint in &ENDPOINTS {
        let mut body = endpoint.request("Hi", ReplyForm::Whole);
        let limit = if endpoint.path == "/v1/responses" {
            "max_output_tokens"
        } else {
            "max_tokens"
        };
        body[limit] = json!(1);
        let answer = post(&app, endpoint.path, &body).await;
        assert_eq!(answer.status, 200, "{}: {answer:?}", endpoint.path);
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_a_413_with_both_sizes() {
    let app = limited(|limits| limits.body = 1000);
    let expected = ExpectedError {
        status: 413,
        openai: "invalid_request_error",
        anthropic: "request_too_large",
    };
    for endpoint in &ENDPOINTS {
        let body = endpoint.request(&"a".repeat(1000), ReplyForm::Whole);
        let length = body.to_string().len();
        let error = check(endpoint, &post(&app, endpoint.path, &body).await, &expected);
        let wanted =
            format!("the body has {length} bytes, and the limit is 1000 bytes (--body-limit)");
        assert_eq!(error["message"], wanted);
        let short = endpoint.request("Hi", ReplyForm::Whole);
        let answer = post(&app, endpoint.path, &short).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// The default limit of axum, 2 MB, does not apply.
#[tokio::test]
async fn a_body_of_several_megabytes_is_read() {
    let app = limited(|_| ());
    for endpoint in &ENDPOINTS {
        let body = endpoint.request("Hi", ReplyForm::Whole).to_string();
        let body = Body::from(body + &" ".repeat(5 << 20));
        let answer = send(&app, request(Method::POST, endpoint.path, body)).await;
        assert_eq!(answer.status, 200, "{}: {answer:?}", endpoint.path);
    }
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_a_401() {
    let app = limited(|limits| limits.keys = ApiKeys::new(["secret"]));
    let expected = ExpectedError {
        status: 401,
        openai: "authentication_error",
        anthropic: "authentication_error",
    };
    for endpoint in &ENDPOINTS {
        let body = endpoint.request("Hi", ReplyForm::Whole);
        let with_key = |name: &'static str, value: &str| {
            let body = Body::from(body.to_string());
            let mut request = request(Method::POST, endpoint.path, body);
            let value = value.parse().expect("a value");
            request.headers_mut().insert(name, value);
            request
        };
        let missing = post(&app, endpoint.path, &body).await;
        let error = check(endpoint, &missing, &expected);
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with("the API key is missing"), "{message}");
        for (name, value) in [
            ("authorization", "Bearer wrong"),
            ("authorization", "secret"),
            ("x-api-key", "wrong"),
        ] {
            check(
                endpoint,
                &send(&app, with_key(name, value)).await,
                &expected,
            );
        }
        for (name, value) in [("authorization", "Bearer secret"), ("x-api-key", "secret")] {
            let answer = send(&app, with_key(name, value)).await;
            assert_eq!(answer.status, 200, "{name}: {answer:?}");
        }
    }
}

/// A loader for models that no request names.
struct NeverLoads;

impl ModelLoader for NeverLoads {
    fn load(&self, entry: &ModelEntry, _: &LoadProgress) -> Result<ServedModel, LoadError> {
        panic!("a request has named {}", entry.name)
    }
}

#[tokio::test]
async fn an_unknown_model_is_a_404_that_lists_the_models() {
    let entries = ["one", "two"].map(|name| ModelEntry {
        name: name.to_owned(),
        path: PathBuf::from(name),
        bytes: 1,
    });
    let options = RegistryOptions {
        loaded: None,
        grace: Duration::from_secs(1),
    };
    let models = Models::several(entries.into(), Arc::new(NeverLoads), options);
    let state = AppState {
        models: Arc::new(models),
        limits: Arc::new(HttpLimits::default()),
    };
    let app = router(&state, protocol::surfaces());
    let expected = ExpectedError {
        status: 404,
        openai: "not_found_error",
        anthropic: "not_found_error",
    };
    for endpoint in &ENDPOINTS {
        for form in FORMS {
            let mut body = endpoint.request("Hi", form);
            body["model"] = json!("three");
            let error = check(endpoint, &post(&app, endpoint.path, &body).await, &expected);
            let message = error["message"].as_str().expect("a message");
            for part in ["three", "one", "two"] {
                assert!(message.contains(part), "{part} in {message}");
            }
        }
    }
}

#[tokio::test]
async fn a_prompt_above_the_context_is_a_400_with_both_numbers() {
    let app = limited(|_| ());
    let ctx = limits().ctx;
    let expected = ExpectedError {
        status: 400,
        openai: "exceed_context_size_error",
        anthropic: "invalid_request_error",
    };
    let long = "word ".repeat(900);
    for endpoint in &ENDPOINTS {
        for form in FORMS {
            let answer = post(&app, endpoint.path, &endpoint.request(&long, form)).await;
            let error = check(endpoint, &answer, &expected);
            assert_eq!(error["n_ctx"], ctx, "{error}");
            let prompt = error["n_prompt_tokens"].as_u64().expect("a number");
            assert!(prompt > u64::from(ctx), "{error}");
            let message = error["message"].as_str().expect("a message");
            for number in [prompt.to_string(), ctx.to_string()] {
                assert!(message.contains(&number), "{number} in {message}");
            }
            if endpoint.shape == ErrorShape::OpenAi {
                assert_eq!(error["code"], "context_length_exceeded", "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_huge_prompt_is_refused_without_being_tokenized() {
    let app = limited(|_| ());
    let ctx = limits().ctx;
    let expected = ExpectedError {
        status: 400,
        openai: "exceed_context_size_error",
        anthropic: "invalid_request_error",
    };
    // The tokenizer takes 60 times as much memory as the text.
    let huge = "word \u{e9}".repeat(1 << 17);
    for endpoint in &ENDPOINTS {
        let answer = post(
            &app,
            endpoint.path,
            &endpoint.request(&huge, ReplyForm::Whole),
        )
        .await;
        let error = check(endpoint, &answer, &expected);
        assert_eq!(error["n_ctx"], ctx, "{error}");
        let prompt = error["n_prompt_tokens"].as_u64().expect("a number");
        assert!(prompt > 10 * u64::from(ctx), "{error}");
        let message = error["message"].as_str().expect("a message");
        let words = match endpoint.shape {
            ErrorShape::OpenAi => format!("has at least {prompt} tokens, exceeds the available"),
            // Claude Code looks for these words.
            ErrorShape::Anthropic => format!("prompt is too long: {prompt} tokens > {ctx} maximum"),
        };
        assert!(message.contains(&words), "{message}");
    }
    for (path, field) in [
        ("/v1/embeddings", "input"),
        ("/embedding", "content"),
        ("/completion", "prompt"),
    ] {
        let answer = post(&app, path, &json!({field: &huge})).await;
        assert_eq!(answer.status, 400, "{path}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "exceed_context_size_error", "{path}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("has at least "), "{path}: {message}");
    }
}

#[tokio::test]
async fn a_lost_device_is_a_500_and_turns_health_red() {
    let expected = ExpectedError {
        status: 500,
        openai: "server_error",
        anthropic: "api_error",
    };
    for endpoint in &ENDPOINTS {
        let engine = long_replies(5).with_failure(PlannedFailure::LostAfter(0));
        let app = app_with(
            serve(engine, SchedulerOptions::default()),
            HttpLimits::default(),
        );
        assert_eq!(get(&app, "/health").await.status, 200, "{}", endpoint.path);
        let whole = endpoint.request("Hi", ReplyForm::Whole);
        let answer = post(&app, endpoint.path, &whole).await;
        let error = check(endpoint, &answer, &expected);
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("the device has failed"), "{message}");
        let health = get(&app, "/health").await;
        assert_eq!(health.status, 500, "{}", endpoint.path);

        // Later requests are refused before a stream begins.
        for form in FORMS {
            let answer = post(&app, endpoint.path, &endpoint.request("Hi", form)).await;
            check(endpoint, &answer, &expected);
        }
    }
}
