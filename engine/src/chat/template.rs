//! A template, ready to render.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, context, escape_formatter, filters,
};

use super::calls::{self, CallStream, Syntax, Tools};
use super::{bounded, json, tags};

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    special: Vec<(&'static str, String)>,
    marks_replies: bool,
    asks_date: bool,
    date: Option<Date>,
    /// The text of the template.
    source: Arc<str>,
    /// The formats of its calls of tools, once they have been looked for.
    formats: OnceLock<Vec<&'static Syntax>>,
}

/// What is said, and by which means.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Objects with `role` and `content`, and what else the template knows.
    pub messages: Vec<Value>,
    /// Descriptions of functions that the assistant may call.
    pub tools: Option<Value>,
    /// More variables of the template, by name: `enable_thinking`.
    pub more: Vec<(String, Value)>,
}

/// What follows the last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    End,
    /// The beginning of a reply: the assistant is to speak.
    Reply,
}

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text, with the names of tokens that mean something by themselves.
    pub text: String,
    /// The bytes of it that are in `{% generation %}`, in order.
    pub replies: Vec<Range<usize>>,
}

/// The name of the template in its environment.
const NAME: &str = "chat template";

/// Around what the assistant says, while it is rendered: noncharacters of Unicode, which no text has.
const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

impl ChatTemplate {
    /// A template from its text; `special` are variables that hold the spelling of a token: `bos_token`.
    ///
    /// # Errors
    ///
    /// What is no Jinja, with its line.
    pub fn new(text: &str, special: Vec<(&'static str, String)>) -> Result<ChatTemplate, crate::Error> {
        ChatTemplate::compiled(text, special).map_err(crate::Error::Chat)
    }

    pub(super) fn compiled(text: &str, special: Vec<(&'static str, String)>) -> Result<ChatTemplate, String> {
        bounded::check(text)?;
        let source = Arc::from(text);
        let (text, marks_replies) = tags::replaced(text);
        let asks_date = text.contains("strftime_now");
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| sentence(&error))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        // Without this, a release build would not say what is undefined.
        environment.set_debug(true);
        environment.set_fuel(Some(bounded::FUEL));
        environment.add_filter("tojson", json::tojson);
        environment.add_filter("string", string);
        environment.add_test("iterable", is_iterable);
        environment.set_formatter(format_value);
        environment.add_function("raise_exception", raise);
        environment.add_function(tags::FUNCTION, generation);
        let environment = bounded::run(bounded::TIME, move || {
            environment.add_template_owned(NAME, text).map_err(|error| sentence(&error))?;
            Ok(Arc::new(environment))
        })?;
        Ok(ChatTemplate {
            environment,
            special,
            marks_replies,
            asks_date,
            date: None,
            source,
            formats: OnceLock::new(),
        })
    }

    /// Whether the template says what the assistant's replies are, with `{% generation %}`.
    pub fn marks_replies(&self) -> bool {
        self.marks_replies
    }

    /// Whether the template asks for the date of the day.
    pub fn asks_date(&self) -> bool {
        self.asks_date
    }

    /// The date that was set.
    pub fn date(&self) -> Option<Date> {
        self.date
    }

    /// Sets the date of the day. Without it, a template that asks has an error. It is midnight for a template that asks
    /// for the time, too: what is rendered must not depend on when.
    pub fn set_date(&mut self, date: Date) {
        self.date = Some(date);
        let date = date.at(0, 0, 0, 0);
        let now = move |format: &str| {
            let wrong =
                |error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"));
            strtime::format(format, date).map_err(wrong)
        };
        Arc::make_mut(&mut self.environment).add_function("strftime_now", now);
    }

    /// The formats of the calls that the template writes: none if they are unknown.
    fn formats(&self) -> &[&'static Syntax] {
        self.formats.get_or_init(|| calls::formats(self, &self.source))
    }

    /// Returns true if the format of the calls that the template writes is known.
    pub fn knows_calls(&self) -> bool {
        !self.formats().is_empty()
    }

    /// Returns the names of the formats of calls that models of this template use, the template's own first.
    pub fn call_formats(&self) -> Vec<&'static str> {
        self.formats().iter().map(|syntax| syntax.name()).collect()
    }

