//! Prompts: texts, token ids and conversations become tokens.

mod adapted;
mod chat;
mod message;
mod variables;

pub(super) use chat::{RenderedChat, ReplyBegin, render};

use super::request::ReplyPrompt;
use crate::error::{ErrorKind, RequestError};
use crate::models::ServedModel;

/// The maximum length of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptLimit {
    /// The context.
    Context,
    /// There is none, because the tokens are only counted.
    None,
}

impl PromptLimit {
    /// Returns an error if a text has certainly more tokens than allowed. This is found from its
    /// length in bytes, because tokenizing takes much time and memory.
    ///
    /// # Errors
    /// Returns [`ErrorKind::ContextExceeded`].
    pub(crate) fn check(self, model: &ServedModel, text: &str) -> Result<(), RequestError> {
        let ctx = model.scheduler.usable_ctx();
        if self == PromptLimit::None || text.len() < ctx as usize {
            return Ok(());
        }
        let least = model.token_bound.least_tokens(text);
        if least <= ctx as usize {
            return Ok(());
        }
        let prompt = u32::try_from(least).unwrap_or(u32::MAX);
        // The words are those of `SubmitError::Context`, for which agents look.
        let message = format!(
            "the prompt of {} bytes, which has at least {prompt} tokens, exceeds the available \
             context size of {ctx} tokens; shorten the prompt",
            text.len()
        );
        Err(RequestError::new(
            ErrorKind::ContextExceeded { prompt, ctx },
            message,
        ))
    }
}

/// A prompt as tokens.
pub(super) struct PreparedPrompt {
    pub(super) tokens: Vec<u32>,
    /// The conversation, if the prompt is one.
    pub(super) chat: Option<RenderedChat>,
}

impl PreparedPrompt {
    /// Renders and tokenizes a prompt.
    ///
    /// # Errors
    /// Returns an error if the template refuses the conversation, if a text is much longer than the
    /// limit, or if it cannot be tokenized.
    pub(super) fn new(
        model: &ServedModel,
        prompt: ReplyPrompt,
        limit: PromptLimit,
    ) -> Result<PreparedPrompt, RequestError> {
        let fault = |param: &str, error: warpwright_model::Error| {
            RequestError::invalid(param, error.to_string())
        };
        match prompt {
            ReplyPrompt::Tokens(tokens) => Ok(PreparedPrompt { tokens, chat: None }),
            ReplyPrompt::Text(text) => {
                limit.check(model, &text)?;
                let tokens = model.tokenizer.encode(&text);
                let tokens = tokens.map_err(|error| fault("prompt", error))?;
                Ok(PreparedPrompt { tokens, chat: None })
            }
            ReplyPrompt::Chat(chat) => {
                let chat = render(model, chat)?;
                limit.check(model, &chat.text)?;
                // The template writes BOS where the model expects it.
                let tokens = model.tokenizer.encode_rendered(&chat.text);
                let tokens = tokens.map_err(|error| fault("messages", error))?;
                Ok(PreparedPrompt {
                    tokens,
                    chat: Some(chat),
                })
            }
        }
    }
}
