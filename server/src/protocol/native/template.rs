//! `POST /apply-template`: the text that the chat template renders from a conversation.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::error_response;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::openai::{ChatBody, chat_call};
use crate::protocol::shared::{Body, fit_chat};
use crate::reply::{self, ReplyPrompt};

/// Returns the prompt of a conversation, which has the fields of `/v1/chat/completions`.
#[utoipa::path(
    post,
    path = "/apply-template",
    request_body(content = ChatBody, example = json!({"messages": [{"role": "user", "content": "What is a slice?"}]})),
    responses(
        (status = 200, description = "The prompt"),
        (status = 400, description = "A field is wrong, or the model has no chat template"),
    )
)]
pub(super) async fn apply_template(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    rendered(&state, &info, &body).await.map_or_else(
        |error| error_response(&error),
        |prompt| Json(prompt).into_response(),
    )
}

async fn rendered(
    state: &AppState,
    info: &RequestInfo,
    body: &[u8],
) -> Result<Value, RequestError> {
    let call = chat_call(&Body::parse(body)?, &info.id, info.salt)?;
    let model = state.models.find(call.model.as_deref()).await?;
    let prompt = match call.reply.prompt {
        ReplyPrompt::Chat(chat) => {
            let chat = fit_chat(&model, chat).await;
            reply::render(&model, chat).await?
        }
        // A conversation is always translated to one.
        ReplyPrompt::Text(text) => text,
        ReplyPrompt::Tokens(tokens) => model.tokenizer.decode(&tokens),
    };
    Ok(json!({ "prompt": prompt }))
}
