//! The endpoint of the Responses API.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

use super::error::error_response;
use super::object::ResponseObject;
use super::request::{REFUSED, ResponsesRequest};
use super::stream::{ResponseStart, ResponseWriter};
use super::translate::translate;
use crate::error::RequestError;
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::protocol::openai::ErrorBody;
use crate::protocol::shared::{
    self, Body, SseEvent, fit_later_system, random_id, sse_response, unix_seconds,
};
use crate::reply::{self, Replies, ReplyPrompt};

/// Generates a response.
#[utoipa::path(
    post,
    path = "/v1/responses",
    request_body = ResponsesRequest,
    responses(
        (status = 200, description = "A response, or its events", body = ResponseObject),
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

async fn answer(state: AppState, info: RequestInfo, body: Bytes) -> Result<Response, RequestError> {
    let body = Body::parse(&body)?;
    body.refuse(REFUSED)?;
    let request: ResponsesRequest = body.read()?;
    let model = state.models.find(request.model.as_deref()).await?;
    let mut translated = translate(&request, &info, &model.defaults)?;
    if let ReplyPrompt::Chat(chat) = translated.reply.prompt {
        translated.reply.prompt = ReplyPrompt::Chat(fit_later_system(&model, chat).await);
    }
    let replies = reply::start(&model, translated.reply).await?;

    let writer = ResponseWriter::new(ResponseStart {
        id: random_id(""),
        created_at: unix_seconds(),
        model: model.name.clone(),
        parameters: translated.parameters,
    });
    if request.stream == Some(true) {
        Ok(streamed(writer, replies))
    } else {
        whole(writer, replies).await
    }
}

/// Sends the events of a response as they come.
fn streamed(mut writer: ResponseWriter, replies: Replies) -> Response {
    let first: Vec<SseEvent> = writer.start().iter().map(|event| event.sse()).collect();
    let rest = shared::written(replies.events, writer, |writer, event| {
        let events = match event {
            Some(event) => writer.push(event.part),
            None => writer.interrupt(),
        };
        events.iter().map(|event| event.sse()).collect()
    });
    // The specification of Open Responses ends streams in this way. OpenAI's SDKs accept it.
    let last = SseEvent::text("[DONE]");
    sse_response(stream::iter(first).chain(rest).chain(stream::iter([last])))
}

/// Returns the response when it is complete.
async fn whole(mut writer: ResponseWriter, mut replies: Replies) -> Result<Response, RequestError> {
    while let Some(event) = replies.events.recv().await {
        writer.push(event.part);
    }
    Ok(Json(writer.finish()?).into_response())
}
