//! The endpoints of the Messages API.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::error::{ErrorObject, response_for};
use super::object::{MessageObject, TokenCount};
use super::request::{MessagesRequest, REFUSED};
use super::stream::{MessageStart, MessageWriter, ThinkingDisplay};
use super::translate;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::shared::{
    Body, SseEvent, StreamWriter, fit_later_system, random_id, sse_response, written,
};
use crate::reply::{self, PromptLimit, Replies, ReplyEvent, ReplyPrompt};

/// The header in which the SDKs look for the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Generates a message.
#[utoipa::path(
    post,
    path = "/v1/messages",
    request_body(content = MessagesRequest, example = json!({"max_tokens": 64, "messages": [{"role": "user", "content": "What is a slice?"}]})),
    responses(
        (status = 200, description = "A message, or its events", content(
            (MessageObject = "application/json"),
            (serde_json::Value = "text/event-stream"),
        )),
        (status = "default", description = "An error", body = ErrorObject),
    ),
)]
pub(super) async fn messages(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    let id = info.id.clone();
    with_id(&id, answer_messages(state, info, body).await)
}

/// Counts the tokens of a conversation.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    request_body(content = MessagesRequest, example = json!({"max_tokens": 64, "messages": [{"role": "user", "content": "What is a slice?"}]})),
    responses(
        (status = 200, description = "The number of tokens", body = TokenCount),
        (status = "default", description = "An error", body = ErrorObject),
    ),
)]
pub(super) async fn count_tokens(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    with_id(&info.id, answer_count(state, body).await)
}

/// Returns the response with the id of the request.
fn with_id(id: &str, result: Result<Response, RequestError>) -> Response {
    let mut response = match result {
        Ok(response) => response,
        Err(error) => response_for(&error, Some(id)),
    };
    // The id was checked when it was accepted, so it is valid in a header.
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

fn read(body: &Bytes) -> Result<MessagesRequest, RequestError> {
    let body = Body::parse(body)?;
    body.refuse(REFUSED)?;
    body.read()
}

async fn answer_messages(
    state: AppState,
    info: RequestInfo,
    body: Bytes,
) -> Result<Response, RequestError> {
    let request = read(&body)?;
    let model = state.models.find(request.model.as_deref()).await?;
    let mut reply_request = translate::reply_request(&request, &info)?;
    reply_request.prompt = fit_later_system(&model, reply_request.prompt).await;
    let replies = reply::start(&model, reply_request).await?;

    let writer = MessageWriter::new(MessageStart {
        id: random_id("msg_"),
        request_id: info.id,
        model: model.name.clone(),
        thinking: display(&request),
    });
    if request.stream == Some(true) {
        let events = UnboundedReceiverStream::new(replies.events);
        Ok(sse_response(written(events, writer)))
    } else {
        whole(writer, replies).await
    }
}

/// Returns the reasoning that the reply contains.
fn display(request: &MessagesRequest) -> ThinkingDisplay {
    let thinking = request.thinking.as_ref();
    match thinking.and_then(|thinking| thinking.display.as_deref()) {
        Some("omitted") => ThinkingDisplay::Omitted,
        Some(_) | None => ThinkingDisplay::Shown,
    }
}

impl StreamWriter for MessageWriter {
    fn write(&mut self, event: ReplyEvent) -> Vec<SseEvent> {
        self.push(event.part)
            .iter()
            .map(|event| event.sse())
            .collect()
    }

    fn close(&mut self) -> Vec<SseEvent> {
        self.interrupt().iter().map(|event| event.sse()).collect()
    }
}

/// Returns the message when it is complete.
async fn whole(mut writer: MessageWriter, mut replies: Replies) -> Result<Response, RequestError> {
    while let Some(event) = replies.events.recv().await {
        writer.push(event.part);
    }
    Ok(Json(writer.finish()?).into_response())
}

async fn answer_count(state: AppState, body: Bytes) -> Result<Response, RequestError> {
    let request = read(&body)?;
    let model = state.models.find(request.model.as_deref()).await?;
    let prompt = ReplyPrompt::Chat(translate::chat_prompt(&request)?);
    let prompt = fit_later_system(&model, prompt).await;
    let tokens = reply::prompt_tokens(&model, prompt, PromptLimit::None).await?;
    let count = TokenCount {
        input_tokens: tokens.len() as u32,
    };
    Ok(Json(count).into_response())
}
