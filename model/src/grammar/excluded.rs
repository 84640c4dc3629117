//! Removes patterns of keys that match no key, because they would lead a text into a dead end.
//!
//! llguidance turns a pattern under `patternProperties` into a regular expression that excludes the
//! names under `properties`. If no key remains, the expression matches nothing. The library still
//! offers the comma in front of it, and then no token can follow. `fold` therefore moves such a
//! pattern into the properties that it matches, before the library reads the schema. Objects that
//! arise only when the library merges schemas are not visible here. Module `endless` finds them.

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Value, json};

use super::place::{NAMED, VALUES};

/// The maximum number of steps to decide whether an expression matches nothing. A pattern that
/// takes more stays as it is.
const FUEL: u64 = 20_000;

/// Moves patterns that match no key except for named ones into the properties of their object.
pub(super) fn fold(schema: &mut Value) {
    match schema {
        Value::Array(items) => {
            for item in items {
                fold(item);
            }
        }
        Value::Object(keywords) => {
            object(keywords);
            for (name, value) in keywords {
                match value {
                    _ if VALUES.contains(&&**name) => {}
                    Value::Object(named) if NAMED.contains(&&**name) => {
                        for schema in named.values_mut() {
                            fold(schema);
                        }
                    }
                    value => fold(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Changes the keywords of one object.
fn object(keywords: &mut Map<String, Value>) {
    let Some(Value::Object(patterns)) = keywords.get("patternProperties") else {
        return;
    };

    let mut patterns = patterns.clone();
    let properties = match keywords.get("properties") {
        None => Map::new(),
        Some(Value::Object(properties)) => properties.clone(),
        Some(_) => return,
    };

    // A required name has its own place too, even if `properties` does not list it.
    let mut names: Vec<String> = properties.keys().cloned().collect();
    let required = keywords
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for name in required.filter_map(Value::as_str) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }

    let mut properties = properties;
    let expressions: Vec<String> = patterns.keys().cloned().collect();
    for pattern in &expressions {
        if remaining(&[pattern], &names) != Some(Remaining::Nothing) {
            continue;
        }
        let Some(schema) = patterns.remove(pattern) else {
            continue;
        };
        for name in &names {
            if matches(pattern, name) != Some(true) {
                continue;
            }
            let own = properties.remove(name);
            let both = match own {
                Some(own) => json!({ "allOf": [own, schema] }),
                None => schema.clone(),
            };
            properties.insert(name.clone(), both);
        }
    }

    // Additional keys are the other way into a dead end: if patterns and names match all keys, none
    // is left for them.
    let open = keywords.get("additionalProperties") != Some(&Value::Bool(false));
    let taken: Vec<&String> = expressions.iter().collect();
    if open && besides(&taken, &names) == Some(Remaining::Nothing) {
        keywords.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if !properties.is_empty() {
        keywords.insert("properties".to_owned(), Value::Object(properties));
    }

    keywords.insert("patternProperties".to_owned(), Value::Object(patterns));
}

/// The keys that an expression matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remaining {
    Something,
    Nothing,
}

/// Returns the expression of texts in which a pattern is found, because patterns of JSON Schema are
/// not anchored.
fn searched(pattern: &str) -> RegexAst {
    RegexAst::SearchRegex(regex_to_lark(pattern, "dw"))
}

/// Returns the keys that match a pattern and are not names, or `None` if the limit is exceeded.
fn remaining(patterns: &[&String], names: &[String]) -> Option<Remaining> {
    let names = names
        .iter()
        .map(|name| RegexAst::Literal(name.clone()))
        .collect();
    let patterns = patterns.iter().map(|pattern| searched(pattern)).collect();
    let taken = RegexAst::Not(Box::new(RegexAst::Or(names)));
    emptiness(&RegexAst::And(vec![RegexAst::Or(patterns), taken]))
}

/// Returns the keys that match no pattern and are not names, or `None` if the limit is exceeded.
fn besides(patterns: &[&String], names: &[String]) -> Option<Remaining> {
    let mut taken: Vec<RegexAst> = patterns.iter().map(|pattern| searched(pattern)).collect();
    taken.extend(names.iter().map(|name| RegexAst::Literal(name.clone())));
    let any = RegexAst::Regex("(?s:.*)".to_owned());
    emptiness(&RegexAst::And(vec![
        any,
        RegexAst::Not(Box::new(RegexAst::Or(taken))),
    ]))
}

fn emptiness(ast: &RegexAst) -> Option<Remaining> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(ast).ok()?;
    let mut regex = builder.to_regex_limited(expression, FUEL).ok()?;
    Some(if regex.always_empty() {
        Remaining::Nothing
    } else {
        Remaining::Something
    })
}

fn matches(pattern: &str, name: &str) -> Option<bool> {
    let mut builder = RegexBuilder::new();
    let expression = builder.mk(&searched(pattern)).ok()?;
    Some(
        builder
            .to_regex_limited(expression, FUEL)
            .ok()?
            .is_match(name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_without_a_key_of_their_own_are_folded() {
        let cases = [
            (
                r#"{"properties": {"a": {"const": 1}}, "patternProperties": {"^a$": {"type": "integer"}}}"#,
                r#"{"properties": {"a": {"allOf": [{"const": 1}, {"type": "integer"}]}}, "patternProperties": {}}"#,
            ),
            (
                r#"{"required": ["a"], "patternProperties": {"^a$": {"type": "integer"}, "^b": {}}}"#,
                r#"{"required": ["a"], "properties": {"a": {"type": "integer"}}, "patternProperties": {"^b": {}}}"#,
            ),
            (
                r#"{"patternProperties": {"": {"type": "integer"}}}"#,
                r#"{"patternProperties": {"": {"type": "integer"}}, "additionalProperties": false}"#,
            ),
            (
                r#"{"items": {"patternProperties": {"[^\\s\\S]": {}}, "additionalProperties": false}}"#,
                r#"{"items": {"patternProperties": {}, "additionalProperties": false}}"#,
            ),
            (
                r#"{"properties": {"a": {}}, "patternProperties": {"a": {}}}"#,
                r#"{"properties": {"a": {}}, "patternProperties": {"a": {}}}"#,
            ),
            (
                r#"{"const": {"patternProperties": {"": {}}}}"#,
                r#"{"const": {"patternProperties": {"": {}}}}"#,
            ),
        ];
        for (schema, wanted) in cases {
            let mut folded = serde_json::from_str(schema).unwrap();
            fold(&mut folded);
            assert_eq!(
                folded,
                serde_json::from_str::<Value>(wanted).unwrap(),
                "{schema}"
            );
        }
    }
}
