//! The collection of whole replies.

use std::sync::Arc;

use super::request::PreparedCompletion;
use crate::error::{ErrorKind, RequestError};
use crate::models::ServedModel;
use crate::reply::{self, ReplyEnded, ReplyPart, TokenText};

/// A whole reply.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The index of its prompt.
    pub(super) prompt: usize,
    /// The index of the reply among all replies to the request.
    pub(super) index: usize,
    /// The number of tokens of the prompt that were in the cache.
    pub(super) cached: u32,
    pub(super) text: String,
    /// The tokens, if they were asked for.
    pub(super) tokens: Vec<TokenText>,
    pub(super) ended: Option<ReplyEnded>,
}

impl Collected {
    /// Returns all replies to a request, in order.
    ///
    /// # Errors
    /// Returns the error of the first reply that fails.
    pub(super) async fn of(
        model: &Arc<ServedModel>,
        prepared: &PreparedCompletion,
    ) -> Result<Vec<Collected>, RequestError> {
        // All prompts are queued before the first reply is read, so that they run together.
        let mut started = vec![];
        for request in prepared.requests() {
            started.push(reply::start(model, request).await?);
        }
        let mut all = vec![];
        for (prompt, mut replies) in started.into_iter().enumerate() {
            let count = prepared.count as usize;
            let mut collected: Vec<Collected> = (0..count)
                .map(|index| Collected {
                    prompt,
                    index: prompt * count + index,
                    ..Collected::default()
                })
                .collect();
            while collected.iter().any(|reply| reply.ended.is_none()) {
                let event = replies.events.recv().await;
                let Some(event) = event else {
                    return Err(RequestError::new(
                        ErrorKind::Internal,
                        "the reply has no end",
                    ));
                };
                collected[event.index as usize].add(event.part)?;
            }
            all.extend(collected);
        }
        Ok(all)
    }

    /// Adds a part of the reply.
    ///
    /// # Errors
    /// Returns the error of a failed reply.
    pub(super) fn add(&mut self, part: ReplyPart) -> Result<(), RequestError> {
        match part {
            ReplyPart::Started { cached_tokens, .. } => self.cached = cached_tokens,
            ReplyPart::Tokens(tokens) => self.tokens.extend(tokens),
            // A prompt that is no conversation has a reply without reasoning and calls.
            ReplyPart::Text(text) | ReplyPart::Reasoning(text) => self.text.push_str(&text),
            ReplyPart::Prompt(_) | ReplyPart::Call(_) => {}
            ReplyPart::Ended(ended) => self.ended = Some(ended),
            ReplyPart::Failed(error) => return Err(error),
        }
        Ok(())
    }
}
