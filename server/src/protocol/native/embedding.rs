//! `POST /embedding`: vectors of texts, in llama.cpp's own shape.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error::error_response;
use super::prompt::{Prompts, SpecialTokens, TextPrompt, blocking};
use crate::error::{ErrorKind, RequestError};
use crate::http::state::AppState;
use crate::protocol::shared::{Body, Whole, whole_in};

/// The body of `POST /embedding`.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct EmbeddingRequest {
    /// The name of the model. A server with one model needs none.
    model: Option<String>,
    /// The text, or a list of texts and lists of token ids.
    #[schema(value_type = Option<String>)]
    content: Option<Value>,
    /// The text, if `content` is absent.
    #[schema(value_type = Option<String>)]
    input: Option<Value>,
    /// The norm by which vectors are scaled to length 1. Only 2, the Euclidean one, is supported.
    #[schema(value_type = Option<i64>)]
    embd_normalize: Option<Whole>,
}

/// Returns the mean of the hidden states of each text, scaled to length 1.
#[utoipa::path(
    post,
    path = "/embedding",
    request_body = EmbeddingRequest,
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
    whole_in("embd_normalize", request.embd_normalize, 2..=2)?;
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
    let tokenizing = model.clone();
    let texts = blocking(move || {
        let tokens = prompts
            .iter()
            .map(|prompt| prompt.tokens(&tokenizing, SpecialTokens::Parsed));
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
