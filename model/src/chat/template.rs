//! A compiled chat template.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::bounded;
use super::calls::{self, CallFormats, CallStream, ForeignText, Tools};
use super::jinja::{self, Inputs, MARKS};
use super::value::Value;

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    template: Arc<jinja::Template>,
    special: Vec<(&'static str, String)>,
    date: Option<Date>,
    /// The text of the template.
    source: Arc<str>,
    /// The formats of its calls of tools, once they have been looked for.
    formats: OnceLock<CallFormats>,
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

impl ChatTemplate {
    /// Compiles a template. `special` has the variables that contain the name of a token, such as
    /// `bos_token`.
    ///
    /// # Errors
    /// Returns an error with the line if the text is not a template in Jinja.
    pub fn new(
        text: &str,
        special: Vec<(&'static str, String)>,
    ) -> Result<ChatTemplate, crate::Error> {
        ChatTemplate::compiled(text, special).map_err(crate::Error::Chat)
    }

    pub(super) fn compiled(
        text: &str,
        special: Vec<(&'static str, String)>,
    ) -> Result<ChatTemplate, String> {
        let source = Arc::from(text);
        let text = text.to_owned();
        let template = bounded::run(bounded::TIME, move || {
            jinja::Template::new(&text)
                .map(Arc::new)
                .map_err(|error| error.to_string())
        })?;
        Ok(ChatTemplate {
            template,
            special,
            date: None,
            source,
            formats: OnceLock::new(),
        })
    }

    /// Returns true if the template marks the assistant's replies with `{% generation %}`.
    pub fn marks_replies(&self) -> bool {
        self.template.marks_replies()
    }

    /// Returns true if the template reads the date of the day.
    pub fn asks_date(&self) -> bool {
        self.template.asks_date()
    }

    /// Returns the date that was set.
    pub fn date(&self) -> Option<Date> {
        self.date
    }

    /// Sets the date that `strftime_now` returns. Without it, a template that reads the date fails.
    ///
    /// The time of the day is always midnight, because the text must not depend on the moment of
    /// rendering.
    pub fn set_date(&mut self, date: Date) {
        self.date = Some(date);
    }

    /// Returns the formats of the calls that the template writes, and finds them at the first call.
    fn formats(&self) -> &CallFormats {
        self.formats
            .get_or_init(|| calls::formats(self, &self.source))
    }

    /// Returns true if the format of the calls that the template writes is known.
    pub fn knows_calls(&self) -> bool {
        !self.formats().syntaxes.is_empty()
    }

    /// Returns the names of the formats of calls that models of this template use, the template's
    /// own first.
    pub fn call_formats(&self) -> Vec<&'static str> {
        let syntaxes = self.formats().syntaxes.iter();
        syntaxes.map(|syntax| syntax.name()).collect()
    }

    /// Returns true if a control token belongs in the text of a reply, because it may mark a call.
    /// If the format of calls is unknown, every control token may.
    pub fn shows_token(&self, spelling: &str) -> bool {
        let formats = &self.formats().syntaxes;
        formats.is_empty()
            || formats
                .iter()
                .any(|syntax| syntax.tokens().any(|token| token == spelling))
    }

    /// Returns a reader that finds calls of these tools in the reply to a conversation. `prompt` is
    /// the text of the conversation, as [`render`](ChatTemplate::render) returned it.
    ///
    /// The messages matter because a model may copy their text into a value. If a value without
    /// quotes contains the tags of its own format, this text shows that the tags do not belong to
    /// the reply.
    pub fn calls<'a>(
        &'a self,
        tools: &'a Tools,
        conversation: &Conversation,
        prompt: &str,
    ) -> CallStream<'a> {
        let foreign = ForeignText::new(&conversation.messages, conversation.tools.as_ref());
        CallStream::new(self.formats(), tools, foreign, prompt)
    }

    /// Returns true if the text of a conversation depends on its tools.
    ///
    /// # Errors
    /// Returns the error of [`render`](ChatTemplate::render) with tools.
    pub fn tells_tools(&self, conversation: &Conversation) -> Result<bool, crate::Error> {
        let without = self.render(
            &Conversation {
                tools: None,
                ..conversation.clone()
            },
            Then::Reply,
        );
        let with = self.render(conversation, Then::Reply)?;
        Ok(without.map_or(true, |without| without != with))
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// Returns an error if the template refuses the conversation, or if it does something that is
    /// not supported.
    pub fn render(
        &self,
        conversation: &Conversation,
        then: Then,
    ) -> Result<Rendered, crate::Error> {
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
        let text = bounded::run(bounded::TIME, render).map_err(crate::Error::Chat)?;
        if !self.marks_replies() {
            return Ok(Rendered {
                text,
                replies: vec![],
            });
        }
        unmarked(&text).map_err(crate::Error::Chat)
    }
}

/// Returns the date of this day in UTC, because a local date would depend on the environment.
pub fn today() -> Date {
    TimeZone::UTC.to_datetime(Timestamp::now()).date()
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
