//! A server in the process of the test: requests are handed to its router without a connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use warpwright_driver::{Context, Driver};
use warpwright_model::Model;
use warpwright_server::engine::{Engine, EngineLimits, ScriptedEngine};
use warpwright_server::http::router::router;
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::models::{Models, OpenedModel, ServedModel};
use warpwright_server::protocol;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

/// The small model of the repository. Its tokenizer is a byte-pair encoding with 4,096 tokens, of
/// which `<|endoftext|>` begins and ends texts. It has no chat template.
pub(crate) fn asset() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf")
}

/// The name of the model that [`served`] returns.
pub(crate) const NAME: &str = "rustdoc-7m";

/// Opens the small model.
pub(crate) fn small_model() -> Model {
    Model::open(&asset()).expect("the small model opens")
}

/// Returns a context of the emulator.
pub(crate) fn emulator() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).expect("the emulator starts");
    Context::new(&driver.devices().expect("it has devices")[0]).expect("a context is created")
}

/// Returns the small model, with this engine in place of its weights.
pub(crate) fn served(engine: Box<dyn Engine>) -> Arc<ServedModel> {
    served_with(engine, SchedulerOptions::default())
}

/// Returns the small model, with this engine and these options of the scheduler.
pub(crate) fn served_with(engine: Box<dyn Engine>, options: SchedulerOptions) -> Arc<ServedModel> {
    let opened = OpenedModel::open(&asset()).expect("the small model opens");
    Arc::new(opened.serve(NAME.to_owned(), Scheduler::start(engine, options)))
}

/// Returns an engine for the small model that answers every prompt with this text, in a context of
/// 512 positions.
pub(crate) fn replying(reply: &str) -> ScriptedEngine {
    let opened = OpenedModel::open(&asset()).expect("the small model opens");
    let end = opened.model.outline.stop.clone();
    let mut tokens = opened
        .tokenizer
        .encode_rest(reply)
        .expect("the reply has tokens");
    tokens.extend(end.first());
    ScriptedEngine::new(limits(), end, Box::new(move |_| tokens.clone()))
}

/// The sizes of the engine of [`replying`].
pub(crate) fn limits() -> EngineLimits {
    EngineLimits {
        sequences: 4,
        ctx: 512,
        tokens_per_step: 256,
        pages: 128,
        page_len: 16,
        vocab: 4096,
        logprobs: 20,
    }
}

/// Returns an application with all protocols, which serves this model.
pub(crate) fn app(model: Arc<ServedModel>) -> Router {
    app_with(model, HttpLimits::default())
}

/// Returns an application with all protocols, which serves this model within these limits.
pub(crate) fn app_with(model: Arc<ServedModel>, limits: HttpLimits) -> Router {
    let state = AppState {
        models: Arc::new(Models::single(model)),
        limits: Arc::new(limits),
    };
    router(&state, protocol::surfaces())
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the body {:?}", self.body))
    }

    /// Returns the value of a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("the header is ASCII"))
    }

    /// Returns the server-sent events of a stream, each as the name of its `event:` line, or an
    /// empty text, and its data. Comments are left out.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let blocks = self.body.split("\n\n");
        let fields = blocks.map(|block| {
            let mut event = String::new();
            let mut data = vec![];
            for line in block.lines() {
                match line.split_once(':') {
                    Some(("event", value)) => event = value.trim().to_owned(),
                    Some(("data", value)) => data.push(value.trim_start()),
                    _ => {}
                }
            }
            (event, data.join("\n"))
        });
        fields.filter(|(_, data)| !data.is_empty()).collect()
    }
}

/// Sends a request and reads the whole response. The application stays usable.
pub(crate) async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("the body arrives").to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).expect("the body is UTF-8"),
    }
}

/// Sends a GET request.
pub(crate) async fn get(app: &Router, path: &str) -> Answer {
    send(app, request(Method::GET, path, Body::empty())).await
}

/// Sends a POST request with a JSON body.
pub(crate) async fn post(app: &Router, path: &str, body: &Value) -> Answer {
    send(
        app,
        request(Method::POST, path, Body::from(body.to_string())),
    )
    .await
}

/// Returns a request with the content type of JSON.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:8080")
        .header("content-type", "application/json")
        .body(body)
        .expect("the request is valid")
}
