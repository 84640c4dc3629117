//! The endpoints `GET /v1/models` and `GET /v1/models/{id}`.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::error::{ErrorBody, error_response};
use crate::error::{ErrorKind, RequestError};
use crate::http::state::AppState;
use crate::models::ServedModel;

/// The list of models.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelEntry>,
    /// An empty list. Codex requires the field, and takes its own defaults for models that are not
    /// in it. An entry would have to contain the instructions of Codex itself.
    #[schema(value_type = Vec<Object>)]
    pub models: [Value; 0],
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelEntry {
    /// The name, for the field `model` of requests.
    pub id: String,
    /// `model`.
    pub object: &'static str,
    /// The time of loading, in seconds since 1970.
    pub created: u64,
    /// The owner.
    pub owned_by: &'static str,
    /// The maximum number of tokens of a prompt and its reply (vLLM's name).
    pub max_model_len: u32,
    /// Facts about the model, with the names of llama.cpp.
    pub meta: ModelMeta,
}

/// Facts about a model, with the names of llama.cpp.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelMeta {
    /// The size of the vocabulary.
    pub n_vocab: u32,
    /// The maximum number of tokens of a prompt and its reply.
    pub n_ctx: u32,
    /// The context length that the model was trained with.
    pub n_ctx_train: u32,
    /// The length of hidden states.
    pub n_embd: u32,
    /// The number of weights.
    pub n_params: u64,
    /// The size of the files in bytes.
    pub size: u64,
}

fn entry(model: &ServedModel) -> ModelEntry {
    let facts = &model.description;
    let ctx = model.scheduler.limits().ctx;
    ModelEntry {
        id: model.name.clone(),
        object: "model",
        created: model.created,
        owned_by: "warpwright",
        max_model_len: ctx,
        meta: ModelMeta {
            n_vocab: facts.vocab,
            n_ctx: ctx,
            n_ctx_train: facts.trained_ctx,
            n_embd: facts.hidden,
            n_params: facts.parameters,
            size: facts.bytes,
        },
    }
}

/// Lists the models.
#[utoipa::path(
    get,
    path = "/v1/models",
    tag = "OpenAI",
    responses((status = 200, description = "The models", body = ModelList)),
)]
pub(super) async fn models(State(state): State<AppState>) -> Response {
    match state.models.find(None).await {
        Ok(model) => Json(ModelList {
            object: "list",
            data: vec![entry(&model)],
            models: [],
        })
        .into_response(),
        Err(error) => error_response(&error),
    }
}

/// Describes a model.
#[utoipa::path(
    get,
    path = "/v1/models/{model}",
    tag = "OpenAI",
    params(("model" = String, Path, description = "The name of the model")),
    responses(
        (status = 200, description = "The model", body = ModelEntry),
        (status = 404, description = "There is no such model", body = ErrorBody),
    ),
)]
pub(super) async fn model(State(state): State<AppState>, Path(name): Path<String>) -> Response {
    let found = match state.models.find(Some(&name)).await {
        // A server of one model answers requests for every name, but has only this one.
        Ok(model) if model.name == name => Ok(entry(&model)),
        Ok(model) => Err(RequestError {
            kind: ErrorKind::NotFound,
            message: format!(
                "there is no model \"{name}\": this server has \"{}\"",
                model.name
            ),
            param: Some("model".to_owned()),
        }),
        Err(error) => Err(error),
    };
    match found {
        Ok(entry) => Json(entry).into_response(),
        Err(error) => error_response(&error),
    }
}
