//! What the library would follow otherwise than a JSON schema says, and without a word.

use serde_json::{Map, Value};

use super::fault::Fault;
use super::place::{NAMED, VALUES, escaped};

/// The largest whole number of which the library has all digits: it computes in `f64`.
const EXACT: u64 = 1 << 53;

/// Keywords with numbers that are compared with those of a text.
const NUMBERS: [&str; 7] = [
    "const",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Refuses a schema of which a text may break a part.
pub(super) fn check(schema: &Value) -> Result<(), Fault> {
    within(schema, "#")
}

fn within(schema: &Value, place: &str) -> Result<(), Fault> {
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

/// Refuses numbers that would lose digits.
fn numbers(value: &Value, place: &str) -> Result<(), Fault> {
    match value {
        Value::Number(number) => {
            let exact = match number.as_i64() {
                Some(whole) => whole.unsigned_abs() <= EXACT,
                None => number.as_f64().is_some_and(|x| x.abs() <= EXACT as f64),
            };
            let large = || Fault::Large {
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

/// Refuses to count keys that may come twice: in a text they are two, and in the value that it is they are one.
fn keys(keywords: &Map<String, Value>, place: &str) -> Result<(), Fault> {
    let least = keywords
        .get("minProperties")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let required = keywords
        .get("required")
        .and_then(Value::as_array)
        .map_or(0, Vec::len) as u64;
    let patterns = keywords.get("patternProperties").and_then(Value::as_object);
    let free = patterns.is_some_and(|patterns| !patterns.is_empty())
        || keywords.get("additionalProperties") != Some(&Value::Bool(false));
    match free && least > required + 1 {
        true => Err(Fault::Keys {
            place: place.to_owned(),
        }),
        false => Ok(()),
    }
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
                "minProperties at {place} counts keys that are not named, and such a key may come twice, which makes it one; name the keys under required, or leave it out"
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
