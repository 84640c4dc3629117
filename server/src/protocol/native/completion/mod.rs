//! `POST /completion`: llama.cpp's own endpoint to continue prompts.
//!
//! The fields are those of `tools/server/README.md` in <https://github.com/ggml-org/llama.cpp>.
//! Differences:
//! - `id_slot` is only a hint there to find the slot with a prompt's cache. Here all slots share the
//!   cache, so any number is accepted.
//! - `n_keep` matters only when the context is shifted, and `n_cache_reuse` only where cached parts
//!   move. Neither happens here, so both are accepted.

mod collect;
mod request;
mod response;
mod stream;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use self::collect::Collected;
use self::request::{CompletionRequest, PreparedCompletion};
use super::error::error_response;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::shared::Body;

pub(super) use self::request::CompletionRequest as CompletionBody;

/// Continues one or more prompts.
#[utoipa::path(
    post,
    path = "/completion",
    request_body(content = CompletionRequest, example = json!({"prompt": "The borrow checker", "n_predict": 16})),
    responses(
        (status = 200, description = "The continuation, or a stream of events with its parts"),
        (status = 400, description = "A field is wrong, or the prompt is longer than the context"),
        (status = 429, description = "The queue is full"),
        (status = 503, description = "The model is being loaded, or the server shuts down"),
    )
)]
pub(super) async fn completion(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    respond(&state, info, &body)
        .await
        .unwrap_or_else(|error| error_response(&error))
}

async fn respond(
    state: &AppState,
    info: RequestInfo,
    body: &[u8],
) -> Result<Response, RequestError> {
    let body = Body::parse(body)?;
    let request = CompletionRequest::read(&body)?;
    let model = state.models.find(request.model.as_deref()).await?;
    let prepared = PreparedCompletion::new(&model, request, info).await?;
    if prepared.settings.stream {
        return stream::respond(model, prepared).await;
    }

    let is_list = prepared.is_list;
    let collected = Collected::of(&model, &prepared).await?;
    let mut results: Vec<Value> = collected
        .iter()
        .map(|reply| response::complete(&model, &prepared, reply))
        .map(|result| response::selected(result, &prepared.response_fields))
        .collect();
    let json = match (is_list, results.len()) {
        (false, 1) => results.remove(0),
        _ => Value::from(results),
    };
    Ok(Json(json).into_response())
}
