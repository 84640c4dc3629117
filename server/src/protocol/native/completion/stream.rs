//! Streams of completions.

use std::sync::Arc;

use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::{self, select_all};
use serde_json::{Value, json};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::collect::Collected;
use super::request::PreparedCompletion;
use super::response;
use crate::error::RequestError;
use crate::models::ServedModel;
use crate::protocol::native::error::error_object;
use crate::protocol::shared::{SseEvent, sse_response};
use crate::reply::{self, ReplyPart, TokenText};

/// Starts the replies and returns the stream of their events. The stream ends after the last event
/// of the last reply, without `[DONE]`.
///
/// # Errors
/// Returns an error if a reply cannot start.
pub(super) async fn respond(
    model: Arc<ServedModel>,
    prepared: PreparedCompletion,
) -> Result<Response, RequestError> {
    let mut sources = vec![];
    for (prompt, request) in prepared.requests().enumerate() {
        let replies = reply::start(&model, request).await?;
        let events = UnboundedReceiverStream::new(replies.events);
        sources.push(events.map(move |event| (prompt, event)));
    }

    let count = prepared.count as usize;
    let mut writers: Vec<ReplyWriter> = (0..prepared.prompts.len() * count)
        .map(|index| ReplyWriter::new(index, index / count))
        .collect();
    let events = select_all(sources).flat_map(move |(prompt, event)| {
        let writer = &mut writers[prompt * count + event.index as usize];
        let chunks = writer.part(&model, &prepared, event.part);
        stream::iter(chunks.into_iter().map(|chunk| SseEvent::json(&chunk)))
    });
    Ok(sse_response(events))
}

/// Writes the events of one reply.
struct ReplyWriter {
    reply: Collected,
    /// The tokens whose text has not arrived yet.
    pending: Vec<TokenText>,
}

impl ReplyWriter {
    fn new(index: usize, prompt: usize) -> ReplyWriter {
        ReplyWriter {
            reply: Collected {
                prompt,
                index,
                ..Collected::default()
            },
            pending: vec![],
        }
    }

    /// Returns the events that a part of the reply becomes.
    fn part(
        &mut self,
        model: &ServedModel,
        prepared: &PreparedCompletion,
        part: ReplyPart,
    ) -> Vec<Value> {
        match &part {
            ReplyPart::Tokens(tokens) => self.pending.extend(tokens.iter().cloned()),
            ReplyPart::Text(text) => {
                let text = text.clone();
                return self.text(prepared, part, &text);
            }
            ReplyPart::Started { .. }
            | ReplyPart::Prompt(_)
            | ReplyPart::Reasoning(_)
            | ReplyPart::Call(_)
            | ReplyPart::Ended(_)
            | ReplyPart::Failed(_) => {}
        }
        let is_end = matches!(part, ReplyPart::Ended(_));
        match self.reply.add(part) {
            Err(error) => vec![json!({ "error": error_object(&error) })],
            Ok(()) if is_end => vec![response::selected(
                response::last(model, prepared, &self.reply),
                &prepared.response_fields,
            )],
            Ok(()) => vec![],
        }
    }

    /// Returns an event for each token of a text, if each token is a text of its own.
    fn text(&mut self, prepared: &PreparedCompletion, part: ReplyPart, text: &str) -> Vec<Value> {
        let tokens = std::mem::take(&mut self.pending);
        if self.reply.add(part).is_err() {
            return vec![];
        }
        let pieces: Option<Vec<&str>> = tokens
            .iter()
            .map(|token| std::str::from_utf8(&token.bytes).ok())
            .collect();
        let pieces = pieces.filter(|pieces| pieces.concat() == text);
        match pieces {
            Some(pieces) => {
                let chunks = pieces.iter().zip(&tokens).map(|(piece, token)| {
                    let tokens = std::slice::from_ref(token);
                    response::chunk(prepared, &self.reply, piece, tokens)
                });
                chunks.collect()
            }
            // A character of several tokens, or a text that was held back as a possible stop string.
            None => vec![response::chunk(prepared, &self.reply, text, &tokens)],
        }
    }
}
