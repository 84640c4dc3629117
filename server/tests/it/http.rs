//! Tests of the HTTP layer: ids, keys, limits, origins, and errors before a handler runs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use axum::routing::get as get_route;
use futures_util::stream;
use serde_json::json;
use warpwright_server::engine::scripted::PlannedFailure;
use warpwright_server::http::keys::ApiKeys;
use warpwright_server::http::origin::{AllowedHosts, AllowedOrigins};
use warpwright_server::http::router::router;
use warpwright_server::http::state::{AppState, HttpLimits};
use warpwright_server::models::Models;
use warpwright_server::protocol;
use warpwright_server::scheduler::SchedulerOptions;

use crate::harness::{
    app, app_with, get, limits, post, replying, request, send, served, served_with,
};

fn limited(change: impl FnOnce(&mut HttpLimits)) -> axum::Router {
    let mut limits = HttpLimits::default();
    change(&mut limits);
    app_with(served(Box::new(replying("yes"))), limits)
}

fn with_header(method: Method, path: &str, name: &str, value: &str) -> Request<Body> {
    let mut request = request(method, path, Body::from("{\"content\": \"a\"}"));
    let value = value.parse().expect("a value");
    let name: axum::http::HeaderName = name.parse().expect("a name");
    request.headers_mut().insert(name, value);
    request
}

#[tokio::test]
async fn every_response_has_an_id() {
    let app = app(served(Box::new(replying("yes"))));
    for path in ["/health", "/nothing", "/infill"] {
        let made = get(&app, path).await;
        assert!(made.header("x-request-id").starts_with("req_"), "{made:?}");
    }
    let chosen = with_header(Method::GET, "/health", "x-request-id", "mine-5");
    assert_eq!(send(&app, chosen).await.header("x-request-id"), "mine-5");
    let forged = with_header(Method::GET, "/health", "x-request-id", "a b");
    assert_ne!(send(&app, forged).await.header("x-request-id"), "a b");
}

