//! Calls of Gemma 4 and FunctionGemma, `call:name{key:value, ..}`, with strings between marks.
//!
//! A string ends at the next mark and has no escapes, so a string that contains marks looks like
//! several strings. Some of these texts leave marks after the last call, and others have calls that
//! do not agree with their schemas. The rest is decided as module `readings` does: by separators
//! that differ from those of the template, or that the conversation contains.

use std::ops::Range;

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::context::{DISAGREES, FOREIGN_SEPARATOR, ReadContext, SEVERAL_READINGS, undeclared};
use super::cursor::{Cursor, Parsed, named, wrong};
use super::python::{Notation, entries, quoted};

/// A format of calls with strings between marks.
#[derive(Debug)]
pub(super) struct MarkedFormat {
    notation: Notation,
    /// The marks around a call.
    marks: [&'static str; 2],
    types: Types,
}

/// The source of the types of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// Strings are strings.
    Notation,
    /// A string has the type that the schema demands.
    Schema,
}

/// Gemma 4.
pub(super) static GEMMA: MarkedFormat = MarkedFormat {
    notation: Notation {
        quote: Some("<|\"|>"),
    },
    marks: ["<|tool_call>", "<tool_call|>"],
    types: Types::Notation,
};

/// FunctionGemma. All values are strings, so only the schema has their types.
pub(super) static FUNCTION_GEMMA: MarkedFormat = MarkedFormat {
    notation: Notation {
        quote: Some("<escape>"),
    },
    marks: ["<start_function_call>", "<end_function_call>"],
    types: Types::Schema,
};

impl MarkedFormat {
    /// Returns an error if the text after the opening mark is not the beginning of calls. More text
    /// may follow, so several readings are not an error yet.
    pub(super) fn check(&self, cursor: &mut Cursor<'_>, context: &ReadContext<'_>) -> Parsed<()> {
        cursor.skip_space();
        all_braces(cursor, context, self).map(drop)
    }

    /// Reads calls up to the end of the reply, from the opening mark of the first one on.
    pub(super) fn read(
        &self,
        cursor: &mut Cursor<'_>,
        context: &ReadContext<'_>,
    ) -> Parsed<Vec<ToolCall>> {
        cursor.skip_space();
        braces(cursor, context, self)
    }
}

fn braces(
    cursor: &mut Cursor<'_>,
    context: &ReadContext<'_>,
    format: &MarkedFormat,
) -> Parsed<Vec<ToolCall>> {
    let start = cursor.at;
    let calls = all_braces(cursor, context, format)?;
    let text = &cursor.whole()[start..cursor.at];
    let strings = marked_strings(text, format);
    let separators = std::iter::zip(&strings, strings.iter().skip(1));
    let mut separators = separators.map(|(one, next)| &text[one.end..next.start]);
    if strings.len() < 2 {
        return Ok(calls);
    }

    // The templates write no white space between two strings.
    let is_exact = !separators
        .clone()
        .any(|separator| separator.contains(char::is_whitespace));
    let is_foreign = separators.any(|separator| context.foreign.contains(separator));
    let [open, close] = format.marks;
    let holds_structure = strings.iter().any(|string| {
        let string = &text[string.clone()];
        string.contains(&format!("}}{close}")) || string.contains(&format!("{open}call:"))
    });
    let agrees = context.tools.agree(&calls);
    if is_exact && !is_foreign && !holds_structure && agrees {
        return Ok(calls);
    }

    let is_longer = longer_agrees(text, &strings, context, format);
    for call in &calls {
        let mut keys = call.arguments.keys().skip(1);
        if let Some(key) = keys.find(|key| context.tools.lacks_parameter(&call.name, key)) {
            return wrong(undeclared(key, &call.name));
        }
    }

    if agrees {
        return if !is_longer {
            Ok(calls)
        } else if is_foreign {
            wrong(FOREIGN_SEPARATOR)
        } else {
            wrong(SEVERAL_READINGS)
        };
    }

    if is_longer || !is_exact || is_foreign {
        return wrong(DISAGREES);
    }

    // The model broke the schemas. Its calls are returned, so that the caller can answer with an
    // error.
    Ok(calls)
}

