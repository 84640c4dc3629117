//! The endpoint `POST /v1/completions`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SelectAll, select_all};
use futures_util::{Stream, StreamExt};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::call::{CompletionBody, CompletionCall, Echo, completion_call};
use super::response::{Completion, CompletionCollector, CompletionTexts};
use super::stream::CompletionStream;
use crate::error::{ErrorKind, RequestError};
use crate::http::identity::RequestInfo;
use crate::http::state::AppState;
use crate::models::ServedModel;
use crate::protocol::openai::error::{ErrorBody, error_response};
use crate::protocol::openai::form::Delivery;
use crate::protocol::openai::head::ResponseHead;
use crate::protocol::shared::{Body, sse_response, written};
use crate::reply::{self, Replies, ReplyEvent, ReplyPrompt, ReplyRequest};

/// The longest time between two attempts to start the reply to a prompt.
const RETRY: Duration = Duration::from_millis(50);

/// Continues texts.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "OpenAI",
    request_body(content = CompletionBody, example = json!({"prompt": "The borrow checker", "max_tokens": 16})),
    responses(
        (status = 200, description = "The texts, or server-sent events", content(
            (Completion = "application/json"),
            (serde_json::Value = "text/event-stream"),
        )),
        (status = "4XX", description = "The request is wrong", body = ErrorBody),
        (status = "5XX", description = "The server has failed", body = ErrorBody),
    ),
)]
pub(crate) async fn completions(
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
    let call = completion_call(&body, &info.id, info.salt)?;
    let model = state.models.find(call.model.as_deref()).await?;
    let head = ResponseHead::new("cmpl-", &model.name);
    let texts = texts(&model, &call);
    let form = call.form;
    let count = call.count;

    let replies = started(&model, call.replies).await?;
    let mut events = merged(replies, count);
    match form.delivery {
        Delivery::Events => {
            let writer = CompletionStream::new(head, form, texts);
            Ok(sse_response(written(events, writer)))
        }
        Delivery::Whole => {
            let mut collector = CompletionCollector::new(texts);
            while let Some(event) = events.next().await {
                collector.add(event)?;
            }
            Ok(Json(collector.finish(&head)?).into_response())
        }
    }
}

/// Starts the replies to all prompts. If a prompt is refused, the replies to the earlier ones are
/// dropped and thereby canceled.
async fn started(
    model: &Arc<ServedModel>,
    requests: Vec<ReplyRequest>,
) -> Result<Vec<Replies>, RequestError> {
    let mut replies: Vec<Replies> = vec![];
    for request in requests {
        let started = loop {
            match reply::start(model, request.clone()).await {
                // A request with more prompts than the queue has places must not fail each time.
                // Its first prompt has a place, so the others come to their turn.
                Err(RequestError {
                    kind: ErrorKind::QueueFull { retry_after },
                    ..
                }) if !replies.is_empty() => tokio::time::sleep(retry_after.min(RETRY)).await,
                other => break other?,
            }
        };
        replies.push(started);
    }
    Ok(replies)
}

/// Returns the texts of the prompts, if the response needs them.
fn texts(model: &Arc<ServedModel>, call: &CompletionCall) -> CompletionTexts {
    let needed = call.echo == Echo::Prompt || call.form.logprobs;
    let prompts = call.replies.iter().map(|request| match &request.prompt {
        ReplyPrompt::Text(text) if needed => text.clone(),
        ReplyPrompt::Tokens(tokens) if needed => model.tokenizer.decode(tokens),
        ReplyPrompt::Text(_) | ReplyPrompt::Tokens(_) | ReplyPrompt::Chat(_) => String::new(),
    });
    CompletionTexts {
        prompts: prompts.collect(),
        count: call.count,
        echo: call.echo,
        logprobs: call.form.logprobs,
    }
}

/// Returns the events of the replies to all prompts, with the indices of the choices.
fn merged(
    replies: Vec<Replies>,
    count: u32,
) -> SelectAll<impl Stream<Item = ReplyEvent> + Send + Unpin + 'static> {
    let streams = (0..).zip(replies).map(|(prompt, replies)| {
        UnboundedReceiverStream::new(replies.events).map(move |event| ReplyEvent {
            index: prompt * count + event.index,
            part: event.part,
        })
    });
    select_all(streams)
}