#[tokio::test]
async fn keys_are_checked_in_both_headers() {
    let app = limited(|limits| limits.keys = ApiKeys::new(["secret"]));
    let missing = post(&app, "/tokenize", &json!({"content": "a"})).await;
    assert_eq!(missing.status, StatusCode::UNAUTHORIZED);
    assert_eq!(missing.json()["error"]["type"], "authentication_error");
    for (name, value, status) in [
        ("authorization", "Bearer secret", 200),
        ("x-api-key", "secret", 200),
        ("authorization", "Bearer wrong", 401),
        ("x-api-key", "wrong", 401),
    ] {
        let answer = send(&app, with_header(Method::POST, "/tokenize", name, value)).await;
        assert_eq!(answer.status, status, "{name}: {value}");
    }
    for path in ["/", "/status", "/health", "/v1/health"] {
        assert_eq!(get(&app, path).await.status, 200, "{path}");
        let wrong = with_header(Method::GET, path, "x-api-key", "wrong");
        assert_eq!(send(&app, wrong).await.status, 401, "{path}");
    }
    for path in ["/metrics", "/props", "/slots"] {
        assert_eq!(get(&app, path).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused() {
    let app = limited(|limits| limits.body = 100);
    let long = post(&app, "/tokenize", &json!({"content": "a".repeat(100)})).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        long.json()["error"]["message"],
        "the body has 114 bytes, and the limit is 100 bytes (--body-limit)"
    );

    // The length is not known before the end.
    let parts = (0..50).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"aaaaaaaaaa")));
    let endless = request(
        Method::POST,
        "/tokenize",
        Body::from_stream(stream::iter(parts)),
    );
    assert_eq!(
        send(&app, endless).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );

    let short = post(&app, "/tokenize", &json!({"content": "a".repeat(80)})).await;
    assert_eq!(short.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_refused() {
    let app = limited(|limits| limits.arrival = Duration::from_millis(50));
    let never = stream::pending::<Result<Bytes, std::io::Error>>();
    let late = send(
        &app,
        request(Method::POST, "/tokenize", Body::from_stream(never)),
    )
    .await;
    assert_eq!(late.status, StatusCode::REQUEST_TIMEOUT);
    assert!(late.body.contains("--timeout"), "{}", late.body);

    let broken = stream::iter([
        Ok(Bytes::from_static(b"{\"content\"")),
        Err(std::io::Error::other("reset")),
    ]);
    let broken = send(
        &app,
        request(Method::POST, "/tokenize", Body::from_stream(broken)),
    )
    .await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_unknown_path_names_a_similar_one() {
    let app = app(served(Box::new(replying("yes"))));
    let answer = post(&app, "/tokenise?x=1", &json!({})).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("did you mean /tokenize?"), "{message}");

    let answer = get(&app, &format!("/{}", "x".repeat(5000))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.body.len() < 500, "{}", answer.body);
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let app = app(served(Box::new(replying("yes"))));
    for (method, path, allowed) in [
        (Method::GET, "/completion", "POST"),
        (Method::DELETE, "/completion", "POST"),
        (Method::POST, "/health", "GET,HEAD"),
        (Method::PUT, "/props", "GET,HEAD,POST"),
    ] {
        let answer = send(&app, request(method.clone(), path, Body::empty())).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(answer.header("allow"), allowed, "{path}");
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        let message = error["message"].to_string();
        assert!(message.contains(method.as_str()), "{message}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_without_keys() {
    let open = app(served(Box::new(replying("yes"))));
    let from = |origin: &str| with_header(Method::POST, "/tokenize", "origin", origin);
    for origin in ["https://example.org", "null"] {
        let answer = send(&open, from(origin)).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), "");
    }
    let local = send(&open, from("http://localhost:3000")).await;
    assert_eq!(local.status, StatusCode::OK);
    assert_eq!(
        local.header("access-control-allow-origin"),
        "http://localhost:3000"
    );
    // The server's own page.
    let own = send(&open, from("http://127.0.0.1:8080")).await;
    assert_eq!(own.status, StatusCode::OK);

    let keyed = limited(|limits| {
        limits.keys = ApiKeys::new(["secret"]);
        limits.origins = AllowedOrigins::Any;
        limits.hosts = AllowedHosts::Any;
    });
    let answer = send(&keyed, from("https://example.org")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    // The page can read why.
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://example.org"
    );
}

#[tokio::test]
async fn preflight_requests_are_answered_for_allowed_pages() {
    let app = app(served(Box::new(replying("yes"))));
    let preflight = |origin: &str| {
        let mut request = with_header(Method::OPTIONS, "/completion", "origin", origin);
        let headers = request.headers_mut();
        headers.insert("access-control-request-method", "POST".parse().unwrap());
        let names = "authorization,content-type".parse().unwrap();
        headers.insert("access-control-request-headers", names);
        request
    };
    let answer = send(&app, preflight("http://localhost:3000")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("access-control-allow-methods"), "GET, POST");
    assert_eq!(
        answer.header("access-control-allow-headers"),
        "authorization,content-type"
    );
    assert_eq!(answer.header("access-control-allow-credentials"), "");

    let refused = send(&app, preflight("https://example.org")).await;
    assert_ne!(refused.status, StatusCode::OK);
    assert_eq!(refused.header("access-control-allow-origin"), "");
}

#[tokio::test]
async fn a_rebound_host_name_is_refused() {
    let app = app(served(Box::new(replying("yes"))));
    let to = |host: &str| with_header(Method::POST, "/tokenize", "host", host);
    let answer = send(&app, to("example.org:8080")).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.body.contains("--allow-host"), "{}", answer.body);
    for host in ["localhost:8080", "[::1]:8080", "127.0.0.1"] {
        assert_eq!(send(&app, to(host)).await.status, StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn bad_json_is_named_with_its_place() {
    let app = app(served(Box::new(replying("yes"))));
    for body in ["", "{", "[]", "{\"content\": }", "\u{0}"] {
        let answer = send(&app, request(Method::POST, "/completion", Body::from(body))).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body:?}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn a_panic_of_a_handler_is_an_error_in_the_shape_of_the_protocol() {
    async fn panics() {
        panic!("secret details");
    }
    let mut surface = protocol::native::surface();
    surface.routes = surface.routes.route("/panic", get_route(panics));
    let state = AppState {
        models: Arc::new(Models::single(served(Box::new(replying("yes"))))),
        limits: Arc::new(HttpLimits::default()),
    };
    let app = router(&state, vec![surface]);
    let answer = get(&app, "/panic").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.json()["error"]["type"], "server_error");
    assert!(!answer.body.contains("secret"), "{}", answer.body);
    assert_eq!(get(&app, "/health").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_lost_device_turns_health_red() {
    let engine = replying("yes").with_failure(PlannedFailure::LostAfter(0));
    let app = app(served(Box::new(engine)));
    assert_eq!(get(&app, "/health").await.status, StatusCode::OK);
    let answer = post(&app, "/completion", &json!({"prompt": "a"})).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.json()["error"]["type"], "server_error");
    let health = get(&app, "/health").await;
    assert_eq!(health.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(health.body.contains("the device has failed"), "{health:?}");
}

#[tokio::test]
async fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let app = app(served(Box::new(replying("yes"))));
    let prompt = vec![5; 600];
    let answer = post(&app, "/completion", &json!({"prompt": prompt})).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "exceed_context_size_error");
    assert_eq!(error["n_prompt_tokens"], 600);
    assert_eq!(error["n_ctx"], limits().ctx);
}

#[tokio::test]
async fn a_full_queue_asks_to_retry_later() {
    let engine =
        replying(&"word ".repeat(200)).with_delays(Duration::from_millis(5), Duration::ZERO);
    let options = SchedulerOptions {
        queue: 1,
        steps_per_launch: 1,
        ..SchedulerOptions::default()
    };
    let app = app(served_with(Box::new(engine), options));
    // Four slots and one place in the queue.
    let requests = (0..8).map(|_| {
        let app = app.clone();
        tokio::spawn(async move {
            let body = json!({"prompt": "a", "n_predict": 100});
            post(&app, "/completion", &body).await
        })
    });
    let mut refused = 0;
    for answer in requests.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
            let seconds: u64 = answer.header("retry-after").parse().unwrap();
            assert!(seconds >= 1);
            assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
        } else {
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        }
    }
    assert_eq!(refused, 3);
}

#[tokio::test]
async fn metrics_and_docs_list_what_there_is() {
    let app = app(served(Box::new(replying("yes"))));
    let answer = post(&app, "/completion", &json!({"prompt": "a"})).await;
    assert_eq!(answer.status, StatusCode::OK);
    let metrics = get(&app, "/metrics").await;
    for name in [
        "warpwright_http_responses_total{",
        "warpwright_http_response_seconds_bucket{",
        "warpwright_generated_tokens_total",
        "llamacpp:requests_processing",
        "warpwright_pages{",
    ] {
        assert!(metrics.body.contains(name), "{name}: {}", metrics.body);
    }
    // A path that a client has made up is not a label.
    get(&app, "/made-up-path").await;
    let metrics = get(&app, "/metrics").await;
    assert!(!metrics.body.contains("made-up-path"));

    let docs = get(&app, "/openapi.json").await.json();
    for path in ["/completion", "/tokenize", "/health", "/props"] {
        assert!(docs["paths"][path].is_object(), "{path}");
    }
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let app = app(served(Box::new(replying("yes"))));
    for path in ["/", "/status", "/?a=b"] {
        let page = get(&app, path).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.to_lowercase().starts_with("<!doctype html>"));
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
    }
}
