//! The endpoints `POST /v1/chat/completions` and `POST /v1/chat/completions/input_tokens`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio_stream::wrappers::UnboundedReceiverStream;
use utoipa::ToSchema;

use super::call::chat_call;
use super::request::ChatBody;
use super::response::{ChatCollector, ChatCompletion, LogprobsWanted};
use super::stream::ChatStream;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::openai::error::{ErrorBody, error_response};
use crate::protocol::openai::form::Delivery;
use crate::protocol::openai::head::ResponseHead;
use crate::protocol::shared::{Body, fit_later_system, sse_response, written};
use crate::reply::{self, PromptLimit};

/// Replies to a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "OpenAI",
    request_body(content = ChatBody, example = json!({"messages": [{"role": "user", "content": "What is a slice?"}], "max_tokens": 64})),
    responses(
        (status = 200, description = "The reply, or server-sent events", content(
            (ChatCompletion = "application/json"),
            (serde_json::Value = "text/event-stream"),
        )),
        (status = "4XX", description = "The request is wrong", body = ErrorBody),
        (status = "5XX", description = "The server has failed", body = ErrorBody),
    ),
)]
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    let response = respond(&state, &info, &body).await;
    response.unwrap_or_else(|error| error_response(&error))
}

/// The number of tokens in a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptTokenCount {
    /// The type of the object, as in the count of `/v1/responses/input_tokens`.
    object: &'static str,
    /// The number of tokens.
    input_tokens: usize,
}

/// Counts the tokens of a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/input_tokens",
    tag = "OpenAI",
    request_body(content = ChatBody, example = json!({"messages": [{"role": "user", "content": "What is a slice?"}], "max_tokens": 64})),
    responses(
        (status = 200, description = "The number of tokens", body = PromptTokenCount),
        (status = "4XX", description = "The request is wrong", body = ErrorBody),
        (status = "5XX", description = "The server has failed", body = ErrorBody),
    ),
)]
pub(crate) async fn input_tokens(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    counted(&state, &info, &body).await.map_or_else(
        |error| error_response(&error),
        |count| Json(count).into_response(),
    )
}

async fn counted(
    state: &AppState,
    info: &RequestInfo,
    body: &[u8],
) -> Result<PromptTokenCount, RequestError> {
    let call = chat_call(&Body::parse(body)?, &info.id, info.salt)?;
    let model = state.models.find(call.model.as_deref()).await?;
    let prompt = fit_later_system(&model, call.reply.prompt).await;
    let tokens = reply::prompt_tokens(&model, prompt, PromptLimit::None).await?;
    Ok(PromptTokenCount {
        object: "response.input_tokens",
        input_tokens: tokens.len(),
    })
}

async fn respond(
    state: &AppState,
    info: &RequestInfo,
    body: &[u8],
) -> Result<Response, RequestError> {
    let body = Body::parse(body)?;
    let call = chat_call(&body, &info.id, info.salt)?;
    let model = state.models.find(call.model.as_deref()).await?;
    let head = ResponseHead::new("chatcmpl-", &model.name);
    let form = call.form;
    let count = call.reply.count;
    let mut request = call.reply;
    request.prompt = fit_later_system(&model, request.prompt).await;
    let mut replies = reply::start(&model, request).await?;
    match form.delivery {
        Delivery::Events => {
            let events = UnboundedReceiverStream::new(replies.events);
            let writer = ChatStream::new(head, form, count);
            Ok(sse_response(written(events, writer)))
        }
        Delivery::Whole => {
            let mut collector = ChatCollector::new(count);
            while let Some(event) = replies.events.recv().await {
                collector.add(event)?;
            }
            let logprobs = if form.logprobs {
                LogprobsWanted::Yes
            } else {
                LogprobsWanted::No
            };
            Ok(Json(collector.finish(head, logprobs)?).into_response())
        }
    }
}
