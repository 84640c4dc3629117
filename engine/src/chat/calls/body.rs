//! What stands between the marks of calls. Each reader gives nothing for what is not a whole call.

use serde_json::{Deserializer, Map, Value};

use super::call::ToolCall;
use super::elements;
use super::tools::Tools;

/// Objects, or lists of them.
pub(super) fn json(text: &str, _tools: &Tools) -> Option<Vec<ToolCall>> {
    let text = text.trim_end().trim_end_matches("<|/tool_call|>");
    let values: Vec<Value> =
        Deserializer::from_str(text).into_iter::<Value>().collect::<Result<_, _>>().ok()?;
    let calls = values.into_iter().flat_map(|value| match value {
        Value::Array(values) => values,
        value => vec![value],
    });
    some(calls.map(call).collect::<Option<_>>()?)
}

/// Whether what ends calls, and comes next, stands in a value that is not closed yet: in a string of JSON, or in an
/// element of a parameter.
pub(super) fn is_open(text: &str, closes: &str) -> bool {
    match json_of(text) {
        Some(json) => {
            let text = format!("{json}{closes}");
            let mut values = Deserializer::from_str(&text).into_iter::<Value>();
            values.find_map(Result::err).is_some_and(|error| error.is_eof())
        }
        None => elements::is_open(text),
    }
}

/// What is JSON of a body that has JSON in it: all, or what is behind the name of a function.
fn json_of(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let behind = || text.split_once('>').map(|(_, rest)| rest.trim_start());
    if text.starts_with(['{', '[']) { Some(text) } else { behind().filter(|rest| rest.starts_with('{')) }
}

/// Whether a call that is read from a body is whole, though the closing mark is missing: JSON and elements tell where they
/// end. A name, keys and values, and parameters without an element around them do not.
pub(super) fn ends_itself(text: &str) -> bool {
    json_of(text).is_some() || text.trim_start().starts_with('<')
}

/// At least one.
fn some(calls: Vec<ToolCall>) -> Option<Vec<ToolCall>> {
    (!calls.is_empty()).then_some(calls)
}

/// The call that an object is, under the names that models give its parts.
fn call(value: Value) -> Option<ToolCall> {
    let Value::Object(mut object) = value else { return None };
    if let Some(function @ Value::Object(_)) = object.get("function") {
        return call(function.clone()).map(|call| ToolCall { id: identity(&object), ..call });
    }
    let name = ["name", "tool_name", "function"].iter().find_map(|key| object.get(*key)?.as_str());
    let name = name.filter(|name| !name.is_empty())?.to_owned();
    let id = identity(&object);
    let given = ["arguments", "parameters", "args"].iter().find_map(|key| object.shift_remove(*key));
    Some(ToolCall { id, name, arguments: arguments(given.unwrap_or(Value::Null))? })
}

fn identity(object: &Map<String, Value>) -> Option<String> {
    let id = ["id", "tool_call_id"].iter().find_map(|key| object.get(*key)?.as_str());
    id.filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Arguments: an object, also as a text; none is an empty one.
fn arguments(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(arguments) => Some(arguments),
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// A name and the arguments as a text.
fn named(name: &str, text: &str) -> Option<ToolCall> {
    let name = name.trim();
    let arguments = arguments(Value::String(text.to_owned()))?;
    (!name.is_empty() && !name.contains(char::is_whitespace)).then(|| ToolCall {
        id: None,
        name: name.to_owned(),
        arguments,
    })
}

/// Between `<tool_call>` and `</tool_call>`.
pub(super) fn tagged(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    match text.trim() {
        text if text.starts_with(['{', '[']) => json(text, tools),
        text if text.starts_with('<') => elements::functions(text, tools),
        text => elements::keys_and_values(text, tools),
    }
}

/// Objects between which the opening stands again.
pub(super) fn split(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let calls = text.split("<function_call>").map(|text| json(text, tools));
    Some(calls.collect::<Option<Vec<_>>>()?.concat())
}

/// A list; or since 2025 a name, with or without that of the call, and the arguments, for each call.
pub(super) fn mistral(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    if text.trim_start().starts_with('[') && !text.contains("[ARGS]") {
        return json(text, tools);
    }
    let one = |text: &str| {
        let (head, arguments) =
            text.split_once("[ARGS]").or_else(|| text.split_at_checked(text.find('{')?))?;
        let (name, id) = head.split_once("[CALL_ID]").map_or((head, None), |(name, id)| (name, Some(id)));
        Some(ToolCall { id: id.map(str::to_owned), ..named(name, arguments)? })
    };
    text.split("[TOOL_CALLS]").map(one).collect()
}

/// Objects, with `;` between them, or the call of a tool that Llama knows by itself, such as
/// `brave_search.call(query="..")`.
pub(super) fn python(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    let text = text.trim();
    if text.starts_with(['{', '[']) {
        return json(text, tools).or_else(|| json(&text.replace("};", "}"), tools));
    }
    let (name, rest) = text.split_once(".call(")?;
    let (key, value) = rest.strip_suffix(')')?.split_once('=')?;
    let arguments = Map::from_iter([(key.trim().to_owned(), serde_json::from_str(value).ok()?)]);
    some(vec![ToolCall { id: None, name: name.to_owned(), arguments }])
}

/// Each call between marks, with its name behind the separator: after its type, and in front of the arguments in a
/// block of code; or, since 3.1, in front of the separator.
pub(super) fn deepseek(text: &str, _tools: &Tools) -> Option<Vec<ToolCall>> {
    let one = |text: &str| {
        let (head, rest) = text.trim().strip_suffix("<｜tool▁call▁end｜>")?.split_once("<｜tool▁sep｜>")?;
        let Some((name, block)) = rest.split_once("\n```json\n") else { return named(head, rest) };
        named(name, block.trim_end().strip_suffix("```")?)
    };
    let mut calls = text.split("<｜tool▁call▁begin｜>");
    calls.next().filter(|before| before.trim().is_empty())?;
    some(calls.map(one).collect::<Option<_>>()?)
}

/// A list of objects whose one key is the name.
pub(super) fn apertus(text: &str, _tools: &Tools) -> Option<Vec<ToolCall>> {
    let objects: Vec<Map<String, Value>> = serde_json::from_str(text).ok()?;
    let calls = objects.into_iter().flatten();
    some(
        calls
            .map(|(name, given)| Some(ToolCall { id: None, name, arguments: arguments(given)? }))
            .collect::<Option<_>>()?,
    )
}
