//! The log: a line for each response, and for each body that is streamed to its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, Span, info, info_span};

use super::identity::RequestInfo;
use super::metrics;

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Writes the log to stderr from now on. A second call changes nothing.
pub fn install(form: LogForm) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // A log that is already installed, for example by another test, is as good.
    let _ = match form {
        LogForm::Text => builder.with_ansi(false).with_target(false).try_init(),
        LogForm::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Handles a request inside a span with its id, and writes a line and the metrics of the response.
pub(super) async fn logged(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let info = request.extensions().get::<RequestInfo>();
    let id = info.map(|info| info.id.clone()).unwrap_or_default();
    let method = request.method().clone();
    // The pattern of the path is written, because the path itself could have any text.
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("unknown", MatchedPath::as_str).to_owned();
    let span = info_span!("request", id);
    let response = next.run(request).instrument(span.clone()).await;

    let status = response.status().as_u16();
    let line = ResponseLine {
        span,
        method: method.to_string(),
        route,
        status,
        start,
        first: start.elapsed().as_secs_f64(),
        bytes: 0,
        complete: false,
    };
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::new(LoggedBody { body, line }))
}

/// The facts of the line about a response. It is written when the body is dropped.
struct ResponseLine {
    span: Span,
    method: String,
    route: String,
    status: u16,
    start: Instant,
    /// The time until the first byte of the response, in seconds.
    first: f64,
    bytes: u64,
    /// True if the whole body was handed to the connection.
    complete: bool,
}

impl Drop for ResponseLine {
    fn drop(&mut self) {
        let seconds = self.start.elapsed().as_secs_f64();
        let ResponseLine {
            method,
            route,
            status,
            first,
            bytes,
            complete,
            ..
        } = self;
        metrics::response(method, route, *status, seconds);
        self.span.in_scope(|| {
            info!(
                method = &**method,
                route = &**route,
                status,
                first,
                seconds,
                bytes,
                complete,
                "response"
            );
        });
    }
}

/// A body that counts its bytes.
struct LoggedBody {
    body: Body,
    line: ResponseLine,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.line.bytes += bytes as u64;
            }
            Poll::Ready(None) => self.line.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        // A body of known length is not polled again after its last frame.
        if self.body.is_end_stream() {
            self.line.complete = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
