//! Calls as Python writes them, `[name(key=value, ...)]`, and Gemma's variant, `call:name{key:value, ...}`.
//!
//! Values are literals: strings, numbers, lists, dictionaries, `True`, `False` and `None`, also as JSON spells them
//! (several templates write values with `tojson`). Expressions, positional arguments and string prefixes are rejected.

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::cursor::{Cursor, Fault, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, named, wrong};
use super::tools::Tools;

/// The nesting limit of values, the same as that of serde_json.
const DEPTH: usize = 127;

/// Reads `[name(..), ..]`.
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

/// Reads calls in lines of their own, as Olmo 3 writes them, or one list.
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

/// Reads `name(key=value, ..)`.
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
}

const PYTHON: Notation = Notation {
    quote: None,
    marks: ["", ""],
};
const GEMMA: Notation = Notation {
    quote: Some("<|\"|>"),
    marks: ["<|tool_call>", "<tool_call|>"],
};
const FUNCTION_GEMMA: Notation = Notation {
    quote: Some("<escape>"),
    marks: ["<start_function_call>", "<end_function_call>"],
};

/// Gemma 4: `call:name{key:value, ..}`, with strings between `<|"|>`.
pub(super) fn gemma(cursor: &mut Cursor<'_>, tools: &Tools) -> Parsed<Vec<ToolCall>> {
    braces(cursor, tools, &GEMMA)
}

/// FunctionGemma: the same form, with every value between `<escape>`. Only the tool tells their types.
pub(super) fn function_gemma(cursor: &mut Cursor<'_>, tools: &Tools) -> Parsed<Vec<ToolCall>> {
    let mut calls = braces(cursor, tools, &FUNCTION_GEMMA)?;
    for call in &mut calls {
        for (key, value) in &mut call.arguments {
            if let Value::String(text) = value {
                *value = tools.read(&call.name, key, text);
            }
        }
    }
    Ok(calls)
}

/// Reads calls up to the end of the reply, from the opening mark of the first one on.
///
/// A string ends at the next quote mark and has no escapes, so a string that contains one looks like a shorter string. Such a
/// text is detected by the marks that remain after the last call.
fn braces(cursor: &mut Cursor<'_>, tools: &Tools, notation: &Notation) -> Parsed<Vec<ToolCall>> {
    let [open, close] = notation.marks;
    let mut calls = vec![];
    loop {
        calls.push(one_braces(cursor, tools, notation)?);
        cursor.skip_space();
        cursor.expect(close)?;
        let mut next = *cursor;
        next.skip_space();
        if next.eat(open) {
            *cursor = next;
            continue;
        }
        // The first mark is reported, so that the problem does not depend on the pieces of the reply.
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

fn one_braces(cursor: &mut Cursor<'_>, tools: &Tools, notation: &Notation) -> Parsed<ToolCall> {
    cursor.skip_space();
    cursor.expect("call:")?;
    let name = cursor.word(|c| c == '{' || c.is_whitespace())?;
    cursor.expect("{")?;
    let mut arguments = Map::new();
    entries(cursor, notation, 0, &mut arguments)?;
    if let Some(key) = arguments
        .keys()
        .skip(1)
        .find(|key| tools.lacks_parameter(name, key))
    {
        return wrong(ambiguous(key, name));
    }
    named(None, name, arguments)
}

/// The problem of a call in which a value may contain what looks like the next parameter.
pub(super) fn ambiguous(parameter: &str, function: &str) -> String {
    format!(
        "{function} has no parameter {parameter}, so this may belong to the value in front of it"
    )
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

/// Returns the value of a text that is one Python literal.
pub(super) fn literal(text: &str) -> Option<Value> {
    // A number or a name ends at the next character, so the text needs one after it.
    let text = format!("{text} ");
    let mut cursor = Cursor::new(&text, 0);
    let value = value(&mut cursor, &PYTHON, 0).ok()?;
    cursor.rest().trim().is_empty().then_some(value)
}

/// Reads a string, if one is next.
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

/// Reads a string between quotes, or between three of them. Line breaks may stand in both, because templates write them
/// without an escape.
fn python_string(cursor: &mut Cursor<'_>, quote: char) -> Parsed<String> {
    let triple = String::from(quote).repeat(3);
    let close = if cursor.eat(&triple) {
        triple
    } else {
        // Two quotes are an empty string, unless a third one comes.
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

/// Reads an escape sequence, after its backslash. Python keeps the backslash of an unknown one.
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

fn in_value(fault: Fault) -> Fault {
    if matches!(fault, Fault::Open(_)) {
        VALUE_NOT_CLOSED
    } else {
        fault
    }
}

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
