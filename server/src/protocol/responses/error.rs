//! Errors in the shape of the Responses API, which is that of OpenAI's other endpoints.

use axum::Json;
use axum::response::{IntoResponse, Response};

use crate::error::RequestError;
use crate::protocol::openai::{self, ErrorBody};

/// Returns the response to a request that failed.
pub fn error_response(error: &RequestError) -> Response {
    let mut response = openai::error_response(error);
    let body = Json(error_fields(error)).into_response();
    *response.body_mut() = body.into_body();
    response
}

/// Returns the body of an error.
pub(super) fn error_fields(error: &RequestError) -> ErrorBody {
    let mut body = openai::error_body(error);
    let param = error.param.as_deref().unwrap_or_default();
    // Codex repeats a request without its images after an error with this code and such a field.
    if param.ends_with(".image_url") {
        body.error.code = Some("invalid_value");
    }
    body
}
