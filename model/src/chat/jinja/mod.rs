//! An interpreter of Jinja templates that renders like Jinja2 3.1 in Python.
//!
//! Chat templates are written for Python: they call methods of its strings, print its lists, and
//! rely on the scopes that Jinja compiles to. Only an implementation of both renders them to the
//! letter, and a prompt that differs in a space is another prompt. This one covers the language
//! with the settings of transformers (`trim_blocks`, `lstrip_blocks`, loop controls, `{% generation
//! %}`, no automatic escaping) and the sandbox, which hides everything that changes an object.
//! Anything that Python has and that is not here is an error with its name, so that no text is
//! silently different.
//!
//! `parse` turns the text into a tree, and `interpreter` renders it. `python` has Python's objects,
//! and `builtins` Jinja's tables of names.
//!
//! Limits: whole numbers have 128 bits, and other templates cannot be included. A generator is read
//! when it is made, not item by item, apart from the condition of a loop.

mod builtins;
mod error;
mod interpreter;
mod limits;
mod parse;
mod python;

pub(super) use error::Error;
pub(super) use python::strftime::Date;

use super::value::Value;
use interpreter::{Interpreter, Replies};

/// The characters around a reply while it is rendered: noncharacters of Unicode, which no text has.
pub(super) const MARKS: [char; 2] = interpreter::MARKS;

/// A template that was parsed.
#[derive(Debug)]
pub(super) struct Template {
    parsed: parse::parser::Parsed,
}

/// The inputs of a template.
pub(super) struct Inputs {
    /// Variables by name. If a name occurs several times, the last one counts.
    pub(super) variables: Vec<(String, Value)>,
    /// The date of the day, for `strftime_now`.
    pub(super) date: Option<Date>,
    /// The number of steps that the template may take. A step is an operation, or 64 bytes of a
    /// text.
    pub(super) fuel: u64,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns an error with a line if the text is not a template.
    pub(super) fn new(source: &str) -> Result<Template, Error> {
        Ok(Template {
            parsed: parse::parser::parse(source)?,
        })
    }

    /// Returns true if the template marks replies with `{% generation %}`.
    pub(super) fn marks_replies(&self) -> bool {
        self.parsed.marks_replies
    }

    /// Returns true if the template reads the date of the day.
    pub(super) fn asks_date(&self) -> bool {
        self.parsed.asks_date
    }

    /// Renders the template, with [`MARKS`] around each reply if the template marks replies.
    ///
    /// # Errors
    /// Returns an error if the template refuses the conversation, or if it does something that
    /// Jinja or this crate does not allow.
    pub(super) fn render(&self, inputs: &Inputs) -> Result<String, Error> {
        if !self.marks_replies() {
            return Ok(self.run(inputs, Replies::Unmarked)?.0);
        }

        let (text, captured) = self.run(inputs, Replies::Marked)?;
        if captured {
            // The template may have changed a text with marks in it, for example by its length.
            let (plain, _) = self.run(inputs, Replies::Unmarked)?;
            if text.replace(MARKS, "") != plain {
                return Err(Error::failed(
                    "the place of a reply is unknown, because the template changes the text of {% generation %}",
                ));
            }
        }

        Ok(text)
    }

    /// Returns the text, and true if a reply was written into a captured part of it.
    fn run(&self, inputs: &Inputs, replies: Replies) -> Result<(String, bool), Error> {
        let mut variables: Vec<(String, python::value::Value)> = vec![];
        for (name, value) in &inputs.variables {
            variables.retain(|(known, _)| known != name);
            variables.push((name.clone(), value.into()));
        }
        let mut interpreter = Interpreter::new(variables, inputs.date, replies, inputs.fuel);
        let text = interpreter.run(&self.parsed.frame)?;
        Ok((text, interpreter.captured_reply))
    }
}
