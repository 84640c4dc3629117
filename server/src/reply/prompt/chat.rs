//! Conversations: the chat template renders them.
//!
//! The text of messages is not escaped, as in `warpwright chat`. A message that contains the name
//! of a control token therefore contains this token.

use std::sync::Arc;

use warpwright_model::chat::{self, CallStream, ChatTemplate, Conversation, Then, Tools};

use super::adapted;
use super::message::MessageForm;
use super::variables::variables;
use crate::error::RequestError;
use crate::models::ServedModel;
use crate::reply::request::{CallLimit, ChatMessage, ChatPrompt, ToolChoice};

/// A rendered conversation.
pub(crate) struct RenderedChat {
    pub(crate) text: String,
    /// The template that rendered it.
    pub(crate) template: ChatTemplate,
    /// The input of the template.
    pub(crate) conversation: Conversation,
    /// The tools that the model may call.
    pub(crate) tools: Option<Tools>,
    pub(crate) tool_choice: ToolChoice,
    pub(crate) call_limit: CallLimit,
    pub(crate) begin: ReplyBegin,
}

/// The beginning of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyBegin {
    /// It is a new message.
    New,
    /// It continues the last message.
    Continued,
}

impl RenderedChat {
    /// Returns a reader of thoughts, text and calls of the reply.
    pub(crate) fn reader(&self) -> CallStream<'_> {
        self.template
            .reply(self.tools.as_ref(), &self.conversation, &self.text)
    }

    /// Returns true if a control token belongs to the text that the reader reads.
    pub(crate) fn shows(&self, spelling: &str) -> bool {
        self.template.shows_in_reply(self.tools.as_ref(), spelling)
    }
}

/// Renders a conversation up to the point where the assistant continues.
///
/// # Errors
/// Returns an error if there is no template, if it refuses the conversation, or if it does not know
/// tools and the request has some.
pub(crate) fn render(
    model: &ServedModel,
    prompt: ChatPrompt,
) -> Result<RenderedChat, RequestError> {
    let ChatPrompt {
        messages,
        tools,
        tool_choice,
        call_limit,
        reasoning,
        variables: own,
    } = prompt;
    check_messages(&messages)?;
    let tools = tools_for(&tool_choice, tools)?;
    let template = template(model, tools.as_ref())?;
    let inputs = TemplateInputs {
        form: MessageForm::of(&template),
        tools: tools.as_ref().map(Tools::value),
        variables: variables(&template, &model.template_variables, &reasoning, &own)?,
        template: &template,
    };
    let (conversation, text) = inputs.render(&messages)?;
    let is_continued = messages.last().is_some_and(|last| last.role == ASSISTANT);
    Ok(RenderedChat {
        text,
        begin: if is_continued {
            ReplyBegin::Continued
        } else {
            ReplyBegin::New
        },
        conversation,
        tools,
        tool_choice,
        call_limit,
        template,
    })
}

/// Checks that the assistant can continue after the messages.
fn check_messages(messages: &[ChatMessage]) -> Result<(), RequestError> {
    let Some(last) = messages.last() else {
        return Err(RequestError::invalid(
            "messages",
            "the conversation has no message",
        ));
    };
    if last.role == ASSISTANT && !last.calls.is_empty() {
        let place = format!("messages[{}]", messages.len() - 1);
        let message = format!(
            "{place} calls tools and is the last message; add a message with the role tool for each call"
        );
        return Err(RequestError::invalid(place, message));
    }
    Ok(())
}

const ASSISTANT: &str = "assistant";

/// Returns the tools that the model is told of.
fn tools_for(choice: &ToolChoice, tools: Option<Tools>) -> Result<Option<Tools>, RequestError> {
    let fault = |message: String| Err(RequestError::invalid("tool_choice", message));
    match (choice, &tools) {
        (ToolChoice::None, _) => Ok(None),
        (ToolChoice::Auto, _) | (ToolChoice::Required, Some(_)) => Ok(tools),
        (ToolChoice::Function(name), Some(known)) => {
            if known.names().any(|known| known == name) {
                return Ok(tools);
            }
            let names: Vec<&str> = known.names().collect();
            fault(format!(
                "tool_choice names the function {name}, which is not among the tools: {}",
                names.join(", ")
            ))
        }
        (ToolChoice::Required | ToolChoice::Function(_), None) => {
            fault("tool_choice demands a call, but the request has no tools".to_owned())
        }
    }
}

