//! Instructions after the first message of a conversation.

use std::sync::Arc;

use super::builder::{fold_later_system, has_later_system};
use crate::models::ServedModel;
use crate::reply::{self, ChatMessage, ChatPrompt, ReplyPrompt};

/// A text that no template contains.
const PROBE: &str = "5b3f9c1e";

/// Returns a prompt that the model's template can render. Claude Code and Codex send instructions
/// in the middle of a conversation. Some templates refuse them or leave them out, so for these they
/// become text of the user. Other prompts than conversations are returned as they are.
pub async fn fit_later_system(model: &Arc<ServedModel>, prompt: ReplyPrompt) -> ReplyPrompt {
    match prompt {
        ReplyPrompt::Chat(chat) => ReplyPrompt::Chat(fit_chat(model, chat).await),
        other @ (ReplyPrompt::Text(_) | ReplyPrompt::Tokens(_)) => other,
    }
}

/// Works like [`fit_later_system`] for a conversation.
pub async fn fit_chat(model: &Arc<ServedModel>, chat: ChatPrompt) -> ChatPrompt {
    if !has_later_system(&chat.messages) || keeps_later_system(model).await {
        return chat;
    }
    ChatPrompt {
        messages: fold_later_system(chat.messages),
        ..chat
    }
}

/// Returns true if the model's template renders instructions after a message of the user.
async fn keeps_later_system(model: &Arc<ServedModel>) -> bool {
    let message = |role: &str, content: &str| ChatMessage {
        role: role.to_owned(),
        content: content.to_owned(),
        ..ChatMessage::default()
    };
    let prompt = ChatPrompt {
        messages: vec![
            message("system", "a"),
            message("user", "b"),
            message("system", PROBE),
        ],
        ..ChatPrompt::default()
    };
    // An error of a template without the probe, for example because the model has none, is found
    // when the real conversation is rendered.
    reply::render(model, prompt)
        .await
        .is_ok_and(|text| text.contains(PROBE))
}
