//! From text to syntax tree: [`lexer`], [`ast`], [`parser`].

pub(crate) mod ast;
mod directives;
pub(crate) mod lexer;
pub(crate) mod listing;
mod operands;
pub(crate) mod parser;
pub(crate) mod types;
mod variables;

use crate::module::ParseError;

/// A byte offset into the text.
pub(crate) type At = u32;

/// Something wrong at a place, before the place is turned into line and column.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) at: At,
    pub(crate) what: String,
}

/// A result of a step of the front end.
pub(crate) type Parsed<T> = Result<T, Error>;

/// An error at `at`.
pub(crate) fn error<T>(at: At, what: impl Into<String>) -> Parsed<T> {
    Err(Error { at, what: what.into() })
}

/// The text, and where its lines start.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    lines: Vec<At>,
}

impl<'a> Source<'a> {
    /// Indexes the lines of `text`.
    pub(crate) fn new(text: &'a str) -> Source<'a> {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(i, _)| i as At + 1)).collect();
        Source { text, lines }
    }

    /// Line and column of an offset, from 1.
    pub(crate) fn place(&self, at: At) -> (u32, u32) {
        let line = self.lines.partition_point(|&start| start <= at);
        (line as u32, at - self.lines[line - 1] + 1)
    }

    /// The text of a line, from 1, shortened to 200 characters, without its indentation.
    pub(crate) fn line(&self, line: u32) -> String {
        let start = self.lines[line as usize - 1] as usize;
        let text = self.text.get(start..).unwrap_or("");
        text.lines().next().unwrap_or("").trim().chars().take(200).collect()
    }

    /// The error as users see it.
    pub(crate) fn report(&self, error: &Error) -> ParseError {
        let (line, column) = self.place(error.at);
        ParseError { line, column, what: error.what.clone(), text: self.line(line) }
    }
}
