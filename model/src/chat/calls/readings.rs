//! Decides which values a reply with tags has.
//!
//! A reading divides a reply into values and the text between them. Closing tags in a value can
//! make several readings possible. Each of them ends some values early or late, for example where a
//! value contains the end of a call and the start of another one. The shortest reading ends each
//! value at the first closing tag that leads to a complete reading. It is returned if it is
//! certain, and other readings are searched otherwise. The evidence for it:
//!
//! - Each separator (the text between two values) is written exactly as the template writes it,
//!   line breaks included. A model repeats the text that it was trained on, but a value that
//!   imitates a separator usually differs from it.
//! - No message of the conversation contains one of the separators. Otherwise the model may have
//!   copied it into a value.
//! - No value looks like a part of other calls.
//! - Its calls agree with the schemas of their functions.
//!
//! A separator that passes all tests could still belong to a value, because two calls have the same
//! text as one call with such a value. No reader can tell these apart without reporting all replies
//! with two values.
//!
//! The search needs the whole reply, so a format with tags yields its calls only at the end of the
//! reply.

use std::ops::Range;

use super::call::ToolCall;
use super::context::{DISAGREES, FOREIGN_SEPARATOR, ReadContext, SEVERAL_READINGS, undeclared};
use super::cursor::{CallFault, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, wrong};
use super::elements::{Elements, ReadItem, ReadStep, TagPlace, TextSpan};
use super::tools::Tools;

/// The maximum number of closing tags that are tried in one reply.
const TRIES: usize = 5000;

/// The maximum number of values in one reply.
const VALUES: usize = 1000;

/// A complete reading of a reply.
#[derive(Debug, Clone)]
struct Reading<'a> {
    items: Vec<ReadItem<'a>>,
    /// The end of the calls.
    end: usize,
}

/// The text between two values.
#[derive(Debug)]
struct Separator {
    span: Range<usize>,
    /// The text with marks in place of the names of functions and parameters, so that it can be
    /// compared with the separators of other calls.
    shape: String,
}

/// The marks in a shape.
const FUNCTION: char = '\u{1}';
const PARAMETER: char = '\u{2}';
const ARGUMENTS: char = '\u{3}';

/// Reads the calls of a whole reply, from their opening mark on. Returns the calls and the end of
/// their text.
pub(super) fn read(
    elements: &Elements,
    text: &str,
    context: &ReadContext<'_>,
) -> Parsed<(Vec<ToolCall>, usize)> {
    let tools = context.tools;
    let shortest = shortest(elements, text, tools)?;
    let calls = |reading: &Reading<'_>| Ok((elements.calls(&reading.items, tools)?, reading.end));
    let separators = shortest.separators(text);
    if separators.is_empty() {
        // A later closing tag would be in the text after the calls, which may not contain one. So
        // there is no other reading.
        return calls(&shortest);
    }

    let is_known = |separator: &Separator| context.separators.contains(&separator.shape);
    let is_foreign = separators
        .iter()
        .any(|separator| context.foreign.contains(&text[separator.span.clone()]));
    let is_exact = !is_foreign && separators.iter().all(is_known);
    let agrees = agrees(elements, &shortest.items, tools);
    if is_exact
        && agrees
        && !shortest
            .values()
            .any(|value| elements.holds_structure(value))
    {
        return calls(&shortest);
    }

    let mut search = ReadingSearch::new(elements, text, tools, Wanted::Agreeing);
    search.run()?;
    let problem = if is_foreign {
        FOREIGN_SEPARATOR
    } else {
        SEVERAL_READINGS
    };
    let closes_inside = shortest.values().any(|value| elements.closes_inside(value));
    match &search.found[..] {
        // The search finds the shortest reading first, so this one is the shortest.
        [only] if agrees => calls(only),
        [] => {
            check_names(elements, &shortest.items, tools)?;
            if !is_exact || closes_inside {
                return wrong(problem);
            }
            // The model broke the schemas. Its calls are returned, so that the caller can answer
            // with an error.
            calls(&shortest)
        }
        [only] => {
            let kept = only.separators(text);
            let is_kept = |separator: &Separator| kept.iter().any(|k| k.span == separator.span);
            let merges_known = separators
                .iter()
                .any(|separator| is_known(separator) && !is_kept(separator));

            // Closing tags in the values of the shortest reading show that it ends values too
            // early. But a separator of the template is never made a part of a value.
            if closes_inside && !merges_known {
                return calls(only);
            }

            check_names(elements, &shortest.items, tools)?;
            wrong(DISAGREES)
        }
        [..] => {
            if !agrees {
                check_names(elements, &shortest.items, tools)?;
            }
            wrong(problem)
        }
    }
}

/// Returns the shapes of the separators in calls that a template has written.
pub(super) fn shapes(elements: &Elements, text: &str, tools: &Tools) -> Vec<String> {
    let Ok(reading) = shortest(elements, text, tools) else {
        return vec![];
    };
    let separators = reading.separators(text).into_iter();
    separators.map(|separator| separator.shape).collect()
}

fn shortest<'a>(elements: &Elements, text: &'a str, tools: &Tools) -> Parsed<Reading<'a>> {
    let mut search = ReadingSearch::new(elements, text, tools, Wanted::Shortest);
    search.run()?;
    if let Some(reading) = search.found.pop() {
        return Ok(reading);
    }

    Err(if search.is_unfinished {
        NOT_CLOSED
    } else {
        VALUE_NOT_CLOSED
    })
}

