//! Calls as Python writes them, `[name(key=value, ...)]`, and Gemma's variant,
//! `call:name{key:value, ...}`.
//!
//! Values are literals: strings, numbers, lists, dictionaries, `True`, `False` and `None`, also as
//! JSON spells them (several templates write values with `tojson`). Expressions, positional
//! arguments and string prefixes are rejected.

use std::ops::Range;

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::context::{Context, DISAGREES, FOREIGN_SEPARATOR, SEVERAL_READINGS, undeclared};
use super::cursor::{Cursor, Fault, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, named, wrong};

/// The nesting limit of values, the same as that of serde_json.
const DEPTH: usize = 127;

/// Reads a list of calls, `[name(..), ..]`.
pub(super) fn list(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    cursor.expect("[")?;
    let mut calls = vec![];
    loop {
        cursor.skip_space();
        calls.push(call(cursor)?);
        cursor.skip_space();
        if cursor.eat("]") {
            return Ok(calls);
        }
        cursor.expect(",")?;
    }
}

/// Reads calls on separate lines, as Olmo 3 writes them, or one list.
pub(super) fn lines(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    if cursor.rest().starts_with('[') {
        return list(cursor);
    }
    let mut calls = vec![];
    loop {
        calls.push(call(cursor)?);
        let mut next = *cursor;
        next.skip_space();
        match next.peek() {
            None => return Err(NOT_CLOSED),
            Some('<') => return Ok(calls),
            Some(_) => *cursor = next,
        }
    }
}

/// Reads one call, `name(key=value, ..)`.
pub(super) fn call(cursor: &mut Cursor<'_>) -> Parsed<ToolCall> {
    let name = name(cursor)?;
    cursor.expect("(")?;
    let mut arguments = Map::new();
    loop {
        cursor.skip_space();
        if cursor.eat(")") {
            return named(None, name, arguments);
        }
        let key = self::name(cursor)?;
        cursor.skip_space();
        cursor.expect("=")?;
        cursor.skip_space();
        let value = value(cursor, &PYTHON, 0)?;
        insert(&mut arguments, key, value)?;
        cursor.skip_space();
        if !cursor.rest().starts_with(')') {
            cursor.expect(",")?;
        }
    }
}

/// Adds an argument, or returns an error if it exists. Readers disagree on which value counts.
fn insert(arguments: &mut Map<String, Value>, key: &str, value: Value) -> Parsed<()> {
    match arguments.insert(key.to_owned(), value) {
        None => Ok(()),
        Some(_) => wrong(format!("it has two values for {key}")),
    }
}

/// Reads the name of a function or parameter. Names of functions may contain dots and hyphens.
fn name<'a>(cursor: &mut Cursor<'a>) -> Parsed<&'a str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    let name = cursor.word(|c| !is_part(c))?;
    if name.is_empty() || name.starts_with(|c: char| c.is_numeric() || matches!(c, '.' | '-')) {
        return wrong("it is not written as calls are");
    }
    Ok(name)
}

