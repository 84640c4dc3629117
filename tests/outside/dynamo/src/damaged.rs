//! Replies with errors, in which the project must not find calls that are not there.
//!
//! A damaged reply may still contain calls, for example if a character of a string is missing. So
//! the template writes the calls that were found, and the damaged reply must contain the same text.
//! White space is ignored, because readers accept any between two parts of a call, and so are the
//! notations of strings.

use std::fmt;

use serde_json::Value;

use crate::calls::Call;
use crate::dynamo::{Dynamo, PANIC};
use crate::formats::{Format, Reply};
use crate::random::Random;
use crate::template::Writer;

/// The number of damaged variants of a reply.
const VARIANTS: usize = 3;

/// The results of damaged replies.
#[derive(Default)]
pub(crate) struct DamagedCounts {
    replies: usize,
    /// Replies in which the project, or the crate, finds calls.
    ours: usize,
    theirs: usize,
    /// Replies in which the crate finds calls for which the template writes another text.
    theirs_absent: usize,
    /// Replies for which the crate panics.
    panics: usize,
}

impl fmt::Display for DamagedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamagedCounts {
            replies,
            ours,
            theirs,
            theirs_absent,
            panics,
        } = self;
        write!(
            f,
            "of {replies} damaged ones, {ours} have calls for the project and {theirs} for the crate, \
             {theirs_absent} of them with calls that the text does not contain, and it panics for {panics}"
        )
    }
}

/// Damages a reply, reads the result and returns the problems.
pub(crate) fn check(
    random: &mut Random,
    format: &Format,
    writer: &Writer,
    dynamo: &Dynamo,
    reply: &Reply,
    counts: &mut DamagedCounts,
) -> Vec<String> {
    let mut problems = vec![];
    for _ in 0..VARIANTS {
        let text = damaged(random, &reply.plain);
        let found = writer.read(random, &text);
        counts.replies += 1;
        if !found.calls.is_empty() {
            counts.ours += 1;
            if !has_calls(format, writer, reply, &text, &found.calls) {
                problems.push(format!(
                    "the project finds calls that a damaged reply does not contain\n  reply {text:?}\n  found {}",
                    crate::listed(&found.calls),
                ));
            }
        }

        match dynamo.read(format.parser, &text) {
            Ok(calls) if calls.is_empty() => {}
            Ok(calls) => {
                counts.theirs += 1;
                let has_calls = has_calls(format, writer, reply, &text, &calls);
                counts.theirs_absent += usize::from(!has_calls);
            }
            Err(problem) => counts.panics += usize::from(problem == PANIC),
        }
    }
    problems
}

/// Removes, repeats, replaces or moves a part of a text, or cuts it.
fn damaged(random: &mut Random, text: &str) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    let at = random.below(letters.len());
    let more = random.below(12).min(letters.len() - at);
    match random.below(6) {
        0 => letters.truncate(at),
        1 => drop(letters.remove(at)),
        2 => drop(letters.drain(at..at + more)),
        3 => {
            let part: Vec<char> = letters[at..at + more].to_vec();
            let to = random.below(letters.len());
            letters.splice(to..to, part);
        }
        4 => letters[at] = letters[random.below(letters.len())],
        _ => letters.insert(
            at,
            random.one(&[
                '"', '\\', '{', '}', '[', ']', '<', '>', '|', '(', ')', ',', '\n',
            ]),
        ),
    }

    letters.into_iter().collect()
}

/// Returns true if a damaged text contains calls: some calls of the undamaged reply in their order,
/// or calls for which the template writes a part of the text.
pub(crate) fn has_calls(
    format: &Format,
    writer: &Writer,
    reply: &Reply,
    text: &str,
    calls: &[Call],
) -> bool {
    let mut known = reply.calls.iter();
    if calls.iter().all(|call| known.any(|other| call == other)) {
        return true;
    }
    calls.chunks(format.most).all(|calls| {
        writer.reply("", calls).is_ok_and(|again| {
            // Some templates write an empty thought.
            let again = again.rsplit("</think>").next().unwrap_or_default();
            if calls.iter().any(|call| has_large(&call.arguments)) {
                let digits =
                    |text: &str| text.replace(|c: char| c.is_numeric() || ".e+".contains(c), "");
                return contains(&digits(text), &digits(again), &digits(&writer.closing));
            }
            contains(text, again, &writer.closing)
        })
    })
}

/// Returns true if a value has a number that does not keep the digits of its text.
fn has_large(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|number| number.abs() > 1e15)
        }
        Value::Array(values) => values.iter().any(has_large),
        Value::Object(entries) => entries.values().any(has_large),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Returns true if a text contains another one. Closing marks may be missing at its end.
fn contains(text: &str, part: &str, closing: &str) -> bool {
    let text = squeezed(text);
    let part = squeezed(part);
    let required = part.strip_suffix(&squeezed(closing)).unwrap_or(&part);
    text.contains(&part)
        || text
            .match_indices(required)
            .any(|(at, _)| part.starts_with(&text[at..]))
}

/// Returns the text without white space and escapes, and with one notation of quotes and constants.
/// A reader may accept more notations than the template writes. `functions.` is optional in names.
fn squeezed(text: &str) -> String {
    let text = text
        .replace("functions.", "")
        .replace("None", "null")
        .replace("True", "true")
        .replace("False", "false");
    let mut squeezed = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            let mut escape = rest.clone();
            let digits = match escape.next() {
                Some('u') => 4,
                Some('x') => 2,
                Some('0'..='7') => 2,
                Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v') => 0,
                _ => continue,
            };
            rest = escape;
            for _ in 0..digits {
                rest.next();
            }
        } else if c == '\'' {
            squeezed.push('"');
        } else if !c.is_whitespace() && !c.is_control() {
            squeezed.push(c);
        }
    }

    squeezed
}
