//! Calls whose arguments are elements, one each: as `<parameter=place>` and its value, or as `<arg_key>` and
//! `<arg_value>`.
//!
//! A value is a text as it stands. Only the tool says whether it means a number or a list: what is no string to it is
//! read as JSON, or as Python's `True`, `False` and `None`, and so is what it does not know; what is neither stays a string.

use serde_json::{Deserializer, Map, Value};

use super::call::ToolCall;
use super::tools::Tools;

/// What a value stands between.
const VALUES: [[&str; 2]; 3] = [
    ["<parameter=", "</parameter>"],
    ["<arg_value>", "</arg_value>"],
    ["<｜DSML｜parameter ", "</｜DSML｜parameter>"],
];

/// Whether a value has begun and not ended.
pub(super) fn is_open(text: &str) -> bool {
    VALUES.iter().any(|[opens, closes]| text.rfind(opens) > text.rfind(closes))
}

/// Whether a function ends here although a parameter of it does not: what comes between the marks of calls, and what
/// behind them. A value that has both the end of a function and that of calls in it goes on with its own end.
pub(super) fn ends_without_its_value(before: &str, after: &str) -> bool {
    let (end, after) = (VALUES[0][1], after.trim_start());
    let goes_on = end.starts_with(after) || after.starts_with(end);
    before.trim_end().ends_with("</function>") && !goes_on
}

/// Functions one after another.
pub(super) fn functions(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let (mut calls, mut rest) = (vec![], text.trim());
    while !rest.is_empty() {
        let (name, body) = rest.strip_prefix("<function=")?.split_once('>')?;
        let (arguments, after) = arguments(name, body.trim_start(), tools)?;
        calls.push(ToolCall { id: None, name: name.to_owned(), arguments });
        rest = after.strip_prefix("</function>")?.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// One, from its name on: `weather>` and parameters, or an object.
pub(super) fn function(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let (name, body) = text.trim().split_once('>')?;
    let (arguments, after) = arguments(name, body.trim_start(), tools)?;
    after.is_empty().then(|| vec![ToolCall { id: None, name: name.to_owned(), arguments }])
}

/// The arguments of a function, and what is behind them: an object, or a parameter each.
fn arguments<'a>(name: &str, mut rest: &'a str, tools: &Tools) -> Option<(Map<String, Value>, &'a str)> {
    if rest.starts_with('{') {
        let mut objects = Deserializer::from_str(rest).into_iter();
        let arguments = objects.next()?.ok()?;
        return Some((arguments, rest[objects.byte_offset()..].trim_start()));
    }
    let mut arguments = Map::new();
    while let Some(parameter) = rest.strip_prefix("<parameter=") {
        let (key, after) = parameter.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        arguments.insert(key.to_owned(), read(tools, name, key, line(value)));
        rest = after.trim_start();
    }
    Some((arguments, rest))
}

/// A text without the line break before it and that behind it.
fn line(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// A name, then keys and values in turn.
pub(super) fn keys_and_values(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let at = text.find("<arg_key>").unwrap_or(text.len());
    let (name, mut rest) = (text[..at].trim(), text[at..].trim());
    if name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<arg_key>")?.split_once("</arg_key>")?;
        let (value, after) = after.trim_start().strip_prefix("<arg_value>")?.split_once("</arg_value>")?;
        arguments.insert(key.trim().to_owned(), read(tools, name, key.trim(), value));
        rest = after.trim_start();
    }
    Some(vec![ToolCall { id: None, name: name.to_owned(), arguments }])
}

/// Invocations one after another, as DeepSeek has them since 3.2: each parameter says whether it is a string.
pub(super) fn invocations(text: &str, _tools: &Tools) -> Option<Vec<ToolCall>> {
    let (mut calls, mut rest) = (vec![], text.trim());
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix("<｜DSML｜invoke name=\"")?.split_once("\">")?;
        let (arguments, after) = parameters(after.trim_start())?;
        calls.push(ToolCall { id: None, name: name.to_owned(), arguments });
        rest = after.strip_prefix("</｜DSML｜invoke>")?.trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// The parameters of an invocation, and what is behind them.
fn parameters(mut rest: &str) -> Option<(Map<String, Value>, &str)> {
    let mut arguments = Map::new();
    while let Some(one) = rest.strip_prefix("<｜DSML｜parameter name=\"") {
        let (key, after) = one.split_once("\" string=\"")?;
        let (string, after) = after.split_once("\">")?;
        let (text, after) = after.split_once("</｜DSML｜parameter>")?;
        let value = match string {
            "true" => Value::String(text.to_owned()),
            _ => serde_json::from_str(text).ok()?,
        };
        arguments.insert(key.to_owned(), value);
        rest = after.trim_start();
    }
    Some((arguments, rest))
}

/// The value that a text is to a parameter of a function.
fn read(tools: &Tools, function: &str, parameter: &str, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    if tools.is_string(function, parameter) {
        return string();
    }
    match text {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| string()),
    }
}
