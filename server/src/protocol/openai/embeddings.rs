//! The endpoint `POST /v1/embeddings`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::completion::prompts::prompts;
use super::error::{ErrorBody, error_response};
use crate::error::RequestError;
use crate::http::state::AppState;
use crate::models::ServedModel;
use crate::protocol::shared::{Body, Whole, prompts_schema};
use crate::reply::{self, PromptLimit, ReplyPrompt};

/// The body of an embedding request.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct EmbeddingsRequest {
    /// The name of the model.
    pub model: Option<String>,
    /// A text, a list of token ids, or a list of texts and lists of token ids.
    #[schema(required = true, schema_with = prompts_schema)]
    pub input: Option<Value>,
    /// The form of the vectors: `float` or `base64`.
    pub encoding_format: Option<String>,
    /// The length of the vectors. Only the length of the model's hidden states is supported.
    #[schema(value_type = Option<i64>)]
    pub dimensions: Option<Whole>,
}

/// The response to an embedding request.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EmbeddingList {
    /// `list`.
    pub object: &'static str,
    /// The vectors, in the order of the inputs.
    pub data: Vec<EmbeddingEntry>,
    /// The name of the model.
    pub model: String,
    /// The number of tokens.
    pub usage: EmbeddingUsage,
}

/// The vector of an input.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EmbeddingEntry {
    /// `embedding`.
    pub object: &'static str,
    /// The index of the input.
    pub index: u32,
    /// The vector, of length 1.
    pub embedding: EmbeddingVector,
}

/// A vector in one of two forms.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum EmbeddingVector {
    /// A list of numbers.
    Floats(Vec<f32>),
    /// The base64 form of little-endian 32-bit floats.
    Base64(String),
}

/// The number of tokens of an embedding request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct EmbeddingUsage {
    /// The number of tokens of all inputs.
    pub prompt_tokens: u32,
    /// The same number.
    pub total_tokens: u32,
}

/// The form in which vectors are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorForm {
    Floats,
    Base64,
}

/// Returns vectors that are near each other for texts with similar meanings.
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    tag = "OpenAI",
    request_body(content = EmbeddingsRequest, example = json!({"input": ["The borrow checker", "A slice"]})),
    responses(
        (status = 200, description = "The vectors", body = EmbeddingList),
        (status = "4XX", description = "The request is wrong", body = ErrorBody),
        (status = "5XX", description = "The server has failed", body = ErrorBody),
    ),
)]
pub(super) async fn embeddings(State(state): State<AppState>, body: Bytes) -> Response {
    let response = respond(&state, &body).await;
    match response {
        Ok(list) => Json(list).into_response(),
        Err(error) => error_response(&error),
    }
}

async fn respond(state: &AppState, body: &[u8]) -> Result<EmbeddingList, RequestError> {
    let request: EmbeddingsRequest = Body::parse(body)?.read()?;
    let form = vector_form(request.encoding_format.as_deref())?;
    let inputs = prompts("input", request.input.as_ref())?;
    let model = state.models.find(request.model.as_deref()).await?;
    model.refuse_adapter("embeddings")?;
    check_dimensions(&model, request.dimensions)?;

    let single = matches!(request.input, Some(Value::String(_)));
    let mut texts = vec![];
    for (position, input) in inputs.into_iter().enumerate() {
        let field = if single {
            "input".to_owned()
        } else {
            format!("input[{position}]")
        };
        texts.push(tokens(&model, &field, input).await?);
    }
    let prompt_tokens = texts.iter().map(|text| text.len() as u32).sum();
    let vectors = model.scheduler.embed(texts).await?;

    let entries = (0..).zip(vectors).map(|(index, vector)| EmbeddingEntry {
        object: "embedding",
        index,
        embedding: match form {
            VectorForm::Floats => EmbeddingVector::Floats(vector),
            VectorForm::Base64 => EmbeddingVector::Base64(base64_form(&vector)),
        },
    });
    Ok(EmbeddingList {
        object: "list",
        data: entries.collect(),
        model: model.name.clone(),
        usage: EmbeddingUsage {
            prompt_tokens,
            total_tokens: prompt_tokens,
        },
    })
}

fn vector_form(name: Option<&str>) -> Result<VectorForm, RequestError> {
    match name {
        None | Some("float") => Ok(VectorForm::Floats),
        Some("base64") => Ok(VectorForm::Base64),
        Some(other) => Err(RequestError::invalid(
            "encoding_format",
            format!("`encoding_format` is \"{other}\": expected \"float\" or \"base64\""),
        )),
    }
}

fn check_dimensions(model: &ServedModel, wanted: Option<Whole>) -> Result<(), RequestError> {
    let hidden = model.description.hidden;
    match wanted {
        Some(Whole(wanted)) if wanted != i128::from(hidden) => Err(RequestError::invalid(
            "dimensions",
            format!("`dimensions` is {wanted}: this model has vectors of length {hidden}"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Returns the tokens of an input.
async fn tokens(
    model: &Arc<ServedModel>,
    field: &str,
    input: ReplyPrompt,
) -> Result<Vec<u32>, RequestError> {
    let tokens = reply::prompt_tokens(model, input, PromptLimit::Context).await;
    let tokens = tokens.map_err(|error| RequestError {
        param: Some(field.to_owned()),
        ..error
    })?;
    let ctx = model.scheduler.limits().ctx as usize;
    if tokens.is_empty() {
        return Err(RequestError::invalid(
            field,
            format!("`{field}` has no tokens: expected at least one"),
        ));
    }
    if tokens.len() > ctx {
        return Err(RequestError::invalid(
            field,
            format!(
                "`{field}` is too large: it has {} tokens, and the context has {ctx} positions",
                tokens.len()
            ),
        ));
    }
    Ok(tokens)
}

fn base64_form(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    base64::encode(bytes)
}
