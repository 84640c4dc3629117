//! Fields that a protocol has but this server does not support.

use serde_json::Value;

use super::body::Body;
use crate::error::RequestError;

/// A field that is refused unless it asks for nothing.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The name of the field.
    pub field: &'static str,
    /// The values that are accepted nevertheless.
    pub unless: Unless,
    /// The advice to the user, as the end of the sentence "`field` is not supported: ..".
    pub advice: &'static str,
}

/// The values with which a field asks for nothing. Null is always one of them.
#[derive(Clone, Copy, Debug)]
pub enum Unless {
    /// False, 0, and an empty string, list or object.
    Empty,
    /// The values of [`Empty`](Unless::Empty), and this JSON text.
    Json(&'static str),
    /// The values of [`Empty`](Unless::Empty), and these strings.
    OneOf(&'static [&'static str]),
}

impl Body {
    /// Checks that the body does not contain fields that are not supported.
    ///
    /// # Errors
    /// Returns an error for the first such field.
    pub fn refuse(&self, fields: &[Refused]) -> Result<(), RequestError> {
        for refused in fields {
            let Some(value) = self.field(refused.field) else {
                continue;
            };
            if !refused.unless.accepts(value) {
                return Err(RequestError::invalid(
                    refused.field,
                    format!("`{}` is not supported: {}", refused.field, refused.advice),
                ));
            }
        }
        Ok(())
    }
}

impl Unless {
    fn accepts(self, value: &Value) -> bool {
        let accepted = match self {
            Unless::Empty => false,
            Unless::Json(text) => {
                serde_json::from_str::<Value>(text).is_ok_and(|neutral| equal(&neutral, value))
            }
            Unless::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        };
        accepted || is_empty(value)
    }
}

/// Returns true if two values are equal, where `1` and `1.0` are the same number.
fn equal(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        (Some(_), None) | (None, Some(_)) | (None, None) => left == right,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [Refused; 3] = [
        Refused {
            field: "audio",
            unless: Unless::Empty,
            advice: "the server generates only text",
        },
        Refused {
            field: "xtc_threshold",
            unless: Unless::Json("0.5"),
            advice: "use `min_p`",
        },
        Refused {
            field: "tier",
            unless: Unless::OneOf(&["auto"]),
            advice: "there is only one",
        },
    ];

    fn refuse(json: &str) -> Result<(), RequestError> {
        Body::parse(json.as_bytes())?.refuse(&FIELDS)
    }

    #[test]
    fn values_that_ask_for_nothing_are_accepted() {
        for json in [
            "{}",
            r#"{"audio": null}"#,
            r#"{"audio": false}"#,
            r#"{"audio": {}}"#,
            r#"{"xtc_threshold": 0.5}"#,
            r#"{"xtc_threshold": 0}"#,
            r#"{"tier": "auto"}"#,
        ] {
            assert_eq!(refuse(json), Ok(()), "{json}");
        }
    }

    #[test]
    fn other_values_are_refused_by_name() {
        for (json, message) in [
            (
                r#"{"audio": {"voice": "alloy"}}"#,
                "`audio` is not supported: the server generates only text",
            ),
            (
                r#"{"xtc_threshold": 0.1}"#,
                "`xtc_threshold` is not supported: use `min_p`",
            ),
            (
                r#"{"tier": "flex"}"#,
                "`tier` is not supported: there is only one",
            ),
        ] {
            assert_eq!(refuse(json).unwrap_err().message, message);
        }
    }
}
