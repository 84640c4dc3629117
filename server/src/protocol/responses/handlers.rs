//! The endpoints of the Responses API.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::error::error_response;
use super::object::{InputTokens, ResponseObject};
use super::request::{REFUSED, ResponsesRequest};
use super::stream::{ResponseStart, ResponseWriter};
use super::translate::{TranslatedRequest, translate};
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::models::ServedModel;
use crate::protocol::openai::ErrorBody;
use crate::protocol::shared::{
    Body, SseEvent, StreamWriter, fit_later_system, random_id, sse_response, unix_seconds, written,
};
use crate::reply::{self, PromptLimit, Replies, ReplyEvent};

/// Generates a response.
#[utoipa::path(
    post,
    path = "/v1/responses",
    request_body(content = ResponsesRequest, example = json!({"input": "What is a slice?", "max_output_tokens": 64})),
    responses(
        (status = 200, description = "A response, or its events", content(
            (ResponseObject = "application/json"),
            (serde_json::Value = "text/event-stream"),
        )),
        (status = "default", description = "An error", body = ErrorBody),
    ),
)]
pub(super) async fn responses(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    match answer(state, info, body).await {
        Ok(response) => response,
        Err(error) => error_response(&error),
    }
}

/// Counts the tokens of a conversation.
#[utoipa::path(
    post,
    path = "/v1/responses/input_tokens",
    request_body(content = ResponsesRequest, example = json!({"input": "What is a slice?", "max_output_tokens": 64})),
    responses(
        (status = 200, description = "The number of tokens", body = InputTokens),
        (status = "default", description = "An error", body = ErrorBody),
    ),
)]
pub(super) async fn input_tokens(
    State(state): State<AppState>,
    info: RequestInfo,
    body: Bytes,
) -> Response {
    match answer_count(state, info, body).await {
        Ok(response) => response,
        Err(error) => error_response(&error),
    }
}

/// A request with its model.
struct ReadRequest {
    model: Arc<ServedModel>,
    delivery: Delivery,
    translated: TranslatedRequest,
}

/// The form in which a response is sent.
#[derive(Clone, Copy)]
enum Delivery {
    Whole,
    Streamed,
}

async fn read(
    state: &AppState,
    info: &RequestInfo,
    body: &Bytes,
) -> Result<ReadRequest, RequestError> {
    let body = Body::parse(body)?;
    body.refuse(REFUSED)?;
    let request: ResponsesRequest = body.read()?;
    let model = state.models.find(request.model.as_deref()).await?;
    let mut translated = translate(&request, info, &model.defaults)?;
    translated.reply.prompt = fit_later_system(&model, translated.reply.prompt).await;
    let delivery = if request.stream == Some(true) {
        Delivery::Streamed
    } else {
        Delivery::Whole
    };
    Ok(ReadRequest {
        model,
        delivery,
        translated,
    })
}

async fn answer(state: AppState, info: RequestInfo, body: Bytes) -> Result<Response, RequestError> {
    let ReadRequest {
        model,
        delivery,
        translated,
    } = read(&state, &info, &body).await?;
    let replies = reply::start(&model, translated.reply).await?;
    let writer = ResponseWriter::new(ResponseStart {
        id: random_id(""),
        created_at: unix_seconds(),
        model: model.name.clone(),
        parameters: translated.parameters,
    });
    match delivery {
        Delivery::Streamed => Ok(streamed(writer, replies)),
        Delivery::Whole => whole(writer, replies).await,
    }
}

async fn answer_count(
    state: AppState,
    info: RequestInfo,
    body: Bytes,
) -> Result<Response, RequestError> {
    let request = read(&state, &info, &body).await?;
    let prompt = request.translated.reply.prompt;
    let tokens = reply::prompt_tokens(&request.model, prompt, PromptLimit::None).await?;
    let count = InputTokens {
        object: "response.input_tokens",
        input_tokens: tokens.len() as u32,
    };
    Ok(Json(count).into_response())
}

/// Sends the events of a response as they come.
fn streamed(mut writer: ResponseWriter, replies: Replies) -> Response {
    let first: Vec<SseEvent> = writer.start().iter().map(|event| event.sse()).collect();
    let rest = written(UnboundedReceiverStream::new(replies.events), writer);
    // The specification of Open Responses ends streams in this way. OpenAI's SDKs accept it.
    let last = SseEvent::text("[DONE]");
    sse_response(stream::iter(first).chain(rest).chain(stream::iter([last])))
}

impl StreamWriter for ResponseWriter {
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

/// Returns the response when it is complete.
async fn whole(mut writer: ResponseWriter, mut replies: Replies) -> Result<Response, RequestError> {
    while let Some(event) = replies.events.recv().await {
        writer.push(event.part);
    }
    Ok(Json(writer.finish()?).into_response())
}
