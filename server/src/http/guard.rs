//! The checks that a request passes before the handler of a protocol runs.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::identity::RequestInfo;
use super::keys;
use super::origin;
use super::state::{AppState, HttpLimits};
use super::surface::WriteError;
use crate::error::{ErrorKind, RequestError};

/// The paths that need no key: load balancers and the page that asks for the key use them.
const OPEN_PATHS: &[&str] = &[
    "/",
    "/status",
    "/health",
    "/v1/health",
    "/models",
    "/v1/models",
];

/// Checks the key of a request and reads its body, then calls the handler.
pub(super) async fn guard(
    state: AppState,
    error: WriteError,
    request: Request,
    next: Next,
) -> Response {
    match checked(&state.limits, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => error(&refusal),
    }
}

/// Returns the request with its salt and its complete body.
async fn checked(limits: &HttpLimits, request: Request) -> Result<Request, RequestError> {
    let (mut parts, body) = request.into_parts();
    origin::check(&limits.hosts, &limits.origins, &parts.headers, &parts.uri)?;
    let path = parts.extensions.get::<MatchedPath>();
    let salt = match path {
        // A client that sends a key expects to hear whether it is right.
        Some(path) if OPEN_PATHS.contains(&path.as_str()) && !keys::has_key(&parts.headers) => 0,
        Some(_) | None => limits.keys.salt(&parts.headers)?,
    };
    if let Some(info) = parts.extensions.get_mut::<RequestInfo>() {
        info.salt = salt;
    }

    let body = read(limits, body).await?;
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Reads a body.
async fn read(limits: &HttpLimits, body: Body) -> Result<Bytes, RequestError> {
    // A client that announces too long a body is told before it sends it.
    let announced = body.size_hint().lower();
    if announced > limits.body as u64 {
        return Err(too_large(limits.body, Some(announced)));
    }
    let reading = Limited::new(body, limits.body).collect();
    match tokio::time::timeout(limits.arrival, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limits.body, None)),
        Ok(Err(error)) => Err(RequestError::new(
            ErrorKind::Invalid,
            format!("the body did not arrive completely: {error}"),
        )),
        Err(_) => Err(late(limits.arrival)),
    }
}

fn too_large(limit: usize, length: Option<u64>) -> RequestError {
    let length = length.map_or("more".to_owned(), |length| format!("{length}"));
    RequestError::new(
        ErrorKind::TooLarge,
        format!("the body has {length} bytes, and the limit is {limit} bytes (--body-limit)"),
    )
}

fn late(limit: Duration) -> RequestError {
    RequestError::new(
        ErrorKind::Timeout,
        format!(
            "the body did not arrive within {} s (--timeout)",
            limit.as_secs()
        ),
    )
}