    /// Returns true if a control token belongs in the text of a reply, because it may mark a call. If the format of calls is
    /// unknown, every control token may.
    pub fn shows_token(&self, spelling: &str) -> bool {
        let formats = self.formats();
        formats.is_empty() || formats.iter().any(|syntax| syntax.tokens().any(|token| token == spelling))
    }

    /// Returns a reader that finds the calls of these tools in the reply to a rendered prompt.
    pub fn calls<'a>(&'a self, tools: &'a Tools, prompt: &str) -> CallStream<'a> {
        CallStream::new(self.formats(), tools, prompt)
    }

    /// Whether the text of a conversation tells of its tools.
    ///
    /// # Errors
    ///
    /// Those of [`render`](ChatTemplate::render) with tools.
    pub fn tells_tools(&self, conversation: &Conversation) -> Result<bool, crate::Error> {
        let without = self.render(&Conversation { tools: None, ..conversation.clone() }, Then::Reply);
        let with = self.render(conversation, Then::Reply)?;
        Ok(without.map_or(true, |without| without != with))
    }

    /// The text of a conversation.
    ///
    /// # Errors
    ///
    /// What the template refuses, in its words, and what it cannot do.
    pub fn render(&self, conversation: &Conversation, then: Then) -> Result<Rendered, crate::Error> {
        let fault = |problem: String| crate::Error::Chat(problem);
        let Conversation { messages, tools, more } = conversation;
        let variables = context! {
            messages => messages,
            tools => tools,
            documents => (),
            add_generation_prompt => then == Then::Reply,
        };
        let special =
            self.special.iter().map(|(name, text)| ((*name).to_owned(), Value::from(text.as_str())));
        // The last of a name counts, as in transformers.
        let more = Value::from_pairs(special.chain(more.iter().cloned()));
        let environment = Arc::clone(&self.environment);
        let render = move || {
            let template = environment.get_template(NAME);
            let text = template.and_then(|template| template.render(context! { ..more, ..variables }));
            text.map_err(|error| sentence(&error))
        };
        let text = bounded::run(bounded::TIME, render).map_err(fault)?;
        unmarked(&text).map_err(fault)
    }
}

/// The date of this day in UTC: that of a time zone would depend on the environment.
pub fn today() -> Date {
    TimeZone::UTC.to_datetime(Timestamp::now()).date()
}

/// A text without marks, and what was between them.
fn unmarked(marked: &str) -> Result<Rendered, String> {
    let mut rendered = Rendered { text: String::with_capacity(marked.len()), replies: vec![] };
    let mut open = None;
    for c in marked.chars() {
        match (open, c) {
            (None, c) if c == MARKS[0] => open = Some(rendered.text.len()),
            (Some(start), c) if c == MARKS[1] => {
                rendered.replies.push(start..rendered.text.len());
                open = None;
            }
            (_, c) if MARKS.contains(&c) => {
                return Err("nests {% generation %}, or a message of the conversation has the characters U+FDD0 or U+FDD1".to_owned());
            }
            (_, c) => rendered.text.push(c),
        }
    }
    Ok(rendered)
}

/// A float as Python writes it.
fn float(value: &Value) -> Option<String> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| json::number(value))
}

/// Writes what `{{ .. }}` gives.
fn format_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match float(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => {
            bounded::pay(state, value, 0)?;
            escape_formatter(out, state, value)
        }
    }
}

/// The filter `string`.
fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    bounded::pay(state, value, 0)?;
    float(value).map_or_else(|| filters::string(state, value), |text| Ok(text.into()))
}

/// To Jinja, `none` is not iterable; an undefined value is. Some templates ask for `tools is iterable`.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Why a template said that it cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise(message: String) -> Result<Value, Error> {
    let raised = Raised(message.clone());
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(raised))
}

/// What `{% generation %}` gives: its body between marks.
fn generation(state: &mut State<'_, '_>, arguments: Kwargs) -> Result<Value, Error> {
    let caller: Value = arguments.get("caller")?;
    let body = caller.call(state, &[])?;
    Ok(Value::from_safe_string(format!("{}{body}{}", MARKS[0], MARKS[1])))
}

/// What went wrong, and in which line of the template.
fn sentence(error: &Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!(" in line {line}"));
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return format!("refuses the conversation{line}: {message}");
        }
        source = cause.source();
    }
    let detail = error.detail().map_or(String::new(), |detail| format!(": {detail}"));
    format!("fails{line}: {}{detail}", error.kind())
}
