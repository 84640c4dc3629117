//! The endpoints `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`, with the fields of
//! vLLM.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::{ErrorBody, error_response};
use crate::error::RequestError;
use crate::http::state::AppState;
use crate::models::{AdapterTable, forbidden};
use crate::protocol::shared::Body;

/// A request to load an adapter.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct LoadAdapterRequest {
    /// The name for the field `model` of requests.
    #[schema(required = true, nullable = false)]
    pub lora_name: Option<String>,
    /// The folder of the adapter, in the folder of `--lora-dir`.
    #[schema(required = true, nullable = false)]
    pub lora_path: Option<String>,
}

/// A request to unload an adapter.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct UnloadAdapterRequest {
    /// The name of the adapter.
    #[schema(required = true, nullable = false)]
    pub lora_name: Option<String>,
}

/// Loads an adapter.
#[utoipa::path(
    post,
    path = "/v1/load_lora_adapter",
    tag = "OpenAI",
    request_body(content = LoadAdapterRequest, example = json!({"lora_name": "poet", "lora_path": "poet"})),
    responses(
        (status = 200, description = "The adapter is loaded"),
        (status = 400, description = "A field is wrong, or the adapter does not fit", body = ErrorBody),
        (status = 403, description = "The server loads no such adapters", body = ErrorBody),
    ),
)]
pub(super) async fn load(State(state): State<AppState>, body: Bytes) -> Response {
    let loaded = load_adapter(&state, &body).await;
    loaded.unwrap_or_else(|error| error_response(&error))
}

/// Unloads an adapter. Requests that use it may end.
#[utoipa::path(
    post,
    path = "/v1/unload_lora_adapter",
    tag = "OpenAI",
    request_body(content = UnloadAdapterRequest, example = json!({"lora_name": "poet"})),
    responses(
        (status = 200, description = "New requests cannot use the adapter any more"),
        (status = 400, description = "A field is wrong", body = ErrorBody),
        (status = 403, description = "The server unloads no adapters", body = ErrorBody),
        (status = 404, description = "There is no such adapter", body = ErrorBody),
    ),
)]
pub(super) async fn unload(State(state): State<AppState>, body: Bytes) -> Response {
    let unloaded = unload_adapter(&state, &body).await;
    unloaded.unwrap_or_else(|error| error_response(&error))
}

async fn load_adapter(state: &AppState, body: &[u8]) -> Result<Response, RequestError> {
    let request: LoadAdapterRequest = Body::parse(body)?.read()?;
    let name = required("lora_name", request.lora_name)?;
    let path = required("lora_path", request.lora_path)?;
    let model = state.models.find(None).await?;
    let table: &AdapterTable = model.adapters.as_ref().ok_or_else(forbidden)?;
    table.load(&name, &path).await?;
    Ok(format!("Success: LoRA adapter '{name}' added successfully.").into_response())
}

async fn unload_adapter(state: &AppState, body: &[u8]) -> Result<Response, RequestError> {
    let request: UnloadAdapterRequest = Body::parse(body)?.read()?;
    let name = required("lora_name", request.lora_name)?;
    let model = state.models.find(None).await?;
    let table: &AdapterTable = model.adapters.as_ref().ok_or_else(forbidden)?;
    table.unload(&name)?;
    Ok(format!("Success: LoRA adapter '{name}' removed successfully.").into_response())
}

fn required(field: &str, value: Option<String>) -> Result<String, RequestError> {
    value.ok_or_else(|| RequestError::invalid(field, format!("`{field}` is missing")))
}
