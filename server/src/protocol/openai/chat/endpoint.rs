//! The endpoint `POST /v1/chat/completions`.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::call::chat_call;
use super::request::ChatBody;
use super::response::{ChatCollector, ChatCompletion, LogprobsWanted};
use super::stream::ChatStream;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::openai::error::{ErrorBody, error_response};
use crate::protocol::openai::events::written;
use crate::protocol::openai::form::Delivery;
use crate::protocol::openai::head::ResponseHead;
use crate::protocol::shared::{Body, fit_later_system, sse_response};
use crate::reply::{self, ReplyPrompt};

/// Replies to a conversation.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "OpenAI",
    request_body = ChatBody,
    responses(
        (status = 200, description = "The reply, or server-sent events", content(
            (ChatCompletion = "application/json"),
            (String = "text/event-stream"),
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
    if let ReplyPrompt::Chat(chat) = request.prompt {
        request.prompt = ReplyPrompt::Chat(fit_later_system(&model, chat).await);
    }
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
