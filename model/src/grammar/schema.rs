//! Rejects JSON schemas that llguidance would follow differently without an error.

use serde_json::{Map, Value};

use super::fault::GrammarFault;
use super::place::{NAMED, VALUES, escaped};

/// The largest integer up to which the library keeps all digits, because it computes in `f64`.
const EXACT: u64 = 1 << 53;

/// Keywords with numbers that are compared with numbers of a text.
const NUMBERS: [&str; 7] = [
    "const",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Returns an error if the library would accept a text that the schema does not allow.
pub(super) fn check(schema: &Value) -> Result<(), GrammarFault> {
    within(schema, "#")
}

/// Checks a part of a schema. `place` is its JSON pointer after `#`.
fn within(schema: &Value, place: &str) -> Result<(), GrammarFault> {
    let Value::Object(keywords) = schema else {
        let items = schema.as_array().into_iter().flatten().enumerate();
        return items
            .into_iter()
            .try_for_each(|(i, value)| within(value, &format!("{place}/{i}")));
    };

    keys(keywords, place)?;
    for (name, value) in keywords {
        let place = format!("{place}/{}", escaped(name));
        match value {
            // `const` and `enum` are among the values that are not schemas, so numbers come first.
            value if NUMBERS.contains(&&**name) => numbers(value, &place)?,
            _ if VALUES.contains(&&**name) => {}
            Value::Object(named) if NAMED.contains(&&**name) => {
                named.iter().try_for_each(|(inner, value)| {
                    within(value, &format!("{place}/{}", escaped(inner)))
                })?
            }
            value => within(value, &place)?,
        }
    }

    Ok(())
}

/// Returns an error for a number that would lose digits.
fn numbers(value: &Value, place: &str) -> Result<(), GrammarFault> {
    match value {
        Value::Number(number) => {
            let exact = match number.as_i64() {
                Some(whole) => whole.unsigned_abs() <= EXACT,
                None => number.as_f64().is_some_and(|x| x.abs() <= EXACT as f64),
            };
            let large = || GrammarFault::Large {
                number: number.to_string(),
                place: place.to_owned(),
            };
            if exact { Ok(()) } else { Err(large()) }
        }
        Value::Array(items) => items.iter().try_for_each(|item| numbers(item, place)),
        Value::Object(entries) => entries.values().try_for_each(|entry| numbers(entry, place)),
        _ => Ok(()),
    }
}

/// Returns an error for `minProperties` if a text could satisfy it with one key twice.
///
/// The library counts keys as they are written, but the value has only one entry for both.
fn keys(keywords: &Map<String, Value>, place: &str) -> Result<(), GrammarFault> {
    let least = keywords
        .get("minProperties")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let required = keywords
        .get("required")
        .and_then(Value::as_array)
        .map_or(0, Vec::len) as u64;

    // Keys under `required` and `properties` occur once, because the library writes each of them at
    // its own place.
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    let free = patterns.is_some_and(|patterns| !patterns.is_empty())
        || keywords.get("additionalProperties") != Some(&Value::Bool(false));

    // If one free key is enough, a text that repeats it still has that key.
    if free && least > required + 1 {
        return Err(GrammarFault::Keys {
            place: place.to_owned(),
        });
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_followed_otherwise_is_refused() {
        let large = |number: &str, place: &str| {
            format!(
                "the number {number} at {place} is beyond 2^53 (9007199254740992), where digits would be lost; write it as a string, or choose other bounds"
            )
        };
        let keys = |place: &str| {
            format!(
                "minProperties at {place} counts keys without a name, and a text could repeat one of them; list the keys under required, or remove minProperties"
            )
        };
        let cases = [
            (r#"{"const": 9007199254740992}"#, None),
            (
                r#"{"const": 9007199254740993}"#,
                Some(large("9007199254740993", "#/const")),
            ),
            (
                r#"{"items": {"enum": [{"a": [-9223372036854775808]}]}}"#,
                Some(large("-9223372036854775808", "#/items/enum")),
            ),
            (
                r#"{"anyOf": [{}, {"minimum": 1e300}]}"#,
                Some(large("1e+300", "#/anyOf/1/minimum")),
            ),
            (
                r#"{"default": 1e300, "properties": {"const": {"minLength": 3}}}"#,
                None,
            ),
            (
                r#"{"$defs": {"a": {"minProperties": 2}}}"#,
                Some(keys("#/$defs/a")),
            ),
            (r#"{"minProperties": 2, "required": ["a"]}"#, None),
            (
                r#"{"minProperties": 2, "patternProperties": {"a": {}}, "additionalProperties": false}"#,
                Some(keys("#")),
            ),
            (
                r#"{"minProperties": 2, "properties": {"a": {}, "b": {}}, "additionalProperties": false}"#,
                None,
            ),
        ];
        for (schema, wanted) in cases {
            let found = check(&serde_json::from_str(schema).unwrap()).err();
            assert_eq!(found.map(|fault| fault.to_string()), wanted, "{schema}");
        }
    }
}
