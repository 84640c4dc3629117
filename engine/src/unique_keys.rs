//! Keys that an object has twice. Parsers of JSON take one of the two without a word, and not all the same one.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Refuses JSON with an object that has a key twice; the problem completes "it".
pub fn unique_keys(json: &[u8]) -> Result<(), String> {
    let checked: Result<Distinct, _> = serde_json::from_slice(json);
    let problem = checked.err().map(|error| error.to_string());
    problem.map_or(Ok(()), |problem| {
        Err(problem
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned())
    })
}

/// A value, of which only the keys were looked at.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Distinct, D::Error> {
        from.deserialize_any(Distinct)
    }
}

macro_rules! leaves {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<Distinct, E> {
            Ok(Distinct)
        }
    )*};
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Distinct;

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Distinct, E> {
        Ok(Distinct)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Distinct, A::Error> {
        while list.next_element::<Distinct>()?.is_some() {}
        Ok(Distinct)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Distinct, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = object.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format!(
                    "has the key {key:?} twice in one object"
                )));
            }
            object.next_value::<Distinct>()?;
        }
        Ok(Distinct)
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
