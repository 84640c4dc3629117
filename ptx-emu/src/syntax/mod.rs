//! From text to the syntax tree: [`lexer`], [`ast`] and [`parser`].

pub(crate) mod ast;
pub(crate) mod constant;
pub(crate) mod directives;
pub(crate) mod entries;
pub(crate) mod lexer;
pub(crate) mod listing;
pub(crate) mod operands;
pub(crate) mod parse_error;
pub(crate) mod parser;
pub(crate) mod types;
pub(crate) mod variables;
pub(crate) mod vector_names;
pub(crate) mod vectors;

use std::fmt::Display;

use crate::syntax::parse_error::{ErrorKind, ParseError};

/// A byte offset in the text.
pub(crate) type At = u32;

/// An error at an offset in the text.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    pub(crate) at: At,
    pub(crate) what: String,
}

/// The result of a step of the front end.
pub(crate) type Parsed<T> = Result<T, Error>;

/// Returns an error at `at`.
pub(crate) fn error<T>(at: At, what: impl Into<String>) -> Parsed<T> {
    Err(Error {
        at,
        what: what.into(),
    })
}

/// The start of the message of an error about a form that is not implemented. The text may be
/// valid.
const UNSUPPORTED: &str = "unsupported in ptx-emu: ";

/// Returns the error that a form is not implemented.
pub(crate) fn unsupported<T>(at: At, form: impl Display) -> Parsed<T> {
    error(at, format!("{UNSUPPORTED}{form}"))
}

impl Error {
    fn kind(&self) -> ErrorKind {
        match self.what.strip_prefix(UNSUPPORTED) {
            Some(form) => ErrorKind::Unsupported(form.into()),
            None => ErrorKind::IllFormed,
        }
    }

    /// Returns true if the text is invalid, and false if the form is not implemented.
    pub(crate) fn is_ill_formed(&self) -> bool {
        !self.what.starts_with(UNSUPPORTED)
    }
}

/// The text, and the offsets of its lines.
pub(crate) struct SourceText<'a> {
    pub(crate) text: &'a str,
    lines: Vec<At>,
}

impl<'a> SourceText<'a> {
    /// Indexes the lines of `text`.
    pub(crate) fn new(text: &'a str) -> SourceText<'a> {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = std::iter::once(0)
            .chain(ends.map(|(i, _)| i as At + 1))
            .collect();
        SourceText { text, lines }
    }

    /// Returns the line and the column of an offset, starting at 1.
    pub(crate) fn place(&self, at: At) -> (u32, u32) {
        let line = self.lines.partition_point(|&start| start <= at);
        (line as u32, at - self.lines[line - 1] + 1)
    }

    /// Returns a line of the text without its indentation, shortened to 200 characters. Lines start
    /// at 1.
    pub(crate) fn line(&self, line: u32) -> String {
        let start = self.lines[line as usize - 1] as usize;
        let text = self.text.get(start..).unwrap_or("");
        text.lines()
            .next()
            .unwrap_or("")
            .trim()
            .chars()
            .take(200)
            .collect()
    }

    /// Returns the public form of an error.
    pub(crate) fn report(&self, error: &Error) -> ParseError {
        let (line, column) = self.place(error.at);
        ParseError {
            line,
            column,
            kind: error.kind(),
            what: error.what.clone(),
            text: self.line(line),
        }
    }

    /// Returns the public form of errors, ordered by place and without duplicates.
    pub(crate) fn reports(&self, mut errors: Vec<Error>) -> Vec<ParseError> {
        errors.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
        errors.dedup_by(|a, b| (a.at, &a.what) == (b.at, &b.what));
        errors.iter().map(|e| self.report(e)).collect()
    }
}