/// The notation of values.
pub(super) struct Notation {
    /// The mark around strings, in addition to Python's quotes.
    quote: Option<&'static str>,
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

const PYTHON: Notation = Notation {
    quote: None,
    marks: ["", ""],
    types: Types::Notation,
};
const GEMMA: Notation = Notation {
    quote: Some("<|\"|>"),
    marks: ["<|tool_call>", "<tool_call|>"],
    types: Types::Notation,
};
const FUNCTION_GEMMA: Notation = Notation {
    quote: Some("<escape>"),
    marks: ["<start_function_call>", "<end_function_call>"],
    types: Types::Schema,
};

/// Gemma 4: `call:name{key:value, ..}`, with strings between `<|"|>`.
pub(super) fn gemma(cursor: &mut Cursor<'_>, context: &Context<'_>) -> Parsed<Vec<ToolCall>> {
    braces(cursor, context, &GEMMA)
}

/// FunctionGemma: the same form, with every value between `<escape>`. Only the schema has their
/// types.
pub(super) fn function_gemma(
    cursor: &mut Cursor<'_>,
    context: &Context<'_>,
) -> Parsed<Vec<ToolCall>> {
    braces(cursor, context, &FUNCTION_GEMMA)
}

/// Reads calls up to the end of the reply, from the opening mark of the first one on.
///
/// A string ends at the next quote mark and has no escapes, so a string that contains marks looks
/// like several strings. Some of these texts leave marks after the last call, and others have calls
/// that do not agree with their schemas. The rest is decided as module `readings` does: by
/// separators that differ from the template's or that the conversation contains.
fn braces(
    cursor: &mut Cursor<'_>,
    context: &Context<'_>,
    notation: &Notation,
) -> Parsed<Vec<ToolCall>> {
    let start = cursor.at;
    let calls = all_braces(cursor, context, notation)?;
    let text = &cursor.whole()[start..cursor.at];
    let strings = marked_strings(text, notation);
    let separators = std::iter::zip(&strings, strings.iter().skip(1));
    let mut separators = separators.map(|(one, next)| &text[one.end..next.start]);
    if strings.len() < 2 {
        return Ok(calls);
    }
    // The templates write nothing between two strings that is white space.
    let is_exact = !separators
        .clone()
        .any(|separator| separator.contains(char::is_whitespace));
    let is_foreign = separators.any(|separator| context.foreign.contains(separator));
    let [open, close] = notation.marks;
    let holds_structure = strings.iter().any(|string| {
        let string = &text[string.clone()];
        string.contains(&format!("}}{close}")) || string.contains(&format!("{open}call:"))
    });
    let agrees = context.tools.agree(&calls);
    if is_exact && !is_foreign && !holds_structure && agrees {
        return Ok(calls);
    }
    let is_longer = longer_agrees(text, &strings, context, notation);
    for call in &calls {
        let mut keys = call.arguments.keys().skip(1);
        if let Some(key) = keys.find(|key| context.tools.lacks_parameter(&call.name, key)) {
            return wrong(undeclared(key, &call.name));
        }
    }
    match (is_longer, agrees) {
        // The model broke the schemas. Its calls are returned, so that the caller can answer with
        // an error.
        (false, false) if is_exact && !is_foreign => Ok(calls),
        (false, true) => Ok(calls),
        (true | false, false) => wrong(DISAGREES),
        (true, true) if is_foreign => wrong(FOREIGN_SEPARATOR),
        (true, true) => wrong(SEVERAL_READINGS),
    }
}

/// Reads calls that each end at the next mark.
fn all_braces(
    cursor: &mut Cursor<'_>,
    context: &Context<'_>,
    notation: &Notation,
) -> Parsed<Vec<ToolCall>> {
    let [open, close] = notation.marks;
    let mut calls = vec![];
    loop {
        calls.push(one_braces(cursor, context, notation)?);
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
        let marks = [open, close].into_iter().chain(notation.quote);
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
    context: &Context<'_>,
    notation: &Notation,
) -> Parsed<ToolCall> {
    cursor.skip_space();
    cursor.expect("call:")?;
    let name = cursor.word(|c| c == '{' || c.is_whitespace())?;
    cursor.expect("{")?;
    let mut arguments = Map::new();
    entries(cursor, notation, 0, &mut arguments)?;
    if notation.types == Types::Schema {
        for (key, value) in &mut arguments {
            if let Value::String(text) = value {
                *value = context.tools.read(name, key, text);
            }
        }
    }
    named(None, name, arguments)
}

/// Returns the ranges of the strings between marks, without the marks. `text` has complete calls.
fn marked_strings(text: &str, notation: &Notation) -> Vec<Range<usize>> {
    let mut strings = vec![];
    let mut cursor = Cursor::new(text, 0);
    while cursor.peek().is_some() {
        let is_marked = notation
            .quote
            .filter(|mark| cursor.rest().starts_with(mark));
        let start = cursor.at;
        match (quoted(&mut cursor, notation), is_marked) {
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
    context: &Context<'_>,
    notation: &Notation,
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
            if merged >> bit & 1 == 1 {
                longer.push_str(&text[copied..one.end]);
                longer.push_str("..");
                copied = next.start;
            }
        }
        longer.push_str(&text[copied..]);
        let mut cursor = Cursor::new(&longer, 0);
        let calls = all_braces(&mut cursor, context, notation);
        calls.is_ok_and(|calls| context.tools.agree(&calls))
    })
}

/// Reads the rest of a dictionary, after its brace.
fn entries(
    cursor: &mut Cursor<'_>,
    notation: &Notation,
    depth: usize,
    to: &mut Map<String, Value>,
) -> Parsed<()> {
    loop {
        cursor.skip_space();
        if cursor.eat("}") {
            return Ok(());
        }
        let quoted = quoted(cursor, notation)?;
        let key = match quoted {
            Some(key) => key,
            None if notation.quote.is_some() => {
                let key = cursor
                    .word(|c| matches!(c, ':' | '{' | '}' | '[' | ']' | ',' | '<' | '"'))?
                    .trim();
                if key.is_empty() {
                    return wrong("it is not written as calls are");
                }
                key.to_owned()
            }
            None => return wrong("a key in a dictionary of it is not a string"),
        };
        cursor.skip_space();
        cursor.expect(":")?;
        cursor.skip_space();
        let value = value(cursor, notation, depth + 1)?;
        insert(to, &key, value)?;
        cursor.skip_space();
        if !cursor.rest().starts_with('}') {
            cursor.expect(",")?;
        }
    }
}

/// Reads a value.
fn value(cursor: &mut Cursor<'_>, notation: &Notation, depth: usize) -> Parsed<Value> {
    if depth > DEPTH {
        return wrong("its values are nested too deeply");
    }
    if let Some(text) = quoted(cursor, notation)? {
        return Ok(Value::String(text));
    }
    if cursor.eat("[") {
        let mut values = vec![];
        loop {
            cursor.skip_space();
            if cursor.eat("]") {
                return Ok(Value::Array(values));
            }
            values.push(value(cursor, notation, depth + 1)?);
            cursor.skip_space();
            if !cursor.rest().starts_with(']') {
                cursor.expect(",")?;
            }
        }
    }
    if cursor.eat("{") {
        let mut object = Map::new();
        entries(cursor, notation, depth, &mut object)?;
        return Ok(Value::Object(object));
    }
    let word = cursor.word(|c| !c.is_alphanumeric() && !matches!(c, '_' | '+' | '-' | '.'))?;
    match word {
        "True" | "true" => Ok(Value::Bool(true)),
        "False" | "false" => Ok(Value::Bool(false)),
        "None" | "null" => Ok(Value::Null),
        _ => {
            let number = serde_json::from_str(word).ok().filter(Value::is_number);
            number.ok_or_else(|| Fault::Wrong(format!("{word:?} in it is not a value")))
        }
    }
}

/// Returns the value of a text that consists of one Python literal.
pub(super) fn literal(text: &str) -> Option<Value> {
    // A number or a name ends at the next character, so the text needs one after it.
    let text = format!("{text} ");
    let mut cursor = Cursor::new(&text, 0);
    let value = value(&mut cursor, &PYTHON, 0).ok()?;
    cursor.rest().trim().is_empty().then_some(value)
}

/// Reads a string if a quote is next.
fn quoted(cursor: &mut Cursor<'_>, notation: &Notation) -> Parsed<Option<String>> {
    if let Some(mark) = notation.quote {
        if cursor.eat(mark) {
            return cursor
                .until(mark)
                .map(|text| Some(text.to_owned()))
                .map_err(|_| VALUE_NOT_CLOSED);
        }
        if cursor.may_become(mark) {
            return Err(NOT_CLOSED);
        }
    }
    match cursor.peek() {
        None => Err(NOT_CLOSED),
        Some(quote @ ('"' | '\'')) => python_string(cursor, quote).map(Some),
        Some(_) => Ok(None),
    }
}

/// Reads a string between quotes, or between three of them. Line breaks may stand in both, because
/// templates write them without an escape.
fn python_string(cursor: &mut Cursor<'_>, quote: char) -> Parsed<String> {
    let triple = String::from(quote).repeat(3);
    let close = if cursor.eat(&triple) {
        triple
    } else {
        // Two quotes are an empty string unless a third one follows, so the text must not end here.
        if cursor.may_become(&triple) {
            return Err(NOT_CLOSED);
        }
        cursor.bump();
        String::from(quote)
    };
    let mut text = String::new();
    loop {
        if cursor.eat(&close) {
            return Ok(text);
        }
        match cursor.peek() {
            None => return Err(VALUE_NOT_CLOSED),
            Some('\\') => {
                cursor.bump();
                escape(cursor, &mut text)?;
            }
            Some(c) => {
                if c == quote && cursor.may_become(&close) {
                    return Err(VALUE_NOT_CLOSED);
                }
                text.push(c);
                cursor.bump();
            }
        }
    }
}

/// Reads an escape sequence after its backslash. Python keeps the backslash of an unknown escape.
fn escape(cursor: &mut Cursor<'_>, to: &mut String) -> Parsed<()> {
    let Some(c) = cursor.peek() else {
        return Err(VALUE_NOT_CLOSED);
    };
    cursor.bump();
    let plain = match c {
        '\n' => return Ok(()),
        '\\' | '\'' | '"' => c,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'a' => '\u{7}',
        'v' => '\u{b}',
        '0'..='7' => {
            let digits = cursor
                .rest()
                .bytes()
                .take(2)
                .take_while(|digit| matches!(digit, b'0'..=b'7'))
                .count();
            let first = cursor.at - 1;
            let octal = &Cursor::new(cursor.whole(), first).rest()[..digits + 1];
            cursor.at += digits;
            return character(u32::from_str_radix(octal, 8).unwrap_or(u32::MAX), to);
        }
        'x' => return hexadecimal(cursor, 2).and_then(|code| character(code, to)),
        'U' => return hexadecimal(cursor, 8).and_then(|code| character(code, to)),
        'u' => {
            let high = hexadecimal(cursor, 4)?;
            // JSON writes characters above U+FFFF as two escapes.
            if !(0xd800..0xdc00).contains(&high) {
                return character(high, to);
            }
            cursor.expect("\\u").map_err(in_value)?;
            let low = hexadecimal(cursor, 4)?;
            if !(0xdc00..0xe000).contains(&low) {
                return character(high, to);
            }
            return character(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), to);
        }
        'N' => return wrong("it has an escape \\N, which is not supported"),
        c => {
            to.push('\\');
            c
        }
    };
    to.push(plain);
    Ok(())
}

/// Returns the fault for a text that ends within a value.
fn in_value(fault: Fault) -> Fault {
    if matches!(fault, Fault::Open(_)) {
        VALUE_NOT_CLOSED
    } else {
        fault
    }
}

/// Reads a number of hexadecimal digits.
fn hexadecimal(cursor: &mut Cursor<'_>, digits: usize) -> Parsed<u32> {
    let Some(text) = cursor.rest().get(..digits) else {
        return if cursor.rest().len() < digits {
            Err(VALUE_NOT_CLOSED)
        } else {
            wrong("it has a bad escape")
        };
    };
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return wrong(format!("it has a bad escape: {text:?} is not hexadecimal"));
    }
    cursor.at += digits;
    u32::from_str_radix(text, 16).map_err(|_| Fault::Wrong("it has a bad escape".to_owned()))
}

/// Appends a character by its code point.
fn character(code: u32, to: &mut String) -> Parsed<()> {
    match char::from_u32(code) {
        Some(c) => {
            to.push(c);
            Ok(())
        }
        None => wrong(format!(
            "it has an escape for U+{code:04X}, which is not a character"
        )),
    }
}
