//! Reads the body of a request.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{ErrorKind, RequestError};

/// The body of a request: a JSON object.
///
/// It is read in two steps. The first one finds errors of the JSON syntax. The second one reads the
/// fields that a struct has and ignores the others, because all clients send fields that only one
/// server knows. A struct should declare its optional fields as [`Option`], so that `null` is the
/// same as an absent field.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    fields: Map<String, Value>,
}

impl Body {
    /// Parses a body.
    ///
    /// # Errors
    /// Returns an error that names line and column if the body is not a JSON object.
    pub fn parse(bytes: &[u8]) -> Result<Body, RequestError> {
        let invalid = |message: String| Err(RequestError::new(ErrorKind::Invalid, message));
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return invalid("the body is empty: expected a JSON object".to_owned());
        }

        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Body { fields }),
            Ok(other) => invalid(format!(
                "the body is {}: expected a JSON object",
                kind_of(&other)
            )),
            Err(error) => invalid(format!("the body is not valid JSON: {error}")),
        }
    }

    /// Reads the fields of a struct.
    ///
    /// # Errors
    /// Returns an error that names the path of the field that has another type than `T` expects.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        serde_path_to_error::deserialize(&self.fields).map_err(|error| {
            let path = error.path().to_string();
            let problem = error.inner().to_string();

            // The path of an error that concerns the whole object is a single dot.
            if path == "." {
                RequestError::new(ErrorKind::Invalid, problem)
            } else {
                RequestError::invalid(&path, format!("`{path}`: {problem}"))
            }
        })
    }

    /// Returns a field, unless it is absent or null.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }
}

/// Returns the kind of a JSON value with its article.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Request {
        messages: Option<Vec<Message>>,
        stream: Option<bool>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Message {
        role: String,
    }

    fn read(json: &str) -> Result<Request, RequestError> {
        Body::parse(json.as_bytes())?.read()
    }

    #[test]
    fn unknown_fields_and_nulls_are_absent() {
        let request = read(r#"{"messages": null, "new_field": {"a": [1]}}"#);
        assert_eq!(
            request,
            Ok(Request {
                messages: None,
                stream: None
            })
        );
    }

    #[test]
    fn an_error_names_the_path_of_the_field() {
        let cases = [
            (
                r#"{"messages": [{"role": "user"}, {"role": 5}]}"#,
                Some("messages[1].role"),
                "`messages[1].role`: invalid type: integer `5`, expected a string",
            ),
            (
                r#"{"messages": [{"role": "user"}, {}]}"#,
                Some("messages[1]"),
                "`messages[1]`: missing field `role`",
            ),
            (
                r#"{"messages": "hello"}"#,
                Some("messages"),
                "`messages`: invalid type: string \"hello\", expected a sequence",
            ),
            (
                r#"{"stream": "yes"}"#,
                Some("stream"),
                "`stream`: invalid type: string \"yes\", expected a boolean",
            ),
        ];
        for (json, param, message) in cases {
            let error = read(json).unwrap_err();
            assert_eq!((error.param.as_deref(), &*error.message), (param, message));
        }
    }

    #[test]
    fn a_body_that_is_not_an_object_is_an_error() {
        let cases = [
            ("", "the body is empty: expected a JSON object"),
            (" \n", "the body is empty: expected a JSON object"),
            ("[1]", "the body is a list: expected a JSON object"),
            ("null", "the body is null: expected a JSON object"),
            (
                "{\"a\": 1",
                "the body is not valid JSON: EOF while parsing an object at line 1 column 7",
            ),
        ];
        for (json, message) in cases {
            assert_eq!(read(json).unwrap_err().message, message);
        }
        assert!(Body::parse(&[0xff, 0xfe]).is_err());
        assert!(Body::parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
