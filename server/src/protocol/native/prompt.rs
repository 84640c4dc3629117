//! Prompts in llama.cpp's forms: texts, token ids, and lists of both.

use serde_json::Value;

use crate::error::{ErrorKind, RequestError};
use crate::models::ServedModel;
use crate::reply::PromptLimit;

/// A prompt of texts and token ids, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextPrompt {
    field: String,
    parts: Vec<TextPromptPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TextPromptPart {
    Text(String),
    Token(u32),
}

/// The meaning of a control token's name in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecialTokens {
    /// It becomes the token.
    Parsed,
    /// It is text like any other.
    Text,
}

impl TextPrompt {
    /// Reads a prompt: a string, a list of strings and ids, or an object with `prompt_string`.
    /// `field` is its name for errors.
    ///
    /// # Errors
    /// Returns an error that names the part that is something else.
    pub(super) fn read(field: &str, value: &Value) -> Result<TextPrompt, RequestError> {
        let parts = match value {
            Value::String(text) => vec![TextPromptPart::Text(text.clone())],
            Value::Array(items) => {
                let parts = items.iter().enumerate().map(|(position, item)| {
                    let path = format!("{field}[{position}]");
                    part(&path, item)
                });
                parts.collect::<Result<_, _>>()?
            }
            Value::Object(fields) => {
                if fields
                    .get("multimodal_data")
                    .is_some_and(|data| !is_empty(data))
                {
                    let path = format!("{field}.multimodal_data");
                    let message = format!("`{path}` is not supported: this model reads only text");
                    return Err(RequestError::invalid(path, message));
                }
                match fields.get("prompt_string").and_then(Value::as_str) {
                    Some(text) => vec![TextPromptPart::Text(text.to_owned())],
                    None => return Err(wrong(field)),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => return Err(wrong(field)),
        };
        Ok(TextPrompt {
            field: field.to_owned(),
            parts,
        })
    }

    /// Reads one or more prompts. A list of numbers, or of numbers and strings that begins with a
    /// number, is one prompt.
    ///
    /// # Errors
    /// Returns an error that names the part that is not a prompt.
    pub(super) fn read_several(field: &str, value: &Value) -> Result<Prompts, RequestError> {
        let Value::Array(items) = value else {
            return Ok(Prompts::One(TextPrompt::read(field, value)?));
        };
        if items.is_empty() {
            return Err(RequestError::invalid(field, format!("`{field}` is empty")));
        }
        if items.iter().any(Value::is_number) {
            return Ok(Prompts::One(TextPrompt::read(field, value)?));
        }
        let prompts = items.iter().enumerate().map(|(position, item)| {
            let path = format!("{field}[{position}]");
            TextPrompt::read(&path, item)
        });
        Ok(Prompts::Several(prompts.collect::<Result<_, _>>()?))
    }

    /// Returns the size of the texts in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        let texts = self.parts.iter().map(|part| match part {
            TextPromptPart::Text(text) => text.len(),
            TextPromptPart::Token(_) => 0,
        });
        texts.sum()
    }

    /// Returns the tokens. If the prompt begins with a text, the token that begins texts comes
    /// first, if the model wants it.
    ///
    /// # Errors
    /// Returns an error if a token is not in the vocabulary, if a text is much longer than the
    /// limit, or if it cannot be tokenized.
    pub(super) fn tokens(
        &self,
        model: &ServedModel,
        special: SpecialTokens,
        limit: PromptLimit,
    ) -> Result<Vec<u32>, RequestError> {
        let tokenizer = match special {
            SpecialTokens::Parsed => &*model.tokenizer,
            SpecialTokens::Text => model
                .literal_tokenizer()
                .map_err(|problem| RequestError::new(ErrorKind::Internal, problem))?,
        };
        let vocab = model.description.vocab;
        let mut tokens = vec![];
        for (position, part) in self.parts.iter().enumerate() {
            match part {
                TextPromptPart::Token(token) if *token >= vocab => {
                    let path = format!("{}[{position}]", self.field);
                    let message = format!("`{path}` is {token}: the vocabulary has {vocab} tokens");
                    return Err(RequestError::invalid(path, message));
                }
                TextPromptPart::Token(token) => tokens.push(*token),
                TextPromptPart::Text(text) => {
                    limit.check(model, text)?;
                    let encoded = if position == 0 {
                        tokenizer.encode(text)
                    } else {
                        tokenizer.encode_rendered(text)
                    };
                    let encoded = encoded
                        .map_err(|error| RequestError::invalid(&self.field, error.to_string()))?;
                    tokens.extend(encoded);
                }
            }
        }
        Ok(tokens)
    }
}

