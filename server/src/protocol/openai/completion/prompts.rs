//! The prompts of a completion, and the inputs of embeddings.

use serde_json::Value;

use crate::error::RequestError;
use crate::reply::ReplyPrompt;

/// Returns the prompts in a field: a text, a list of token ids, or a list of texts and lists of
/// token ids.
///
/// # Errors
/// Returns an error that names the element that is something else.
pub(crate) fn prompts(
    field: &str,
    value: Option<&Value>,
) -> Result<Vec<ReplyPrompt>, RequestError> {
    match value {
        None | Some(Value::Null) => Err(RequestError::invalid(
            field,
            format!("`{field}` is missing"),
        )),
        Some(Value::String(text)) => Ok(vec![ReplyPrompt::Text(text.clone())]),
        Some(Value::Array(items)) => match items.first() {
            None => Err(RequestError::invalid(
                field,
                format!("`{field}` is empty: expected at least one text or token id"),
            )),
            Some(Value::Number(_)) => Ok(vec![tokens(field, items)?]),
            Some(_) => items
                .iter()
                .enumerate()
                .map(|(position, item)| element(&format!("{field}[{position}]"), item))
                .collect(),
        },
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(unreadable(field)),
    }
}

fn element(path: &str, item: &Value) -> Result<ReplyPrompt, RequestError> {
    match item {
        Value::String(text) => Ok(ReplyPrompt::Text(text.clone())),
        Value::Array(items) => tokens(path, items),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(unreadable(path)),
    }
}

fn tokens(path: &str, items: &[Value]) -> Result<ReplyPrompt, RequestError> {
    let mut ids = vec![];
    for (position, item) in items.iter().enumerate() {
        let id = item.as_u64().and_then(|id| u32::try_from(id).ok());
        let Some(id) = id.or_else(|| float_id(item)) else {
            let path = format!("{path}[{position}]");
            let message = format!("`{path}` is {item}: expected a token id");
            return Err(RequestError::invalid(path, message));
        };
        ids.push(id);
    }
    Ok(ReplyPrompt::Tokens(ids))
}

/// Reads an id that is written with a fraction of zero.
fn float_id(item: &Value) -> Option<u32> {
    let number = item.as_f64()?;
    let is_id = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    is_id.then_some(number as u32)
}

fn unreadable(path: &str) -> RequestError {
    RequestError::invalid(
        path,
        format!("`{path}` is neither a text nor a list of token ids"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<String, RequestError> {
        prompts("prompt", Some(value)).map(|prompts| format!("{prompts:?}"))
    }

    #[test]
    fn all_forms_of_prompts_are_read() {
        for (value, expected) in [
            (json!("a"), "[Text(\"a\")]"),
            (json!([1, 2.0]), "[Tokens([1, 2])]"),
            (json!(["a", "b"]), "[Text(\"a\"), Text(\"b\")]"),
            (json!([[1], [2, 3]]), "[Tokens([1]), Tokens([2, 3])]"),
            (json!(["a", [1]]), "[Text(\"a\"), Tokens([1])]"),
        ] {
            assert_eq!(read(&value).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn other_prompts_are_errors_with_their_path() {
        for (value, path) in [
            (json!(null), "prompt"),
            (json!([]), "prompt"),
            (json!(5), "prompt"),
            (json!({"a": 1}), "prompt"),
            (json!([1, "a"]), "prompt[1]"),
            (json!([1, -1]), "prompt[1]"),
            (json!([1, 1.5]), "prompt[1]"),
            (json!([1, 5_000_000_000_u64]), "prompt[1]"),
            (json!(["a", 1]), "prompt[1]"),
            (json!([[1], ["a"]]), "prompt[1][0]"),
            (json!(["a", null]), "prompt[1]"),
        ] {
            let error = read(&value).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(path), "{value}");
        }
    }
}
