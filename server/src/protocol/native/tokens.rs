//! `POST /tokenize` and `POST /detokenize`: text to tokens and back.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error::error_response;
use super::prompt::{SpecialTokens, TextPrompt, spelled_text};
use crate::error::RequestError;
use crate::http::state::AppState;
use crate::models::ServedModel;
use crate::protocol::shared::{Body, Refused, Unless, text_prompt_schema};
use crate::reply::{PromptLimit, blocking, tokenizing};

/// The fields of vLLM's endpoint with the same path. Without an error, the response would be an
/// empty list, because `content` is absent.
const REFUSED_TOKENIZE: &[Refused] = &[
    Refused {
        field: "prompt",
        unless: Unless::Empty,
        advice: "use `content`",
    },
    Refused {
        field: "messages",
        unless: Unless::Empty,
        advice: "use /apply-template for the prompt of a conversation, or \
                 /v1/chat/completions/input_tokens for the number of its tokens",
    },
];

/// The body of `POST /tokenize`.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct TokenizeRequest {
    /// The name of the model. A server with one model needs none.
    model: Option<String>,
    /// The text, or a list of texts and token ids.
    #[schema(schema_with = text_prompt_schema)]
    content: Option<Value>,
    /// Whether the token that begins texts is added. The default is false.
    add_special: Option<bool>,
    /// Whether names of control tokens become these tokens. The default is true.
    parse_special: Option<bool>,
    /// Whether each token is returned with its text. The default is false.
    with_pieces: Option<bool>,
}

/// The body of `POST /detokenize`.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DetokenizeRequest {
    /// The name of the model. A server with one model needs none.
    model: Option<String>,
    /// The ids.
    tokens: Option<Vec<u32>>,
}

/// Returns the tokens of a text.
#[utoipa::path(
    post,
    path = "/tokenize",
    request_body(content = TokenizeRequest, example = json!({"content": "The borrow checker"})),
    responses(
        (status = 200, description = "The tokens"),
        (status = 400, description = "A field is wrong"),
    )
)]
pub(super) async fn tokenize(State(state): State<AppState>, body: Bytes) -> Response {
    let answer = async {
        let body = Body::parse(&body)?;
        body.refuse(REFUSED_TOKENIZE)?;
        let request: TokenizeRequest = body.read()?;
        let model = state.models.find(request.model.as_deref()).await?;
        // llama.cpp returns an empty list without a content.
        let content = request.content.clone().unwrap_or_else(|| json!(""));
        let prompt = TextPrompt::read("content", &content)?;
        let bytes = prompt.text_bytes();
        tokenizing(bytes, move || {
            tokenized(&model, &request, &content, &prompt)
        })
        .await
    };
    answer.await.map_or_else(
        |error| error_response(&error),
        |json| Json(json).into_response(),
    )
}

fn tokenized(
    model: &ServedModel,
    request: &TokenizeRequest,
    content: &Value,
    prompt: &TextPrompt,
) -> Result<Value, RequestError> {
    let special = if request.parse_special == Some(false) {
        SpecialTokens::Text
    } else {
        SpecialTokens::Parsed
    };
    let mut tokens = prompt.tokens(model, special, PromptLimit::None)?;
    if request.add_special != Some(true) && starts_with_bos(model, content, special, &tokens) {
        tokens.remove(0);
    }

    let tokens: Vec<Value> = if request.with_pieces == Some(true) {
        tokens.iter().map(|token| piece(model, *token)).collect()
    } else {
        tokens.into_iter().map(Value::from).collect()
    };
    Ok(json!({ "tokens": tokens }))
}

/// Returns true if the first token was added before a text.
fn starts_with_bos(
    model: &ServedModel,
    content: &Value,
    special: SpecialTokens,
    tokens: &[u32],
) -> bool {
    let first = match content {
        Value::String(text) => Some(text),
        Value::Array(items) => match items.first() {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let Some(bos) = model.tokenizer.bos() else {
        return false;
    };
    let named = model.tokenizer.control(bos);
    // As text, the name of BOS is not BOS.
    let is_written = matches!(special, SpecialTokens::Parsed)
        && named
            .zip(first)
            .is_some_and(|(name, text)| text.starts_with(name));
    first.is_some() && !is_written && tokens.first() == Some(&bos)
}

/// Returns a token with its text, or with its bytes if they are not UTF-8.
fn piece(model: &ServedModel, token: u32) -> Value {
    let bytes = match model.tokenizer.control(token) {
        Some(name) => name.as_bytes(),
        None => model.tokenizer.piece(token),
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "id": token, "piece": text }),
        Err(_) => json!({ "id": token, "piece": bytes }),
    }
}

/// Returns the text of tokens. Control tokens appear by name.
#[utoipa::path(
    post,
    path = "/detokenize",
    request_body(content = DetokenizeRequest, example = json!({"tokens": [1, 2, 3]})),
    responses(
        (status = 200, description = "The text"),
        (status = 400, description = "A field is wrong"),
    )
)]
pub(super) async fn detokenize(State(state): State<AppState>, body: Bytes) -> Response {
    let answer = async {
        let request: DetokenizeRequest = Body::parse(&body)?.read()?;
        let model = state.models.find(request.model.as_deref()).await?;
        let tokens = request.tokens.unwrap_or_default();
        blocking(move || detokenized(&model, &tokens)).await
    };
    answer.await.map_or_else(
        |error| error_response(&error),
        |json| Json(json).into_response(),
    )
}

fn detokenized(model: &Arc<ServedModel>, tokens: &[u32]) -> Result<Value, RequestError> {
    let size = model.tokenizer.size();
    let outside = |token: &&u32| **token as usize >= size;
    if let Some(position) = tokens.iter().position(|token| outside(&token)) {
        let path = format!("tokens[{position}]");
        let message = format!(
            "`{path}` is {}: the vocabulary has {size} tokens",
            tokens[position]
        );
        return Err(RequestError::invalid(path, message));
    }

    // The space that was prepended to the text does not belong to it.
    let text = spelled_text(model, tokens);
    let first = tokens
        .first()
        .map_or(0, |token| model.tokenizer.piece(*token).len());
    let shown = model.tokenizer.decode(tokens.get(..1).unwrap_or_default());
    let text = match text.strip_prefix(' ') {
        Some(rest) if shown.len() < first => rest,
        _ => &text,
    };
    Ok(json!({ "content": text }))
}
