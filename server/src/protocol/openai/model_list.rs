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
use crate::models::{ListedModel, ModelState, ServedModel};

/// The list of models.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelObject>,
    /// An empty list. Codex requires the field, and takes its own defaults for models that are not
    /// in it. An entry would have to contain the instructions of Codex itself.
    #[schema(value_type = Vec<Object>)]
    pub models: [Value; 0],
}

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ModelObject {
    /// The name, for the field `model` of requests.
    pub id: String,
    /// `model`.
    pub object: &'static str,
    /// The time of loading, in seconds since 1970, or 0 before it.
    pub created: u64,
    /// The owner.
    pub owned_by: &'static str,
    /// The name of the base model, if this is an adapter (vLLM's form).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The folder of an adapter (vLLM's form).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Whether the model is loaded (llama.cpp's form).
    pub status: ModelStatus,
    /// The maximum number of tokens of a prompt and its reply (vLLM's name), if the model is
    /// loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u32>,
    /// Facts about a loaded model, with the names of llama.cpp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<ModelMeta>,
}

/// The state of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelStatus {
    /// `unloaded`, `loading` or `loaded`. A request that names an unloaded model loads it.
    pub value: &'static str,
    /// The copied share of the weights in percent, while the model is being loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u64>,
    /// Whether the last attempt to load the model has failed.
    pub failed: bool,
}

impl ModelStatus {
    fn new(value: &'static str) -> ModelStatus {
        ModelStatus {
            value,
            percent: None,
            failed: false,
        }
    }
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

fn entry(listed: &ListedModel) -> ModelObject {
    let (status, loaded) = match &listed.state {
        ModelState::Unloaded => (ModelStatus::new("unloaded"), None),
        ModelState::Loading { percent } => {
            let status = ModelStatus {
                percent: Some(*percent),
                ..ModelStatus::new("loading")
            };
            (status, None)
        }
        ModelState::Loaded(model) => (ModelStatus::new("loaded"), Some(model)),
        ModelState::Failed(_) => {
            let status = ModelStatus {
                failed: true,
                ..ModelStatus::new("unloaded")
            };
            (status, None)
        }
    };
    ModelObject {
        id: listed.name.clone(),
        object: "model",
        created: loaded.map_or(0, |model| model.created),
        owned_by: "warpwright",
        parent: None,
        root: None,
        status,
        max_model_len: loaded.map(|model| model.scheduler.limits().ctx),
        meta: loaded.map(|model| meta(model)),
    }
}

/// Returns a model and its adapters.
fn entries(listed: &ListedModel) -> Vec<ModelObject> {
    let base = entry(listed);
    let adapters = match &listed.state {
        ModelState::Loaded(model) => model.adapters.as_ref().map(|table| table.list()),
        ModelState::Unloaded | ModelState::Loading { .. } | ModelState::Failed(_) => None,
    };
    let adapters = adapters.into_iter().flatten().map(|adapter| ModelObject {
        id: adapter.name,
        created: adapter.created,
        parent: Some(base.id.clone()),
        root: Some(adapter.path.display().to_string()),
        ..base.clone()
    });
    let adapters: Vec<_> = adapters.collect();
    std::iter::once(base).chain(adapters).collect()
}

fn meta(model: &ServedModel) -> ModelMeta {
    let facts = &model.description;
    ModelMeta {
        n_vocab: facts.vocab,
        n_ctx: model.scheduler.limits().ctx,
        n_ctx_train: facts.trained_ctx,
        n_embd: facts.hidden,
        n_params: facts.parameters,
        size: facts.bytes,
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
    let listed = state.models.list();
    Json(ModelList {
        object: "list",
        data: listed.iter().flat_map(entries).collect(),
        models: [],
    })
    .into_response()
}

/// Describes a model.
#[utoipa::path(
    get,
    path = "/v1/models/{model}",
    tag = "OpenAI",
    params(("model" = String, Path, description = "The name of the model")),
    responses(
        (status = 200, description = "The model", body = ModelObject),
        (status = 404, description = "There is no such model", body = ErrorBody),
    ),
)]
pub(super) async fn model(State(state): State<AppState>, Path(name): Path<String>) -> Response {
    let listed = state.models.list();
    let models: Vec<ModelObject> = listed.iter().flat_map(entries).collect();
    match models.iter().find(|model| model.id == name) {
        Some(model) => Json(model).into_response(),
        None => {
            let names: Vec<&str> = models.iter().map(|model| &*model.id).collect();
            let message = format!(
                "there is no model \"{name}\": this server has {}",
                names.join(", ")
            );
            error_response(&RequestError {
                kind: ErrorKind::NotFound,
                message,
                param: Some("model".to_owned()),
            })
        }
    }
}
