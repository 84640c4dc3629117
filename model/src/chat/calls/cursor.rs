//! A position in a reply, and the readers that several formats share.
//!
//! A reply arrives in pieces. Each reader therefore distinguishes a text that more text may
//! complete ([`CallFault::Open`]) from one that no continuation can turn into a call
//! ([`CallFault::Wrong`]). The result of a reader must not depend on the division into pieces.

use serde_json::{Deserializer, Map, Value};

use super::call::ToolCall;
use crate::unique_keys;

/// The reason why a text is not a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFault {
    /// The text ends before the call does. The clause is the problem if no more text arrives.
    Open(&'static str),
    /// No continuation of the text is a call.
    Wrong(String),
}

pub(super) type Parsed<T> = Result<T, CallFault>;

pub(super) const NOT_CLOSED: CallFault = CallFault::Open("it is not closed");
pub(super) const VALUE_NOT_CLOSED: CallFault = CallFault::Open("a value in it is not closed");

/// Returns the error for a text that is not a call.
pub(super) fn wrong<T>(problem: impl Into<String>) -> Parsed<T> {
    Err(CallFault::Wrong(problem.into()))
}

/// A position in a text. The readers advance it past the text that they have read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns a position at a byte of the text.
    pub(super) fn new(text: &'a str, at: usize) -> Cursor<'a> {
        Cursor { text, at }
    }

    /// Returns the text that the position is in.
    pub(super) fn whole(&self) -> &'a str {
        self.text
    }

    /// Returns the text from the position on.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Returns the next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Advances past one character.
    pub(super) fn bump(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    /// Advances past white space.
    pub(super) fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Advances past `mark` if it is next.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    /// Advances past `mark`, which must be next.
    pub(super) fn expect(&mut self, mark: &str) -> Parsed<()> {
        if self.eat(mark) {
            return Ok(());
        }
        if self.may_become(mark) {
            Err(NOT_CLOSED)
        } else {
            wrong(format!("{mark} is missing"))
        }
    }

    /// Returns true if the text ends within `mark` or before it, so that more text may complete the
    /// mark.
    pub(super) fn may_become(&self, mark: &str) -> bool {
        self.rest().len() < mark.len() && mark.starts_with(self.rest())
    }

    /// Advances past `mark` and returns the text in front of it.
    pub(super) fn until(&mut self, mark: &str) -> Parsed<&'a str> {
        let rest = self.rest();
        let len = rest.find(mark).ok_or(NOT_CLOSED)?;
        self.at += len + mark.len();
        Ok(&rest[..len])
    }

    /// Advances to the first character that `ends` accepts and returns the text in front of it.
    pub(super) fn word(&mut self, ends: impl Fn(char) -> bool) -> Parsed<&'a str> {
        let rest = self.rest();
        let len = rest.find(ends).ok_or(NOT_CLOSED)?;
        self.at += len;
        Ok(&rest[..len])
    }

    /// Reads a JSON object or list. A key may occur once in an object: readers disagree on which
    /// one counts.
    pub(super) fn json(&mut self) -> Parsed<Value> {
        if self.rest().is_empty() {
            return Err(NOT_CLOSED);
        }
        if !self.rest().starts_with(['{', '[']) {
            return wrong("it does not have the form of a call");
        }

        let mut values = Deserializer::from_str(self.rest()).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) if !error.is_eof() => {
                return wrong(format!("its JSON is not valid: {error}"));
            }
            Some(Err(_)) => return Err(VALUE_NOT_CLOSED),
            None => return Err(NOT_CLOSED),
        };
        let json = &self.rest()[..values.byte_offset()];
        if let Err(problem) = unique_keys(json.as_bytes()) {
            return wrong(format!("its JSON {problem}"));
        }

        self.at += json.len();
        Ok(value)
    }

    /// Reads a JSON object.
    pub(super) fn object(&mut self) -> Parsed<Map<String, Value>> {
        match self.json()? {
            Value::Object(object) => Ok(object),
            _ => wrong("its arguments are not a JSON object"),
        }
    }
}

/// Returns the call of a function, whose name must not be empty or contain white space. It must
/// not contain a character of marks either, because a damaged mark would otherwise become a part of
/// the name, and so would another call in front of it.
pub(super) fn named(
    id: Option<&str>,
    name: &str,
    arguments: Map<String, Value>,
) -> Parsed<ToolCall> {
    let is_wrong =
        |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|' | '｜' | '{' | '}' | '"');
    if name.is_empty() || name.contains(is_wrong) {
        return wrong(format!("{name:?} is not the name of a function"));
    }
    Ok(ToolCall {
        id: id.map(str::to_owned),
        name: name.to_owned(),
        arguments,
    })
}
