//! Errors in the shape of the Messages API.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ErrorKind, RequestError};

/// An error: `{"type": "error", "error": {"type", "message"}, "request_id"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorObject {
    /// `error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The error.
    pub error: ErrorDetails,
    /// The id of the request, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The type of an error and its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorDetails {
    /// The type, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// A sentence.
    pub message: String,
    /// The number of tokens of a prompt that is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_prompt_tokens: Option<u32>,
    /// The number of positions of the context, if a prompt is too long for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_ctx: Option<u32>,
}

impl ErrorObject {
    /// Returns an error in the shape of the Messages API.
    pub fn new(error: &RequestError, request_id: Option<&str>) -> ErrorObject {
        let mut details = ErrorDetails {
            kind: error_type(error.kind),
            message: error.message.clone(),
            n_prompt_tokens: None,
            n_ctx: None,
        };
        if let ErrorKind::ContextExceeded { prompt, ctx } = error.kind {
            // Claude Code searches for these words and for both numbers, and then compacts the
            // conversation.
            details.message = format!("prompt is too long: {prompt} tokens > {ctx} maximum");
            details.n_prompt_tokens = Some(prompt);
            details.n_ctx = Some(ctx);
        }
        ErrorObject {
            kind: "error",
            error: details,
            request_id: request_id.map(str::to_owned),
        }
    }
}

/// Returns the response for an error that was found before a handler ran.
pub fn error_response(error: &RequestError) -> Response {
    response_for(error, None)
}

/// Returns the response for an error of the request with this id.
pub fn response_for(error: &RequestError, request_id: Option<&str>) -> Response {
    let code = error.kind.status();
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(ErrorObject::new(error, request_id))).into_response();
    if let ErrorKind::QueueFull { retry_after } = error.kind {
        let seconds = retry_after.as_secs_f64().ceil() as u64;
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}

/// Returns the name of a kind of error in the Messages API.
fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid
        | ErrorKind::ContextExceeded { .. }
        | ErrorKind::Method
        | ErrorKind::NotSupported => "invalid_request_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::Forbidden => "permission_error",
        ErrorKind::NotFound => "not_found_error",
        ErrorKind::Timeout => "timeout_error",
        ErrorKind::TooLarge => "request_too_large",
        ErrorKind::QueueFull { .. } => "rate_limit_error",
        ErrorKind::Internal => "api_error",
        ErrorKind::Unavailable => "overloaded_error",
    }
}
