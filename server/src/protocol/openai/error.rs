//! Errors in the shape of OpenAI's protocol.

use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ErrorKind, RequestError};

/// The body of a response to a request that failed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorFields,
}

/// The fields of an error.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorFields {
    /// A sentence about the error.
    pub message: String,
    /// The type, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The code, such as `context_length_exceeded`, which clients test.
    pub code: Option<&'static str>,
    /// The path of the field that is wrong.
    pub param: Option<String>,
    /// The number of tokens of a prompt that is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_prompt_tokens: Option<u32>,
    /// The number of positions of the context, if a prompt is too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_ctx: Option<u32>,
}

/// The type and code of a kind of errors.
struct ErrorClass {
    kind: &'static str,
    code: Option<&'static str>,
}

fn class(kind: ErrorKind) -> ErrorClass {
    let (kind, code) = match kind {
        ErrorKind::Invalid => ("invalid_request_error", None),
        ErrorKind::ContextExceeded { .. } => {
            ("exceed_context_size_error", Some("context_length_exceeded"))
        }
        ErrorKind::Unauthorized => ("authentication_error", Some("invalid_api_key")),
        ErrorKind::Forbidden => ("permission_error", None),
        ErrorKind::NotFound => ("not_found_error", Some("not_found")),
        ErrorKind::Method => ("invalid_request_error", Some("method_not_allowed")),
        ErrorKind::Timeout => ("invalid_request_error", Some("request_timeout")),
        ErrorKind::TooLarge => ("invalid_request_error", Some("request_too_large")),
        ErrorKind::QueueFull { .. } => ("rate_limit_error", Some("rate_limit_exceeded")),
        ErrorKind::Internal => ("server_error", None),
        ErrorKind::NotSupported => ("not_supported_error", None),
        ErrorKind::Unavailable => ("unavailable_error", None),
    };
    ErrorClass { kind, code }
}

/// Returns the body of an error. It is also the data of an event in a stream.
pub fn error_body(error: &RequestError) -> ErrorBody {
    let class = class(error.kind);
    let sizes = if let ErrorKind::ContextExceeded { prompt, ctx } = error.kind {
        Some((prompt, ctx))
    } else {
        None
    };
    ErrorBody {
        error: ErrorFields {
            message: error.message.clone(),
            kind: class.kind,
            code: class.code,
            param: error.param.clone(),
            n_prompt_tokens: sizes.map(|(prompt, _)| prompt),
            n_ctx: sizes.map(|(_, ctx)| ctx),
        },
    }
}

/// Returns the response to a request that failed.
pub fn error_response(error: &RequestError) -> Response {
    let status =
        StatusCode::from_u16(error.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(error_body(error))).into_response();
    if let ErrorKind::QueueFull { retry_after } = error.kind {
        // The header has whole seconds, and 0 would ask the client to try again at once.
        let seconds = retry_after.as_secs_f64().ceil().max(1.0) as u64;
        let value = HeaderValue::from(seconds);
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_has_its_status_and_type() {
        let retry_after = Duration::from_millis(1200);
        for (kind, status, name) in [
            (ErrorKind::Invalid, 400, "invalid_request_error"),
            (ErrorKind::Unauthorized, 401, "authentication_error"),
            (ErrorKind::Forbidden, 403, "permission_error"),
            (ErrorKind::NotFound, 404, "not_found_error"),
            (ErrorKind::Method, 405, "invalid_request_error"),
            (ErrorKind::Timeout, 408, "invalid_request_error"),
            (ErrorKind::TooLarge, 413, "invalid_request_error"),
            (
                ErrorKind::QueueFull { retry_after },
                429,
                "rate_limit_error",
            ),
            (ErrorKind::Internal, 500, "server_error"),
            (ErrorKind::NotSupported, 501, "not_supported_error"),
            (ErrorKind::Unavailable, 503, "unavailable_error"),
        ] {
            let error = RequestError::new(kind, "no");
            assert_eq!(error_response(&error).status(), status, "{kind:?}");
            assert_eq!(error_body(&error).error.kind, name);
        }

        let error = RequestError::new(ErrorKind::QueueFull { retry_after }, "full");
        assert_eq!(error_response(&error).headers()["retry-after"], "2");
    }

    #[test]
    fn a_prompt_that_is_too_long_has_both_numbers() {
        let kind = ErrorKind::ContextExceeded {
            prompt: 900,
            ctx: 256,
        };
        let body = serde_json::to_value(error_body(&RequestError::new(kind, "too long"))).unwrap();
        let expected = json!({"error": {
            "message": "too long", "type": "exceed_context_size_error",
            "code": "context_length_exceeded", "param": null,
            "n_prompt_tokens": 900, "n_ctx": 256,
        }});
        assert_eq!(body, expected);
    }

    #[test]
    fn other_errors_have_four_fields() {
        let error = RequestError::invalid("messages[0].role", "no role");
        let body = serde_json::to_value(error_body(&error)).unwrap();
        let expected = json!({"error": {
            "message": "no role", "type": "invalid_request_error", "code": null,
            "param": "messages[0].role",
        }});
        assert_eq!(body, expected);
    }
}
