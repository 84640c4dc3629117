//! Values of a JSON object, with types and ranges checked. `null` is as good as no value, as
//! transformers has it.

use serde_json::{Map, Value};

use crate::gguf::keys::MAX_SIZE;
use crate::gguf::value::Quoted;
use crate::problem::Problem;

/// The values of an object by key, and the prefix of its keys in messages.
#[derive(Clone, Copy)]
pub(crate) struct NamedObject<'a> {
    pub(crate) values: &'a Map<String, Value>,
    pub(crate) prefix: &'a str,
}

impl<'a> NamedObject<'a> {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong<T>(&self, name: &str, expected: impl ToString) -> Result<T, Problem> {
        let found = self.get(name).map_or("missing".to_owned(), shown);
        Err(Problem::Key {
            key: self.key(name),
            found,
            expected: expected.to_string(),
        })
    }

    pub(crate) fn missing(&self, name: &str) -> Problem {
        Problem::MissingKey(self.key(name))
    }

    /// A whole number from 1 to 2^24.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u32>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let size = value.as_u64().and_then(|n| u32::try_from(n).ok());
        match size.filter(|n| (1..=MAX_SIZE).contains(n)) {
            Some(size) => Ok(Some(size)),
            None => self.wrong(name, format!("a whole number from 1 to {MAX_SIZE}")),
        }
    }

    pub(crate) fn required(&self, name: &str) -> Result<u32, Problem> {
        self.size(name)?.ok_or_else(|| self.missing(name))
    }

    /// A number above zero.
    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64().filter(|x| x.is_finite() && *x > 0.0) {
            Some(x) => Ok(Some(x)),
            None => self.wrong(name, "a number above zero"),
        }
    }

    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value.as_bool().map_or_else(
            || self.wrong(name, "true or false"),
            |found| Ok(Some(found)),
        )
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, Problem> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_str()
            .map_or_else(|| self.wrong(name, "a string"), |found| Ok(Some(found)))
    }
}

/// Returns the text of a value for a message. A long array or object is cut off.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => Quoted(text).to_string(),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            let end = text.char_indices().nth(100).map(|(end, _)| end);
            end.map_or(text.clone(), |end| format!("{}...", &text[..end]))
        }
        scalar => scalar.to_string(),
    }
}
