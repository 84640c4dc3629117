//! `GET /props` and `GET /slots`: facts about a model and its sequences.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::error::error_response;
use super::query::{AnyQuery, ModelQuery, queried_model};
use super::settings::Settings;
use crate::error::{ErrorKind, RequestError};
use crate::http::state::AppState;
use crate::models::ServedModel;
use crate::scheduler::SequenceStatus;

/// Returns facts about the model.
#[utoipa::path(
    get,
    path = "/props",
    params(ModelQuery),
    responses(
        (status = 200, description = "Facts about the model"),
        (status = 503, description = "The model is being loaded"),
    )
)]
pub(super) async fn props(State(state): State<AppState>, query: AnyQuery<ModelQuery>) -> Response {
    match queried_model(&state, query).await {
        Ok(model) => Json(props_of(&model)).into_response(),
        Err(error) => error_response(&error),
    }
}

fn props_of(model: &ServedModel) -> Value {
    let limits = model.scheduler.limits();
    let bos = model.tokenizer.bos();
    let eos = model.tokenizer.eos();
    let spelled = |token: Option<u32>| token.and_then(|token| model.tokenizer.spelling(token));
    json!({
        "default_generation_settings": {
            "n_ctx": limits.ctx,
            "params": Settings::defaults(model).json(model),
        },
        "total_slots": limits.sequences,
        "model_alias": model.name,
        "model_path": model.description.path,
        "chat_template": model.template.as_ref().map_or("", |template| template.text()),
        "bos_token": spelled(bos).unwrap_or_default(),
        "eos_token": spelled(eos).unwrap_or_default(),
        "modalities": { "vision": false, "audio": false },
        "build_info": concat!("warpwright ", env!("CARGO_PKG_VERSION")),
        "is_sleeping": false,
    })
}

/// The query of `GET /slots`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SlotsQuery {
    /// If it is present, the response is 503 while all slots are in use.
    fail_on_no_slot: Option<String>,
}

/// Returns the state of each slot for a sequence.
#[utoipa::path(
    get,
    path = "/slots",
    params(ModelQuery, SlotsQuery),
    responses(
        (status = 200, description = "The slots"),
        (status = 503, description = "The model is being loaded, or no slot is free"),
    )
)]
pub(super) async fn slots(
    State(state): State<AppState>,
    model: AnyQuery<ModelQuery>,
    query: AnyQuery<SlotsQuery>,
) -> Response {
    let model = match queried_model(&state, model).await {
        Ok(model) => model,
        Err(error) => return error_response(&error),
    };
    let limits = model.scheduler.limits();
    let status = model.scheduler.status();
    let is_full = status.sequences.len() >= limits.sequences as usize;
    let query = query.map(|Query(query)| query).unwrap_or_default();
    if query.fail_on_no_slot.is_some() && is_full {
        return error_response(&RequestError::new(
            ErrorKind::Unavailable,
            "no slot available",
        ));
    }

    let slots = (0..limits.sequences).map(|id| {
        let sequence = status.sequences.get(id as usize);
        slot(id, limits.ctx, sequence)
    });
    Json(slots.collect::<Vec<Value>>()).into_response()
}

fn slot(id: u32, ctx: u32, sequence: Option<&SequenceStatus>) -> Value {
    let mut slot = json!({
        "id": id,
        "n_ctx": ctx,
        "speculative": false,
        "is_processing": sequence.is_some(),
    });
    if let Some(sequence) = sequence {
        slot["request_id"] = json!(sequence.request_id);
        slot["n_prompt_tokens"] = json!(sequence.prompt);
        slot["n_prompt_tokens_processed"] = json!(sequence.processed);
        slot["next_token"] = json!([{ "n_decoded": sequence.generated }]);
    }
    slot
}
