//! `GET /health`: whether the server can answer.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::error::error_response;
use crate::http::state::AppState;

/// Reports whether the server can answer requests.
#[utoipa::path(
    get,
    path = "/health",
    responses(
        (status = 200, description = "The server answers requests"),
        (status = 500, description = "The device has failed"),
        (status = 503, description = "The model is being loaded"),
    )
)]
pub(super) async fn health(State(state): State<AppState>) -> Response {
    match state.models.health() {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        Err(error) => error_response(&error),
    }
}
