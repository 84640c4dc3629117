//! Errors in the shape of llama.cpp's server.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::{ErrorKind, RequestError};

/// Returns the response for an error: `{"error": {"code", "message", "type"}}`.
pub fn error_response(error: &RequestError) -> Response {
    let code = error.kind.status();
    let body = error_object(error);
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(json!({ "error": body }))).into_response();
    if let ErrorKind::QueueFull { retry_after } = error.kind {
        let seconds = retry_after.as_secs_f64().ceil() as u64;
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}

/// Returns the object in the field `error`.
pub(super) fn error_object(error: &RequestError) -> Value {
    let mut body = json!({
        "code": error.kind.status(),
        "message": error.message,
        "type": error_type(error.kind),
    });
    if let Some(param) = &error.param {
        body["param"] = json!(param);
    }
    if let ErrorKind::ContextExceeded { prompt, ctx } = error.kind {
        body["n_prompt_tokens"] = json!(prompt);
        body["n_ctx"] = json!(ctx);
    }
    body
}

/// Returns the name of a kind of error in llama.cpp's server.
fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid | ErrorKind::Method | ErrorKind::TooLarge | ErrorKind::Timeout => {
            "invalid_request_error"
        }
        ErrorKind::ContextExceeded { .. } => "exceed_context_size_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::QueueFull { .. } => "rate_limit_error",
        ErrorKind::Internal => "server_error",
        ErrorKind::NotSupported => "not_supported_error",
        ErrorKind::Unavailable => "unavailable_error",
    }
}