impl<'a> Reading<'a> {
    fn values(&self) -> impl Iterator<Item = &'a str> {
        self.items.iter().filter_map(|item| match item {
            ReadItem::Value { value, .. } => Some(value.text),
            ReadItem::Call(_) | ReadItem::Object(..) => None,
        })
    }

    fn separators(&self, text: &str) -> Vec<Separator> {
        let mut separators = vec![];
        let mut shape = String::new();
        let mut last_value = None;
        let mut copied = 0;
        for item in &self.items {
            let (name, mark) = match item {
                ReadItem::Call(name) => (name, FUNCTION),
                ReadItem::Object(_, object) => (object, ARGUMENTS),
                ReadItem::Value { key, .. } => (key, PARAMETER),
            };
            shape.push_str(&text[copied..name.at]);
            shape.push(mark);
            copied = name.end();
            if let ReadItem::Value { value, .. } = item {
                shape.push_str(&text[copied..value.at]);
                let shape = std::mem::take(&mut shape);
                // The text before the first value is not a separator.
                if let Some(end) = last_value {
                    let span = end..value.at;
                    separators.push(Separator { span, shape });
                }
                last_value = Some(value.end());
                copied = value.end();
            }
        }

        separators
    }
}

/// Returns an error if a name after a value is unknown to the tools, because the value may contain
/// it.
fn check_names(elements: &Elements, items: &[ReadItem<'_>], tools: &Tools) -> Parsed<()> {
    let mut function = "";
    let mut after_value = false;
    let mut keys = vec![];
    for item in items {
        match item {
            ReadItem::Call(name) => {
                let name = name.text;
                if after_value && !tools.has(name) {
                    return wrong(format!(
                        "there is no function {name}, so this may belong to the value in front of it"
                    ));
                }
                function = name;
                keys.clear();
            }
            ReadItem::Object(..) => {}
            ReadItem::Value { key, .. } => {
                let key = elements.parameter(key.text);
                if keys.contains(&key) {
                    return wrong(format!("it has two values for {key}"));
                }
                if !keys.is_empty() && tools.lacks_parameter(function, key) {
                    return wrong(undeclared(key, function));
                }
                keys.push(key);
                after_value = true;
            }
        }
    }

    Ok(())
}

/// Returns true if a reading agrees with the schemas of the functions.
fn agrees(elements: &Elements, items: &[ReadItem<'_>], tools: &Tools) -> bool {
    let Ok(calls) = elements.calls(items, tools) else {
        return false;
    };

    // A parameter that occurs twice replaces its first value, so that there are fewer arguments
    // than values.
    let values: usize = items
        .iter()
        .map(|item| match item {
            ReadItem::Call(_) => 0,
            ReadItem::Object(arguments, _) => arguments.len(),
            ReadItem::Value { .. } => 1,
        })
        .sum();
    let arguments: usize = calls.iter().map(|call| call.arguments.len()).sum();
    arguments == values && tools.agree(&calls)
}

/// The readings that a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The shortest one.
    Shortest,
    /// Two readings that agree with the schemas.
    Agreeing,
}

/// A search for readings. It tries the closing tags of each value in their order.
struct ReadingSearch<'a, 't> {
    elements: &'t Elements,
    text: &'a str,
    tools: &'t Tools,
    wanted: Wanted,
    items: Vec<ReadItem<'a>>,
    tries: usize,
    depth: usize,
    found: Vec<Reading<'a>>,
    is_exceeded: bool,
    /// True if the text after a closing tag ends before the call does.
    is_unfinished: bool,
}

impl<'a, 't> ReadingSearch<'a, 't> {
    fn new(
        elements: &'t Elements,
        text: &'a str,
        tools: &'t Tools,
        wanted: Wanted,
    ) -> ReadingSearch<'a, 't> {
        ReadingSearch {
            elements,
            text,
            tools,
            wanted,
            items: vec![],
            tries: 0,
            depth: 0,
            found: vec![],
            is_exceeded: false,
            is_unfinished: false,
        }
    }

    fn run(&mut self) -> Parsed<()> {
        match self
            .elements
            .walk(self.text, 0, TagPlace::Outside, &mut self.items)?
        {
            ReadStep::Value { key, start } => self.value(key, start),
            ReadStep::End { at } => self.complete(at),
        }
        if self.is_exceeded {
            return wrong("it has too many values and closing tags");
        }
        Ok(())
    }

    fn value(&mut self, key: TextSpan<'a>, start: usize) {
        let elements = self.elements;
        for (value, after) in elements.closings(self.text, start) {
            self.tries += 1;
            if self.tries > TRIES || self.depth >= VALUES {
                self.is_exceeded = true;
                return;
            }

            let kept = self.items.len();
            self.items.push(ReadItem::Value { key, value });
            match elements.walk(self.text, after, TagPlace::InCall, &mut self.items) {
                Ok(ReadStep::Value { key, start }) => {
                    self.depth += 1;
                    self.value(key, start);
                    self.depth -= 1;
                }
                Ok(ReadStep::End { at }) => self.complete(at),
                Err(CallFault::Open(_)) => self.is_unfinished = true,
                Err(CallFault::Wrong(_)) => {}
            }

            self.items.truncate(kept);
            if self.is_done() {
                return;
            }
        }
    }

    fn complete(&mut self, end: usize) {
        let is_wanted = match self.wanted {
            Wanted::Shortest => true,
            Wanted::Agreeing => agrees(self.elements, &self.items, self.tools),
        };
        if is_wanted {
            let items = self.items.clone();
            self.found.push(Reading { items, end });
        }
    }

    fn is_done(&self) -> bool {
        let enough = match self.wanted {
            Wanted::Shortest => 1,
            Wanted::Agreeing => 2,
        };
        self.is_exceeded || self.found.len() >= enough
    }
}
