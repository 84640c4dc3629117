//! Readers of formats with JSON arguments.
//!
//! A string in JSON or Python ends at its quote, so marks of calls inside a string have no meaning.
//! Each reader starts after the opening mark and stops before the closing mark, if the format has
//! one.

use serde_json::{Map, Value};

use super::call::ToolCall;
use super::cursor::{Cursor, NOT_CLOSED, Parsed, named, wrong};
use super::python;

/// Reads objects or lists of objects, up to the closing mark or the end of the text.
pub(super) fn json(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let mut calls = vec![];
    loop {
        calls.extend(calls_of(cursor.json()?)?);
        let mut next = *cursor;
        next.skip_space();

        // Llama 3 separates objects by semicolons.
        if next.eat(";") {
            next.skip_space();
        }
        if !next.rest().starts_with(['{', '[']) {
            break;
        }

        *cursor = next;
    }
    if calls.is_empty() {
        wrong("it contains no call")
    } else {
        Ok(calls)
    }
}

/// Reads one object or one list of objects. Text after it is not part of the calls.
pub(super) fn one_json(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let calls = calls_of(cursor.json()?)?;
    if calls.is_empty() {
        wrong("it contains no call")
    } else {
        Ok(calls)
    }
}

/// Returns the calls in an object or in a list of objects.
fn calls_of(value: Value) -> Parsed<Vec<ToolCall>> {
    match value {
        Value::Array(values) => values.into_iter().map(call).collect(),
        value => Ok(vec![call(value)?]),
    }
}

/// Returns the call in an object. Models use several keys for the name and the arguments.
fn call(value: Value) -> Parsed<ToolCall> {
    let Value::Object(mut object) = value else {
        return wrong("its JSON is not an object");
    };

    // The form of OpenAI's API has the call in an inner object, and the identifier next to it.
    if let Some(function @ Value::Object(_)) = object.get("function") {
        return call(function.clone()).map(|call| ToolCall {
            id: identity(&object),
            ..call
        });
    }

    let name = ["name", "tool_name", "function"]
        .iter()
        .find_map(|key| object.get(*key)?.as_str());
    let Some(name) = name.map(str::to_owned) else {
        return wrong("its JSON does not name a function");
    };

    let id = identity(&object);
    let mut values = ["arguments", "parameters", "args"]
        .iter()
        .filter_map(|key| object.shift_remove(*key));
    let value = values.next();
    if values.next().is_some() {
        return wrong("its JSON has arguments under two keys");
    }

    // Without arguments, a key that no model writes may be a misspelled `arguments`.
    let is_other = |key: &&String| !CALL_KEYS.contains(&key.as_str());
    if let (None, Some(key)) = (&value, object.keys().find(is_other)) {
        return wrong(format!("its JSON has {key:?} and no arguments"));
    }

    let value = value.unwrap_or(Value::Null);
    named(id.as_deref(), &name, arguments(value)?)
}

/// The keys of a call without arguments.
const CALL_KEYS: [&str; 6] = [
    "name",
    "tool_name",
    "function",
    "id",
    "tool_call_id",
    "type",
];

