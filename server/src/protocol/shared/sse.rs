//! Server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use serde::Serialize;

/// The time without an event after which a comment is sent. Proxies close connections that are
/// silent for 30 to 60 seconds, which a long prompt or queue can exceed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The name of the event, if the protocol has names.
    pub name: Option<&'static str>,
    /// The data, without line breaks.
    pub data: String,
}

impl SseEvent {
    /// Returns an event without a name, with data in JSON.
    pub fn json(data: &impl Serialize) -> SseEvent {
        SseEvent {
            name: None,
            data: to_json(data),
        }
    }

    /// Returns an event with a name, with data in JSON.
    pub fn named(name: &'static str, data: &impl Serialize) -> SseEvent {
        SseEvent {
            name: Some(name),
            data: to_json(data),
        }
    }

    /// Returns an event without a name, with a text that is not JSON, such as `[DONE]`.
    pub fn text(data: &str) -> SseEvent {
        SseEvent {
            name: None,
            data: data.to_owned(),
        }
    }
}

fn to_json(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("events have only string keys and serialize without errors")
}

/// Returns a response that sends events as they come, and a comment after each 15 seconds without
/// an event.
pub fn sse_response(events: impl Stream<Item = SseEvent> + Send + 'static) -> Response {
    response_with(events, KEEP_ALIVE)
}

fn response_with(
    events: impl Stream<Item = SseEvent> + Send + 'static,
    interval: Duration,
) -> Response {
    let events = events.map(|event| {
        // The name comes first, because simple parsers dispatch at the line of the data.
        let written = match event.name {
            Some(name) => Event::default().event(name),
            None => Event::default(),
        };
        Ok::<_, Infallible>(written.data(event.data))
    });
    let keep_alive = KeepAlive::new().interval(interval).text("ping");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();

    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx otherwise collects events in its buffer.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    async fn written(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn events_have_their_names_and_data() {
        let response = sse_response(stream::iter([
            SseEvent::json(&serde_json::json!({"text": "a\nb"})),
            SseEvent::named("ping", &serde_json::json!({})),
            SseEvent::text("[DONE]"),
        ]));
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        assert_eq!(
            written(response).await,
            "data: {\"text\":\"a\\nb\"}\n\nevent: ping\ndata: {}\n\ndata: [DONE]\n\n"
        );
    }

    #[tokio::test]
    async fn a_comment_is_sent_while_there_is_no_event() {
        let late = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            SseEvent::text("late")
        };
        let response = response_with(stream::once(late), Duration::from_millis(20));
        let text = written(response).await;
        assert!(text.starts_with(": ping\n\n"), "{text}");
        assert!(text.ends_with("\n\ndata: late\n\n"), "{text}");
    }
}
