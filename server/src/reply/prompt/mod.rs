//! Prompts: texts, token ids and conversations become tokens.

mod adapted;
mod chat;
mod message;
mod variables;

pub(super) use chat::{RenderedChat, ReplyBegin, render};

use super::request::ReplyPrompt;
use crate::error::RequestError;
use crate::models::ServedModel;

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
    /// Returns an error if the template refuses the conversation, or if a text cannot be tokenized.
    pub(super) fn new(
        model: &ServedModel,
        prompt: ReplyPrompt,
    ) -> Result<PreparedPrompt, RequestError> {
        let fault = |param: &str, error: warpwright_model::Error| {
            RequestError::invalid(param, error.to_string())
        };
        match prompt {
            ReplyPrompt::Tokens(tokens) => Ok(PreparedPrompt { tokens, chat: None }),
            ReplyPrompt::Text(text) => {
                let tokens = model.tokenizer.encode(&text);
                let tokens = tokens.map_err(|error| fault("prompt", error))?;
                Ok(PreparedPrompt { tokens, chat: None })
            }
            ReplyPrompt::Chat(chat) => {
                let chat = render(model, chat)?;
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
