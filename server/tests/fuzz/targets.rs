//! The function that the fuzzer of requests calls, for `cargo fuzz`, for random inputs and for the
//! replay of seeds. A request of any bytes gets a response of its protocol, and never breaks the
//! server.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;
use warpwright_server::engine::{EngineLimits, ScriptedEngine};
use warpwright_server::http::router::router;
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::models::{Models, OpenedModel};
use warpwright_server::protocol;
use warpwright_server::scheduler::{Scheduler, SchedulerOptions};

/// The endpoints that read a body, each with the character that chooses it in an input.
pub(crate) const ENDPOINTS: [(u8, &str); 20] = [
    (b'a', "/v1/chat/completions"),
    (b'b', "/v1/completions"),
    (b'c', "/v1/responses"),
    (b'd', "/v1/messages"),
    (b'e', "/completion"),
    (b'f', "/v1/embeddings"),
    (b'g', "/embedding"),
    (b'h', "/tokenize"),
    (b'i', "/detokenize"),
    (b'j', "/apply-template"),
    (b'k', "/v1/messages/count_tokens"),
    (b'l', "/v1/responses/input_tokens"),
    (b'm', "/v1/chat/completions/input_tokens"),
    (b'n', "/infill"),
    (b'o', "/rerank"),
    (b'p', "/slots/0"),
    (b'q', "/v1/load_lora_adapter"),
    (b'r', "/v1/unload_lora_adapter"),
    (b's', "/props"),
    (b't', "/v1/rerank"),
];

/// A template that writes tools, calls and results.
const TEMPLATE: &str = "{%- for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}\
    {%- for message in messages %}<|{{ message.role }}|>\n{{ message.content or '' }}\
    {%- for call in message.tool_calls or [] %}<tool_call>\n{{ {'name': call.function.name, \
    'arguments': call.function.arguments} | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}\
    {%- if add_generation_prompt %}<|assistant|>\n{% endif %}";

/// A server in this thread.
struct Server {
    runtime: Runtime,
    app: Router,
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

impl Server {
    /// Starts a server with a scripted engine, whose replies have text, a thought and a call.
    fn start() -> Server {
        // The package of the fuzzer is in a folder of this one.
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let parent = package.parent().filter(|_| package.ends_with("fuzz"));
        let model = "../assets/rustdoc-7m-Q4_K_M.gguf";
        let model = parent.unwrap_or(package).join(model);
        let mut opened = OpenedModel::open(&model).expect("the small model opens");
        opened
            .set_template(Path::new("fuzz"), TEMPLATE)
            .expect("the template compiles");
        let end = opened.model.outline.stop.clone();
        let reply =
            "<think>a</think>b <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
        let mut tokens = opened.tokenizer.encode_rest(reply).expect("it is text");
        tokens.extend(end.first());
        let limits = EngineLimits {
            sequences: 4,
            ctx: 512,
            tokens_per_step: 256,
            pages: 128,
            page_len: 16,
            vocab: opened.tokenizer.size() as u32,
            logprobs: 20,
        };
        let engine = ScriptedEngine::new(limits, end, Box::new(move |_| tokens.clone()));
        let scheduler = Scheduler::start(Box::new(engine), SchedulerOptions::default());
        let state = AppState {
            models: Arc::new(Models::single(Arc::new(
                opened.serve("fuzz".to_owned(), scheduler),
            ))),
            limits: Arc::new(HttpLimits::default()),
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        Server {
            runtime: runtime.expect("a runtime starts"),
            app: router(&state, protocol::surfaces()),
        }
    }

    /// Sends a body and checks the response.
    fn send(&self, path: &str, body: &[u8]) {
        let request = Request::post(path)
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .body(Body::from(body.to_vec()))
            .expect("the request is valid");
        let response = self.runtime.block_on(async {
            let response = self.app.clone().oneshot(request).await;
            let (parts, body) = response.expect("infallible").into_parts();
            let body = body.collect().await.expect("the body arrives").to_bytes();
            (parts, body)
        });
        let (parts, answer) = response;
        let status = parts.status.as_u16();
        let text = String::from_utf8(answer.to_vec()).expect("the answer is UTF-8");
        let expected = [200, 400, 403, 404, 405, 501];
        assert!(expected.contains(&status), "{path}: {status}: {text}");
        let kind = parts.headers.get("content-type");
        let kind = kind.map_or("", |kind| kind.to_str().unwrap_or_default());
        if kind.starts_with("text/event-stream") {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            for data in data.filter(|data| *data != "[DONE]") {
                let event = serde_json::from_str::<Value>(data);
                assert!(event.is_ok(), "{path}: the event {data:?} is not JSON");
            }
            assert_eq!(status, 200, "{path}: {text}");
            return;
        }
        let json = serde_json::from_str::<Value>(&text);
        let json = json.unwrap_or_else(|error| panic!("{path}: {error} in {text:?}"));
        if status != 200 {
            let message = &json["error"]["message"];
            assert!(message.is_string(), "{path}: no message in {text}");
        }
    }
}

/// Sends a request: the first byte chooses the endpoint, and the others are the body.
pub(crate) fn request(data: &[u8]) {
    let [endpoint, body @ ..] = data else {
        return;
    };
    let known = ENDPOINTS.iter().find(|(byte, _)| byte == endpoint);
    let (_, path) = known.unwrap_or(&ENDPOINTS[usize::from(*endpoint) % ENDPOINTS.len()]);
    SERVER.with_borrow_mut(|server| server.get_or_insert_with(Server::start).send(path, body));
}