/// Returns the identifier of a call, unless it is empty.
fn identity(object: &Map<String, Value>) -> Option<String> {
    let id = ["id", "tool_call_id"]
        .iter()
        .find_map(|key| object.get(*key)?.as_str());
    id.filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Returns arguments that are an object, a string with an object in JSON, or missing.
fn arguments(value: Value) -> Parsed<Map<String, Value>> {
    match value {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Value::String(text) => {
            let text = text.trim();
            let mut cursor = Cursor::new(text, 0);
            let object = cursor.object();
            match object {
                Ok(object) if cursor.rest().is_empty() => Ok(object),
                _ => wrong("its arguments are a string that is not a JSON object"),
            }
        }
        _ => wrong("its arguments are not a JSON object"),
    }
}

/// Reads calls of Mistral: a list, or since 2025 a name, an optional identifier and the arguments.
pub(super) fn mistral(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    cursor.skip_space();

    // A list starts like the marks, so a text that ends within a mark does not decide yet.
    if cursor.rest().starts_with('[')
        && !["[ARGS]", "[CALL_ID]"]
            .iter()
            .any(|mark| cursor.may_become(mark))
    {
        return one_json(cursor);
    }

    let name = cursor.word(|c| matches!(c, '[' | '{'))?.trim();
    let mut id = None;
    if cursor.eat("[CALL_ID]") {
        id = Some(cursor.until("[ARGS]")?.trim());
    } else if cursor.rest().starts_with('[') {
        if cursor.may_become("[CALL_ID]") {
            return Err(NOT_CLOSED);
        }
        cursor.expect("[ARGS]")?;
    }

    cursor.skip_space();
    Ok(vec![named(id, name, cursor.object()?)?])
}

/// Reads calls of Llama after its Python tag: objects, a list of calls, or the call of a built-in
/// tool such as `brave_search.call(query="..")`.
pub(super) fn python_tag(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    cursor.skip_space();
    match cursor.peek() {
        Some('{') => json(cursor),
        Some('[') => {
            let mut inside = *cursor;
            inside.bump();
            inside.skip_space();
            if inside.rest().starts_with('{') {
                json(cursor)
            } else {
                python::list(cursor)
            }
        }
        Some(_) => {
            let call = python::call(cursor)?;
            let name = call
                .name
                .strip_suffix(".call")
                .unwrap_or(&call.name)
                .to_owned();
            Ok(vec![ToolCall { name, ..call }])
        }
        None => Err(NOT_CLOSED),
    }
}

/// Reads calls of DeepSeek, each between marks. DeepSeek 3 and R1 write the type of the call, the
/// separator, the name, and the arguments in a block of code. DeepSeek 3.1 writes the name, the
/// separator and the arguments.
pub(super) fn deepseek(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let mut calls = vec![];
    loop {
        cursor.skip_space();
        if cursor.rest().starts_with(DEEPSEEK_END) && !calls.is_empty() {
            return Ok(calls);
        }
        if cursor.may_become(DEEPSEEK_END) {
            return Err(NOT_CLOSED);
        }

        cursor.expect("<｜tool▁call▁begin｜>")?;
        let head = cursor.until("<｜tool▁sep｜>")?.trim();
        if head.contains(['<', '\n']) {
            // The separator of this call is damaged, and the one that was found is another call's.
            return wrong("<｜tool▁sep｜> is missing");
        }

        cursor.skip_space();
        let (name, arguments) = if cursor.rest().starts_with('{') {
            (head, cursor.object()?)
        } else {
            let name = cursor.word(|c| c == '\n')?.trim();
            cursor.expect("\n```json\n")?;
            cursor.skip_space();
            let arguments = cursor.object()?;
            cursor.skip_space();
            cursor.expect("```")?;
            (name, arguments)
        };
        calls.push(named(None, name, arguments)?);
        cursor.skip_space();
        cursor.expect("<｜tool▁call▁end｜>")?;
    }
}

const DEEPSEEK_END: &str = "<｜tool▁calls▁end｜>";

/// Reads calls of Kimi K2, each between marks with `functions.NAME:NUMBER` before the separator.
/// The template expects this text as the identifier in the result of the tool.
pub(super) fn kimi(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let mut calls = vec![];
    loop {
        cursor.skip_space();
        if cursor.rest().starts_with(KIMI_END) && !calls.is_empty() {
            return Ok(calls);
        }
        if cursor.may_become(KIMI_END) {
            return Err(NOT_CLOSED);
        }

        cursor.expect("<|tool_call_begin|>")?;
        let id = cursor.until("<|tool_call_argument_begin|>")?.trim();
        let name = id.strip_prefix("functions.").unwrap_or(id);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let Some((name, _)) = name.rsplit_once(':').filter(|(_, text)| is_number(text)) else {
            return wrong(format!("its identifier {id:?} does not end with a number"));
        };

        cursor.skip_space();
        calls.push(named(Some(id), name, cursor.object()?)?);
        cursor.skip_space();
        cursor.expect("<|tool_call_end|>")?;
    }
}

const KIMI_END: &str = "<|tool_calls_section_end|>";

/// Reads calls of Solar: each call between marks, with its identifier, name and arguments.
pub(super) fn solar(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let mut calls = vec![];
    loop {
        cursor.skip_space();
        if cursor.rest().starts_with(SOLAR_END) && !calls.is_empty() {
            return Ok(calls);
        }
        if cursor.may_become(SOLAR_END) {
            return Err(NOT_CLOSED);
        }

        cursor.expect("<|tool_call:begin|>")?;
        let id = cursor.until("<|tool_call:name|>")?.trim();
        let name = cursor.until("<|tool_call:args|>")?.trim();
        cursor.skip_space();
        calls.push(named(Some(id), name, cursor.object()?)?);
        cursor.skip_space();
        cursor.expect("<|tool_call:end|>")?;
    }
}

const SOLAR_END: &str = "<|calls|>";

/// Reads calls of Apertus: a list of objects, each with the name of a function as its only key.
pub(super) fn apertus(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    let Value::Array(objects) = cursor.json()? else {
        return wrong("its JSON is not a list");
    };

    let mut calls = vec![];
    for object in objects {
        let Value::Object(object) = object else {
            return wrong("its JSON is not a list of objects");
        };
        for (name, value) in object {
            calls.push(named(None, &name, arguments(value)?)?);
        }
    }

    if calls.is_empty() {
        wrong("it contains no call")
    } else {
        Ok(calls)
    }
}

/// Reads calls of LFM2: a list of Python calls, or JSON if the system message asks for it.
pub(super) fn lfm2(cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
    python_tag(cursor)
}