/// One or more prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompts {
    /// One prompt, whose response is an object.
    One(TextPrompt),
    /// A list of prompts, whose response is a list.
    Several(Vec<TextPrompt>),
}

fn part(path: &str, item: &Value) -> Result<TextPromptPart, RequestError> {
    match item {
        Value::String(text) => Ok(TextPromptPart::Text(text.clone())),
        Value::Number(number) => {
            let token = number.as_u64().and_then(|token| u32::try_from(token).ok());
            token.map(TextPromptPart::Token).ok_or_else(|| {
                RequestError::invalid(path, format!("`{path}` is {number}: not a token id"))
            })
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(wrong(path)),
    }
}

fn wrong(path: &str) -> RequestError {
    RequestError::invalid(
        path,
        format!("`{path}` is not a prompt: expected a string, or a list of strings and token ids"),
    )
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns the text of tokens, in which control tokens appear by name.
pub(super) fn spelled_text(model: &ServedModel, tokens: &[u32]) -> String {
    let mut stream = model.tokenizer.stream();
    stream.spell(|_| true);
    let mut text = String::new();
    for token in tokens {
        text.push_str(&stream.push(*token));
    }
    text + &stream.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn count(value: &Value) -> Result<usize, String> {
        match TextPrompt::read_several("prompt", value) {
            Ok(Prompts::One(_)) => Ok(1),
            Ok(Prompts::Several(prompts)) => Ok(10 + prompts.len()),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn prompts_have_many_forms() {
        assert_eq!(count(&json!("a")), Ok(1));
        assert_eq!(count(&json!([1, 2])), Ok(1));
        assert_eq!(count(&json!([1, "a", 2])), Ok(1));
        assert_eq!(count(&json!(["a", 1])), Ok(1));
        assert_eq!(count(&json!({"prompt_string": "a"})), Ok(1));
        assert_eq!(count(&json!(["a"])), Ok(11));
        assert_eq!(count(&json!(["a", "b"])), Ok(12));
        assert_eq!(
            count(&json!([[1, "a"], "b", {"prompt_string": "c"}])),
            Ok(13)
        );
    }

    #[test]
    fn other_values_are_named() {
        let form = "expected a string, or a list of strings and token ids";
        for (value, message) in [
            (json!([]), "`prompt` is empty".to_owned()),
            (json!(null), format!("`prompt` is not a prompt: {form}")),
            (json!(5), format!("`prompt` is not a prompt: {form}")),
            (json!({}), format!("`prompt` is not a prompt: {form}")),
            (
                json!([1, -2]),
                "`prompt[1]` is -2: not a token id".to_owned(),
            ),
            (
                json!([1, 2.5]),
                "`prompt[1]` is 2.5: not a token id".to_owned(),
            ),
            (
                json!([["a", null]]),
                format!("`prompt[0][1]` is not a prompt: {form}"),
            ),
            (
                json!([null]),
                format!("`prompt[0]` is not a prompt: {form}"),
            ),
            (
                json!({"prompt_string": "a", "multimodal_data": ["b"]}),
                "`prompt.multimodal_data` is not supported: this model reads only text".to_owned(),
            ),
        ] {
            assert_eq!(count(&value), Err(message));
        }
    }
}
