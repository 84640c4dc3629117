//! `POST /embedding`: vectors of texts, in llama.cpp's own shape.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error::error_response;
use super::prompt::{Prompts, SpecialTokens, TextPrompt};
use crate::error::{ErrorKind, RequestError};
use crate::http::state::AppState;
use crate::protocol::shared::{Body, Whole, text_prompt_schema};
use crate::reply::{PromptLimit, tokenizing};

/// The body of `POST /embedding`.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct EmbeddingRequest {
    /// The name of the model. A server with one model needs none.
    model: Option<String>,
    /// The text, or a list of texts and lists of token ids.
    #[schema(schema_with = text_prompt_schema)]
    content: Option<Value>,
    /// The text, if `content` is absent.
    #[schema(schema_with = text_prompt_schema)]
    input: Option<Value>,
    /// The norm by which vectors are scaled to length 1. Only 2, the Euclidean one, is supported.
    #[schema(value_type = Option<i64>, minimum = 2, maximum = 2)]
    embd_normalize: Option<Whole>,
}

/// Checks that the vectors are wanted with the only norm that is supported.
fn check_norm(norm: Option<Whole>) -> Result<(), RequestError> {
    match norm {
        None | Some(Whole(2)) => Ok(()),
        Some(Whole(other)) => Err(RequestError::invalid(
            "embd_normalize",
            format!("`embd_normalize` is {other}: only 2, the Euclidean norm, is supported"),
        )),
    }
}

/// Returns the mean of the hidden states of each text, scaled to length 1.
#[utoipa::path(
    post,
    path = "/embedding",
    request_body(content = EmbeddingRequest, example = json!({"content": "The borrow checker"})),
    responses(
        (status = 200, description = "The vectors"),
        (status = 400, description = "A field is wrong"),
    )
)]
pub(super) async fn embedding(State(state): State<AppState>, body: Bytes) -> Response {
    embedded(&state, &body).await.map_or_else(
        |error| error_response(&error),
        |vectors| Json(vectors).into_response(),
    )
}

async fn embedded(state: &AppState, body: &[u8]) -> Result<Value, RequestError> {
    let request: EmbeddingRequest = Body::parse(body)?.read()?;
    check_norm(request.embd_normalize)?;
    let model = state.models.find(request.model.as_deref()).await?;
    model.refuse_adapter("embeddings")?;
    let (field, content) = match (request.content, request.input) {
        (Some(content), _) => ("content", content),
        (None, Some(input)) => ("input", input),
        (None, None) => {
            return Err(RequestError::invalid("content", "`content` is missing"));
        }
    };
    let prompts = match TextPrompt::read_several(field, &content)? {
        Prompts::One(prompt) => vec![prompt],
        Prompts::Several(prompts) => prompts,
    };
    let served = model.clone();
    let bytes = prompts.iter().map(TextPrompt::text_bytes).sum();
    let limit = PromptLimit::Context;
    let texts = tokenizing(bytes, move || {
        let tokens = prompts
            .iter()
            .map(|prompt| prompt.tokens(&served, SpecialTokens::Parsed, limit));
        tokens.collect::<Result<Vec<_>, _>>()
    })
    .await?;
    if texts.iter().any(Vec::is_empty) {
        return Err(RequestError::new(
            ErrorKind::Invalid,
            format!("`{field}` has an empty text, which has no vector"),
        ));
    }

    let vectors = model.scheduler.embed(texts).await?;
    let list = vectors.into_iter().enumerate().map(|(index, vector)| {
        // A list with one vector per pooled text.
        json!({ "index": index, "embedding": [vector] })
    });
    Ok(list.collect())
}