/// Reads calls that each end at the next mark.
fn all_braces(
    cursor: &mut Cursor<'_>,
    context: &ReadContext<'_>,
    format: &MarkedFormat,
) -> Parsed<Vec<ToolCall>> {
    let [open, close] = format.marks;
    let mut calls = vec![];
    loop {
        calls.push(one_braces(cursor, context, format)?);
        cursor.skip_space();
        cursor.expect(close)?;
        let mut next = *cursor;
        next.skip_space();
        if next.eat(open) {
            *cursor = next;
            continue;
        }

        // The first mark is reported, so that the problem does not depend on the pieces of the
        // reply.
        let marks = [open, close].into_iter().chain(format.notation.quote);
        let found = marks
            .filter_map(|mark| Some((next.rest().find(mark)?, mark)))
            .min();
        return match found {
            Some((_, mark)) => wrong(format!("the text after it contains {mark}")),
            None => Ok(calls),
        };
    }
}

fn one_braces(
    cursor: &mut Cursor<'_>,
    context: &ReadContext<'_>,
    format: &MarkedFormat,
) -> Parsed<ToolCall> {
    cursor.skip_space();
    cursor.expect("call:")?;
    let name = cursor.word(|c| c == '{' || c.is_whitespace())?;
    cursor.expect("{")?;
    let mut arguments = Map::new();
    entries(cursor, &format.notation, 0, &mut arguments)?;
    if format.types == Types::Schema {
        for (key, value) in &mut arguments {
            if let Value::String(text) = value {
                *value = context.tools.read(name, key, text);
            }
        }
    }

    named(None, name, arguments)
}

/// Returns the ranges of the strings between marks, without the marks. `text` has complete calls.
fn marked_strings(text: &str, format: &MarkedFormat) -> Vec<Range<usize>> {
    let mut strings = vec![];
    let mut cursor = Cursor::new(text, 0);
    while cursor.peek().is_some() {
        let is_marked = format
            .notation
            .quote
            .filter(|mark| cursor.rest().starts_with(mark));
        let start = cursor.at;
        match (quoted(&mut cursor, &format.notation), is_marked) {
            (Ok(Some(_)), Some(mark)) => {
                strings.push(start + mark.len()..cursor.at - mark.len());
            }
            (Ok(Some(_)), None) => {}
            // At the end of the text, a character may look like the beginning of a mark.
            (Ok(None) | Err(_), _) => cursor.bump(),
        }
    }

    strings
}

/// The maximum number of strings for which longer strings are tried, because their number of
/// readings is exponential.
const LONGER: usize = 10;

/// Returns true if the calls agree with their schemas when some strings are longer and contain the
/// strings after them. Also returns true if there are too many strings to know.
fn longer_agrees(
    text: &str,
    strings: &[Range<usize>],
    context: &ReadContext<'_>,
    format: &MarkedFormat,
) -> bool {
    let separators = strings.len() - 1;
    if strings.len() > LONGER {
        return true;
    }
    // Each bit of `merged` makes a separator a part of a string.
    (1..1_u32 << separators).any(|merged| {
        let mut longer = String::with_capacity(text.len());
        let mut copied = 0;
        for (bit, (one, next)) in std::iter::zip(strings, &strings[1..]).enumerate() {
            if (merged >> bit) & 1 == 1 {
                longer.push_str(&text[copied..one.end]);
                longer.push_str("..");
                copied = next.start;
            }
        }

        longer.push_str(&text[copied..]);
        let mut cursor = Cursor::new(&longer, 0);
        let calls = all_braces(&mut cursor, context, format);
        calls.is_ok_and(|calls| context.tools.agree(&calls))
    })
}
