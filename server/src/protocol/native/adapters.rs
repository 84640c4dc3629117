//! The endpoint `GET /lora-adapters` of llama.cpp.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::error_response;
use super::query::{AnyQuery, ModelQuery, queried_model};
use crate::http::state::AppState;

/// Lists the adapters. A request uses one if it names it in `model`, with the whole scale.
#[utoipa::path(
    get,
    path = "/lora-adapters",
    params(ModelQuery),
    responses((status = 200, description = "The adapters"))
)]
pub(super) async fn adapters(
    State(state): State<AppState>,
    query: AnyQuery<ModelQuery>,
) -> Response {
    let model = match queried_model(&state, query).await {
        Ok(model) => model,
        Err(error) => return error_response(&error),
    };
    let adapters = model.adapters.as_ref().map(|table| table.list());
    let adapters = adapters.unwrap_or_default().into_iter().enumerate();
    let listed = adapters.map(|(id, adapter)| {
        json!({
            "id": id,
            "name": adapter.name,
            "path": adapter.path.display().to_string(),
            "scale": 1.0,
        })
    });
    Json(Value::from(listed.collect::<Vec<_>>())).into_response()
}
