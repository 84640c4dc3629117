//! The pages at `/` and `/status`, and the state that the status page reads.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::state::AppState;
use crate::page;

/// Returns the chat page.
pub(super) async fn chat() -> Response {
    page::chat()
}

/// Returns the status page.
pub(super) async fn status() -> Response {
    page::status()
}

/// Returns the state of the loaded models.
#[utoipa::path(
    get,
    path = "/status.json",
    responses((status = 200, description = "The state of the loaded models"))
)]
pub(super) async fn status_json(State(state): State<AppState>) -> Response {
    let models = state.models.loaded();
    let models: Vec<Value> = models.iter().map(|model| page::status_of(model)).collect();
    Json(json!({ "models": models })).into_response()
}
