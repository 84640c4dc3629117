//! A check for duplicate keys in JSON objects. JSON parsers silently keep one of the two values,
//! and not all keep the same one.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Checks that no object in `json` has a key twice.
///
/// # Errors
/// Returns the problem as a phrase that completes a sentence about the file, such as `has the key
/// "a" twice in one object`.
pub fn unique_keys(json: &[u8]) -> Result<(), String> {
    let checked: Result<CheckedKeys, _> = serde_json::from_slice(json);
    let Err(error) = checked else {
        return Ok(());
    };
    // serde_json appends the line and the column, which are useless in a file on one line.
    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default();
    Err(problem.to_owned())
}

/// A JSON value of which only the keys are checked.
struct CheckedKeys;

impl<'de> Deserialize<'de> for CheckedKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CheckedKeys, D::Error> {
        from.deserialize_any(CheckedKeys)
    }
}

macro_rules! leaves {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<CheckedKeys, E> {
            Ok(CheckedKeys)
        }
    )*};
}

impl<'de> Visitor<'de> for CheckedKeys {
    type Value = CheckedKeys;

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<CheckedKeys, E> {
        Ok(CheckedKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<CheckedKeys, A::Error> {
        while list.next_element::<CheckedKeys>()?.is_some() {}
        Ok(CheckedKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<CheckedKeys, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = object.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!(
                    "has the key {key:?} twice in one object"
                )));
            }
            object.next_value::<CheckedKeys>()?;
        }
        Ok(CheckedKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_stand_once_in_an_object() {
        for right in [
            "{}",
            r#"{"a": [{"b": 1.5}, {"b": null}], "b": {"a": "a", "c": true}}"#,
            "3",
            "-3",
        ] {
            assert_eq!(unique_keys(right.as_bytes()), Ok(()), "{right}");
        }
        let wrong = [
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"b": [0, {"a": "x", "c": {}, "a": "y"}]}"#,
        ];
        for wrong in wrong {
            assert_eq!(
                unique_keys(wrong.as_bytes()),
                Err("has the key \"a\" twice in one object".into()),
                "{wrong}"
            );
        }
    }
}
