//! Spellings of keys: JSON allows `"\u0061"` for the key `"a"`.
//!
//! llguidance compares the keys of an object as they are written. Another spelling of a declared
//! key would pass as an additional key, so its value would follow the wrong schema. Without `\u`
//! escapes, every key has only one spelling that llguidance generates: it escapes a character only
//! if JSON demands that, and then only in the short form. This module decides which schemas need
//! that.

use serde_json::{Map, Value};

use super::fault::GrammarFault;
use super::place::{NAMED, VALUES, escaped};

/// The setting of llguidance that lists the letters that may follow a backslash.
pub(super) const SETTING: &str = "json_allowed_escapes";

/// All letters except `u`.
pub(super) const SHORT_ESCAPES: &str = "nrbtf\\\"";

/// Returns true if an object within `schema` declares keys and allows others.
///
/// Merging schemas (`allOf`, `$ref`) cannot make such an object out of closed ones, because a merge
/// with a closed object is closed.
pub(super) fn are_ambiguous(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(are_ambiguous),
        Value::Object(keywords) => {
            is_open(keywords)
                || keywords.iter().any(|(name, value)| match value {
                    _ if VALUES.contains(&&**name) => false,
                    Value::Object(named) if NAMED.contains(&&**name) => {
                        named.values().any(are_ambiguous)
                    }
                    value => are_ambiguous(value),
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns true if an object declares keys and allows others.
fn is_open(keywords: &Map<String, Value>) -> bool {
    let has = |keyword: &str| match keywords.get(keyword) {
        Some(Value::Object(entries)) => !entries.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    };
    let additional = keywords.get("additionalProperties") != Some(&Value::Bool(false));
    let patterns = has("patternProperties");
    patterns || additional && (has("properties") || has("required"))
}

/// Checks that the strings of `const` and `enum` can be written without `\u` escapes.
pub(super) fn check_strings(schema: &Value, place: &str) -> Result<(), GrammarFault> {
    match schema {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(i, item)| check_strings(item, &format!("{place}/{i}"))),
        Value::Object(keywords) => keywords.iter().try_for_each(|(name, value)| {
            let place = format!("{place}/{}", escaped(name));
            match value {
                value if name == "const" || name == "enum" => check_value(value, &place),
                _ if VALUES.contains(&&**name) => Ok(()),
                Value::Object(named) if NAMED.contains(&&**name) => {
                    named.iter().try_for_each(|(inner, value)| {
                        check_strings(value, &format!("{place}/{}", escaped(inner)))
                    })
                }
                value => check_strings(value, &place),
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_value(value: &Value, place: &str) -> Result<(), GrammarFault> {
    // U+007F is a control character for llguidance too, although JSON allows it in a string.
    let needs_escape =
        |c: char| c.is_ascii_control() && !matches!(c, '\u{8}' | '\t' | '\n' | '\u{c}' | '\r');
    match value {
        Value::String(string) if string.contains(needs_escape) => {
            Err(GrammarFault::ControlCharacter {
                string: string.clone(),
                place: place.to_owned(),
            })
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_value(item, place)),
        Value::Object(entries) => entries
            .values()
            .try_for_each(|entry| check_value(entry, place)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_declared_and_other_keys_are_found() {
        let cases = [
            (r#"{"properties": {"a": {}}}"#, true),
            (r#"{"required": ["a"]}"#, true),
            (
                r#"{"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}"#,
                true,
            ),
            (
                r#"{"properties": {"a": {}}, "additionalProperties": false}"#,
                false,
            ),
            (
                r#"{"patternProperties": {"^a": {}}, "additionalProperties": false}"#,
                true,
            ),
            (r#"{"items": [{"anyOf": [{"required": ["a"]}]}]}"#, true),
            (r#"{"$defs": {"required": {"type": "string"}}}"#, false),
            (r#"{"const": {"properties": {"a": {}}}}"#, false),
            (r#"{"type": "object"}"#, false),
            ("true", false),
        ];
        for (schema, wanted) in cases {
            let schema = serde_json::from_str(schema).unwrap();
            assert_eq!(are_ambiguous(&schema), wanted, "{schema}");
        }
    }

    #[test]
    fn control_characters_of_values_are_found() {
        let cases = [
            (
                r#"{"properties": {"a": {"const": "\n\t\r\b\f\"\\é"}}}"#,
                None,
            ),
            (
                r#"{"properties": {"a/b": {"enum": [1, "\u001b["]}}}"#,
                Some("#/properties/a~1b/enum"),
            ),
            (r##"{"const": {"a": ["\u007f"]}}"##, Some("#/const")),
            (r#"{"pattern": "[^\u0000]", "default": "\u0000"}"#, None),
        ];
        for (schema, wanted) in cases {
            let found = match check_strings(&serde_json::from_str(schema).unwrap(), "#") {
                Ok(()) => None,
                Err(GrammarFault::ControlCharacter { place, .. }) => Some(place),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found.as_deref(), wanted, "{schema}");
        }
    }
}
