//! Finds keywords in a JSON schema.

use serde_json::Value;

/// Keywords whose values are objects with schemas under names that the author chose.
pub(super) const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Keywords whose values are not schemas, so that an object in them has no keywords.
pub(super) const VALUES: [&str; 5] = ["const", "enum", "default", "examples", "required"];

/// Returns the place of the first schema that has a keyword, as a JSON pointer after `#`.
pub(super) fn of_keyword(schema: &Value, keyword: &str) -> Option<String> {
    match schema {
        Value::Object(object) if object.contains_key(keyword) => Some("#".to_owned()),
        Value::Object(object) => object.iter().find_map(|(name, value)| match value {
            _ if VALUES.contains(&&**name) => None,
            // The keys of this object are names and not keywords.
            Value::Object(named) if NAMED.contains(&&**name) => {
                named.iter().find_map(|(inner, value)| {
                    prefixed(
                        &format!("{}/{}", escaped(name), escaped(inner)),
                        of_keyword(value, keyword),
                    )
                })
            }
            value => prefixed(&escaped(name), of_keyword(value, keyword)),
        }),
        Value::Array(items) => {
            let mut numbered = items.iter().enumerate();
            numbered.find_map(|(i, value)| prefixed(&i.to_string(), of_keyword(value, keyword)))
        }
        _ => None,
    }
}

/// Adds a segment at the start of a pointer.
fn prefixed(step: &str, pointer: Option<String>) -> Option<String> {
    Some(format!("#/{step}{}", pointer?.trim_start_matches('#')))
}

/// Escapes a name as a segment of a JSON pointer (RFC 6901, section 3).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::of_keyword;

    #[test]
    fn a_keyword_is_found_where_it_is_one() {
        let place = |schema| of_keyword(&serde_json::from_str(schema).unwrap(), "not");
        assert_eq!(place(r#"{"not": {}}"#).as_deref(), Some("#"));
        let named = r#"{"properties": {"not": {"type": "string"}, "a/b": {"items": {"not": {}}}}}"#;
        assert_eq!(place(named).as_deref(), Some("#/properties/a~1b/items"));
        assert_eq!(
            place(r#"{"anyOf": [{}, {"not": {}}]}"#).as_deref(),
            Some("#/anyOf/1")
        );
        assert_eq!(place(r#"{"const": {"not": 1}, "enum": ["not"]}"#), None);
    }
}
