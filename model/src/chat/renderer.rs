//! A compiled template, and the texts that it renders.

use std::ops::Range;
use std::sync::Arc;

use jiff::civil::Date;

use super::bounded;
use super::jinja::{self, Inputs, MARKS};
use super::value::Value;

/// A compiled template with its fixed inputs. It knows nothing of tool calls, so that the search
/// for their format can use it.
#[derive(Debug, Clone)]
pub(super) struct Renderer {
    template: Arc<jinja::Template>,
    /// The variables that contain the name of a token, such as `bos_token`.
    special: Vec<(&'static str, String)>,
    /// The date that `strftime_now` returns. Without it, a template that reads the date fails.
    pub(super) date: Option<Date>,
}

/// The messages of a conversation, and the other inputs of a template.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Objects with `role`, `content`, and other keys that the template reads.
    pub messages: Vec<Value>,
    /// Descriptions of functions that the assistant may call.
    pub tools: Option<Value>,
    /// Additional variables of the template, such as `enable_thinking`.
    pub more: Vec<(String, Value)>,
}

/// The text after the last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing follows.
    End,
    /// The beginning of a reply follows, which the assistant continues.
    Reply,
}

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text. It contains control tokens by their names.
    pub text: String,
    /// The byte ranges of the text inside `{% generation %}`, in order.
    pub replies: Vec<Range<usize>>,
}

impl Renderer {
    /// Compiles a template.
    ///
    /// # Errors
    /// Returns an error with the line if the text is not a template in Jinja.
    pub(super) fn new(
        text: &str,
        special: Vec<(&'static str, String)>,
    ) -> Result<Renderer, String> {
        let text = text.to_owned();
        let template = bounded::run(bounded::TIME, move || {
            jinja::Template::new(&text)
                .map(Arc::new)
                .map_err(|error| error.to_string())
        })?;
        Ok(Renderer {
            template,
            special,
            date: None,
        })
    }

    /// Returns true if the template marks the assistant's replies with `{% generation %}`.
    pub(super) fn marks_replies(&self) -> bool {
        self.template.marks_replies()
    }

    /// Returns true if the template reads the date of the day.
    pub(super) fn asks_date(&self) -> bool {
        self.template.asks_date()
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// Returns an error if the template refuses the conversation, or if it does something that is
    /// not supported.
    pub(super) fn render(
        &self,
        conversation: &Conversation,
        then: Then,
    ) -> Result<Rendered, String> {
        let Conversation {
            messages,
            tools,
            more,
        } = conversation;
        let mut variables = vec![];
        for (name, text) in &self.special {
            variables.push(((*name).to_owned(), Value::from(text.as_str())));
        }

        // As in transformers, the caller's variables override those of tokens, and the conversation
        // overrides both.
        variables.extend(more.iter().cloned());
        let given = [
            ("messages", Value::Array(messages.clone())),
            ("tools", tools.clone().unwrap_or_default()),
            ("documents", Value::Null),
            ("add_generation_prompt", Value::Bool(then == Then::Reply)),
        ];
        variables.extend(given.map(|(name, value)| (name.to_owned(), value)));
        let date = self.date.map(|date| jinja::Date {
            year: date.year().into(),
            month: date.month().unsigned_abs().into(),
            day: date.day().unsigned_abs().into(),
        });
        let template = Arc::clone(&self.template);
        let inputs = Inputs {
            variables,
            date,
            fuel: bounded::FUEL,
        };
        let render = move || template.render(&inputs).map_err(|error| error.to_string());
        let text = bounded::run(bounded::TIME, render)?;
        if !self.marks_replies() {
            return Ok(Rendered {
                text,
                replies: vec![],
            });
        }

        unmarked(&text)
    }
}

/// Removes the marks from a text, and returns the ranges that were between them.
fn unmarked(marked: &str) -> Result<Rendered, String> {
    let mut rendered = Rendered {
        text: String::with_capacity(marked.len()),
        replies: vec![],
    };
    let mut open = None;
    for c in marked.chars() {
        match (open, c) {
            (None, c) if c == MARKS[0] => open = Some(rendered.text.len()),
            (Some(start), c) if c == MARKS[1] => {
                rendered.replies.push(start..rendered.text.len());
                open = None;
            }
            (_, c) if MARKS.contains(&c) => {
                return Err(
                    "nests {% generation %}, or a message has the characters U+FDD0 or U+FDD1"
                        .to_owned(),
                );
            }
            (_, c) => rendered.text.push(c),
        }
    }

    Ok(rendered)
}
