//! Calls as Python writes them, `[name(key=value, ...)]`, and the values in them.
//!
//! Values are literals: strings, numbers, lists, dictionaries, `True`, `False` and `None`. The
//! spellings of JSON are accepted too, because several templates write values with `tojson`.
//! Expressions, positional arguments and string prefixes are rejected.

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::cursor::{CallFault, Cursor, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, named, wrong};

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
        return wrong("it does not have the form of a call");
    }
    Ok(name)
}

/// The notation of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notation {
    /// The mark around strings, in addition to Python's quotes.
    pub(super) quote: Option<&'static str>,
}

const PYTHON: Notation = Notation { quote: None };

/// Reads the rest of a dictionary, after its brace.
pub(super) fn entries(
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
                    return wrong("it does not have the form of a call");
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
            number.ok_or_else(|| CallFault::Wrong(format!("{word:?} in it is not a value")))
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
pub(super) fn quoted(cursor: &mut Cursor<'_>, notation: &Notation) -> Parsed<Option<String>> {
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
fn in_value(fault: CallFault) -> CallFault {
    if matches!(fault, CallFault::Open(_)) {
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
    u32::from_str_radix(text, 16).map_err(|_| CallFault::Wrong("it has a bad escape".to_owned()))
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
