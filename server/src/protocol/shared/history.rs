//! Helpers for the messages of a conversation.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::reply::ChatMessage;

/// Returns the arguments of a call in the history: a JSON object, or its text. An empty text means
/// no arguments, which some clients send for functions without parameters.
///
/// # Errors
/// Returns an error that names `path` if the value is something else.
pub fn call_arguments(path: &str, value: &Value) -> Result<Map<String, Value>, RequestError> {
    let invalid = |problem: String| RequestError::invalid(path, format!("`{path}` {problem}"));
    match value {
        Value::Null => Ok(Map::new()),
        Value::Object(fields) => Ok(fields.clone()),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(invalid("is not the text of a JSON object".to_owned())),
            Err(error) => Err(invalid(format!(
                "is not the text of a JSON object: {error}"
            ))),
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(invalid(
            "is neither a JSON object nor the text of one".to_owned(),
        )),
    }
}

/// Sets the names of tool answers that have none to the function of the call with the same id,
/// because some templates write this name and clients usually send only the id.
pub fn name_answers(messages: &mut [ChatMessage]) {
    let mut functions: HashMap<String, String> = HashMap::new();
    for message in messages {
        for call in &message.calls {
            functions.insert(call.id.clone(), call.name.clone());
        }
        if message.name.is_none() {
            let id = message.call_id.as_deref();
            message.name = id.and_then(|id| functions.get(id)).cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reply::MessageCall;

    #[test]
    fn arguments_are_an_object_or_its_text() {
        let empty = Map::new();
        assert_eq!(call_arguments("a", &json!("")), Ok(empty.clone()));
        assert_eq!(call_arguments("a", &Value::Null), Ok(empty));
        let expected = json!({"x": 1}).as_object().unwrap().clone();
        assert_eq!(call_arguments("a", &json!({"x": 1})), Ok(expected.clone()));
        assert_eq!(call_arguments("a", &json!("{\"x\": 1}")), Ok(expected));

        for (value, message) in [
            (json!("[1]"), "`a` is not the text of a JSON object"),
            (json!(5), "`a` is neither a JSON object nor the text of one"),
            (
                json!("{\"x\""),
                "`a` is not the text of a JSON object: EOF while parsing an object at line 1 column 4",
            ),
        ] {
            let error = call_arguments("a", &value).unwrap_err();
            assert_eq!(error, RequestError::invalid("a", message));
        }
    }

    #[test]
    fn answers_get_the_name_of_their_call() {
        let call = |id: &str, name: &str| MessageCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: Map::new(),
        };
        let answer = |id: &str, name: Option<&str>| ChatMessage {
            role: "tool".to_owned(),
            call_id: Some(id.to_owned()),
            name: name.map(str::to_owned),
            ..ChatMessage::default()
        };
        let mut messages = vec![
            ChatMessage {
                role: "assistant".to_owned(),
                calls: vec![call("1", "read"), call("2", "write")],
                ..ChatMessage::default()
            },
            answer("2", None),
            answer("1", Some("own")),
            answer("3", None),
        ];
        name_answers(&mut messages);
        let names: Vec<Option<&str>> = messages.iter().map(|m| m.name.as_deref()).collect();
        assert_eq!(names, [None, Some("write"), Some("own"), None]);
    }
}
