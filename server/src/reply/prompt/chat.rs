//! Conversations: the chat template renders them.

use warpwright_model::chat::{self, CallStream, ChatTemplate, Conversation, Then, Tools};

use super::message;
use crate::error::RequestError;
use crate::models::ServedModel;
use crate::reply::request::{CallLimit, ChatPrompt, ToolChoice};

/// A rendered conversation.
pub(in crate::reply) struct RenderedChat {
    pub(in crate::reply) text: String,
    /// The template that rendered it.
    pub(in crate::reply) template: ChatTemplate,
    /// The input of the template.
    pub(in crate::reply) conversation: Conversation,
    /// The tools that the model may call.
    pub(in crate::reply) tools: Option<Tools>,
    pub(in crate::reply) call_limit: CallLimit,
}

impl RenderedChat {
    /// Returns a reader of thoughts, text and calls of the reply.
    pub(in crate::reply) fn reader(&self) -> CallStream<'_> {
        self.template
            .reply(self.tools.as_ref(), &self.conversation, &self.text)
    }

    /// Returns true if a control token belongs to the text that the reader reads.
    pub(in crate::reply) fn shows(&self, spelling: &str) -> bool {
        self.template.shows_in_reply(self.tools.as_ref(), spelling)
    }
}

/// Renders a conversation up to the point where the assistant continues.
///
/// # Errors
/// Returns an error if there is no template, or if it refuses the conversation.
pub(in crate::reply) fn render(
    model: &ServedModel,
    prompt: ChatPrompt,
) -> Result<RenderedChat, RequestError> {
    let tools = match prompt.tool_choice {
        ToolChoice::None => None,
        ToolChoice::Auto | ToolChoice::Required | ToolChoice::Function(_) => prompt.tools,
    };
    let found = match &tools {
        Some(_) => model.tool_template.as_ref().or(model.template.as_ref()),
        None => model.template.as_ref(),
    };
    let Some(found) = found else {
        return Err(RequestError::invalid(
            "messages",
            format!(
                "the model {} has no chat template, so it cannot read messages; send a prompt to \
                 /v1/completions, or start the server with --chat-template",
                model.name
            ),
        ));
    };

    // The date changes while the server runs, unless it was fixed.
    let mut template = ChatTemplate::clone(found);
    template.set_date(found.date().unwrap_or_else(chat::today));
    let conversation = Conversation {
        messages: prompt.messages.iter().map(message::value).collect(),
        tools: tools.as_ref().map(Tools::value),
        more: prompt
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), chat::Value::from(chat::Serde(value))))
            .collect(),
    };
    let rendered = template
        .render(&conversation, Then::Reply)
        .map_err(|error| RequestError::invalid("messages", error.to_string()))?;
    Ok(RenderedChat {
        text: rendered.text,
        template,
        conversation,
        tools,
        call_limit: prompt.call_limit,
    })
}
