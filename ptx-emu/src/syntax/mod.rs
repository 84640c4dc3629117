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

use std::fmt::Display;

use crate::syntax::parse_error::{ErrorKind, ParseError};

/// A byte offset in the text.
pub(crate) type At = u32;

/// An error at an offset in the text.
#[derive(Clone, Debug)]
pub(crate) struct Error {
    pub(crate) at: At,
    pub(crate) what: String,
    pub(crate) cause: ErrorCause,
}

/// The cause of an error, which decides whether the text may be valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCause {
    /// The text is invalid.
    IllFormed,
    /// The suffixes of an instruction, or the shape of its operands, fit no known form. The manual
    /// may have the form.
    UnknownForm,
    /// The form is not implemented. The text may be valid.
    Unsupported,
}

/// The result of a step of the front end.
pub(crate) type Parsed<T> = Result<T, Error>;

/// Returns an error at `at`.
pub(crate) fn error<T>(at: At, what: impl Into<String>) -> Parsed<T> {
    Err(Error::ill_formed(at, what))
}

/// Returns the error that an instruction at `at` has no known form.
pub(crate) fn unknown_form<T>(at: At, what: impl Into<String>) -> Parsed<T> {
    Err(Error {
        cause: ErrorCause::UnknownForm,
        ..Error::ill_formed(at, what)
    })
}

/// The start of the message of an error about a form that is not implemented.
const UNSUPPORTED: &str = "unsupported in ptx-emu: ";

/// Returns the error that a form is not implemented.
pub(crate) fn unsupported<T>(at: At, form: impl Display) -> Parsed<T> {
    Err(Error {
        cause: ErrorCause::Unsupported,
        ..Error::ill_formed(at, format!("{UNSUPPORTED}{form}"))
    })
}

impl Error {
    /// Returns the error that the text is invalid.
    pub(crate) fn ill_formed(at: At, what: impl Into<String>) -> Error {
        Error {
            at,
            what: what.into(),
            cause: ErrorCause::IllFormed,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self.cause {
            ErrorCause::IllFormed | ErrorCause::UnknownForm => ErrorKind::IllFormed,
            ErrorCause::Unsupported => {
                let form = self.what.strip_prefix(UNSUPPORTED);
                ErrorKind::Unsupported(form.unwrap_or(&self.what).into())
            }
        }
    }

    /// Returns true if the text is invalid, and false if the form is not implemented.
    pub(crate) fn is_ill_formed(&self) -> bool {
        self.cause != ErrorCause::Unsupported
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