/// Returns the template for a conversation with these tools, with the date of the day.
fn template(model: &ServedModel, tools: Option<&Tools>) -> Result<ChatTemplate, RequestError> {
    let found = match tools {
        Some(_) => model.tool_template.as_ref().or(model.template.as_ref()),
        None => model.template.as_ref(),
    };
    let Some(found) = found else {
        return Err(RequestError::invalid(
            "messages",
            format!(
                "the model {} has no chat template, so it cannot read messages; send a text to \
                 /v1/completions, or start the server with --chat-template FILE or --chat-template chatml",
                model.name
            ),
        ));
    };

    // A copy has the formats of the original only if the original has found them already, which takes
    // several renderings.
    found.find_formats();
    if tools.is_some() {
        check_tools(found)?;
    }
    let mut template = ChatTemplate::clone(found);

    // The date changes while the server runs, unless it was set.
    template.set_date(found.date().unwrap_or_else(chat::today));
    Ok(template)
}

/// Checks that a template passes tools on to the model, and that calls can be read.
fn check_tools(template: &Arc<ChatTemplate>) -> Result<(), RequestError> {
    if !template.takes_tools() {
        return Err(RequestError::invalid(
            "tools",
            "the chat template of this model ignores tools; leave tools out, or start the server with another template",
        ));
    }
    if !template.knows_calls() {
        return Err(RequestError::invalid(
            "tools",
            "the format of tool calls in the chat template of this model is not supported; leave tools out, or start \
             the server with another template",
        ));
    }
    Ok(())
}

/// The inputs of a template apart from the messages.
struct TemplateInputs<'a> {
    template: &'a ChatTemplate,
    form: MessageForm,
    tools: Option<chat::Value>,
    variables: Vec<(String, chat::Value)>,
}

/// A text that marks the end of a message that the assistant continues.
const CONTINUES: &str = "ZqContinuesHereZq";

/// The maximum number of messages among which the one that a template refuses is looked for.
const MAX_PLACES: usize = 64;

impl TemplateInputs<'_> {
    /// Renders messages, or an equivalent form of them if the template refuses them.
    fn render(&self, messages: &[ChatMessage]) -> Result<(Conversation, String), RequestError> {
        let error = match self.attempt(messages) {
            Ok(rendered) => return Ok(rendered),
            Err(error) => error,
        };
        let with_ids = adapted::with_short_ids(messages);
        let joined = adapted::joined(with_ids.as_deref().unwrap_or(messages));
        for messages in [with_ids, joined].into_iter().flatten() {
            if let Ok(rendered) = self.attempt(&messages) {
                return Ok(rendered);
            }
        }

        Err(RequestError::invalid(self.place(messages, &error), error))
    }

    /// Returns the place of the message that a template refuses, if it is the same without the
    /// later ones.
    fn place(&self, messages: &[ChatMessage], error: &str) -> String {
        let count = messages.len();
        let is_refused =
            |end: &usize| self.attempt(&messages[..*end]).err().as_deref() == Some(error);
        let place = (1..count.min(MAX_PLACES)).find(is_refused);
        match place {
            Some(end) => format!("messages[{}]", end - 1),
            None if count <= MAX_PLACES => format!("messages[{}]", count - 1),
            None => "messages".to_owned(),
        }
    }

    /// Renders messages up to the point where the assistant continues.
    ///
    /// # Errors
    /// Returns the reason as a sentence.
    fn attempt(&self, messages: &[ChatMessage]) -> Result<(Conversation, String), String> {
        let continued = messages.last().filter(|last| last.role == ASSISTANT);
        let (conversation, text) = match continued {
            Some(last) => self.continued(messages, last)?,
            None => {
                let conversation = self.conversation(messages);
                let text = self.text(&conversation, Then::Reply)?;
                (conversation, text)
            }
        };
        if text.is_empty() {
            return Err("the chat template renders the conversation as an empty text".to_owned());
        }
        Ok((conversation, text))
    }

    /// Renders messages of which the assistant continues the last one.
    fn continued(
        &self,
        messages: &[ChatMessage],
        last: &ChatMessage,
    ) -> Result<(Conversation, String), String> {
        let before = &messages[..messages.len() - 1];

        // A template may remove white space at the end of a message, or write something after it.
        // A word at its end shows where the message continues.
        let mut marked = last.clone();
        marked.content.push_str(CONTINUES);
        let marked = [before, &[marked]].concat();
        let mut text = self.text(&self.conversation(&marked), Then::End)?;
        let conversation = self.conversation(before);
        if let Some(end) = text.rfind(CONTINUES) {
            text.truncate(end);
            return Ok((conversation, text));
        }

        // The template leaves the message out. Its text follows the beginning of a reply.
        let mut text = self.text(&conversation, Then::Reply)?;
        text.push_str(&last.content);
        Ok((conversation, text))
    }

    fn text(&self, conversation: &Conversation, then: Then) -> Result<String, String> {
        let rendered = self.template.render(conversation, then);
        rendered
            .map(|rendered| rendered.text)
            .map_err(|error| error.to_string())
    }

    fn conversation(&self, messages: &[ChatMessage]) -> Conversation {
        Conversation {
            messages: messages
                .iter()
                .map(|message| self.form.value(message))
                .collect(),
            tools: self.tools.clone(),
            more: self.variables.clone(),
        }
    }
}
