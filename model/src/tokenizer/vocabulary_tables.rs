//! The tables of a vocabulary in a GGUF file, typed.

use crate::gguf::file::Directory;
use crate::gguf::value::Value;
use crate::tokenizer::stop;
use crate::tokenizer::token_type::{CONTROL, USER_DEFINED, types};
use crate::tokenizer::vocabulary_fault::Fault;

/// The file's tables.
pub(crate) struct VocabularyTables<'a> {
    pub(crate) directory: &'a Directory,
}

impl<'a> VocabularyTables<'a> {
    pub(crate) fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.directory.metadata.get(key)
    }

    pub(crate) fn wrong<T>(&self, key: &'static str, expected: impl ToString) -> Result<T, Fault> {
        let found = self.get(key).map_or("missing".to_owned(), Value::described);
        Err(Fault::Key {
            key,
            found,
            expected: expected.to_string(),
        })
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&'a str>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => self.wrong(key, "a string"),
        }
    }

    pub(crate) fn flag(&self, key: &'static str, default: bool) -> Result<bool, Fault> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => self.wrong(key, "a bool"),
        }
    }

    fn strings(&self, key: &'static str) -> Result<Vec<&'a str>, Fault> {
        let strings = match self.get(key) {
            Some(Value::Array(values)) => values.strings(),
            _ => None,
        };
        strings.map_or_else(
            || self.wrong(key, "an array of strings"),
            |strings| Ok(strings.collect()),
        )
    }

    pub(crate) fn tokens(&self) -> Result<Vec<&'a str>, Fault> {
        self.strings("tokenizer.ggml.tokens")
    }

    /// Returns the type of each token, if the file has types. A token that ends a text by its
    /// spelling always counts as a control token, so that a text taken literally cannot end itself.
    pub(crate) fn types(&self, tokens: &[&str]) -> Result<Option<Vec<i64>>, Fault> {
        let Some(mut types) = types(self.directory, tokens.len())? else {
            return Ok(None);
        };

        let special = |kind: i64| matches!(kind, CONTROL | USER_DEFINED);
        let all = (0..)
            .zip(tokens)
            .zip(&types)
            .map(|((id, token), kind)| (id, *token, special(*kind)));
        let ends = stop::spelled(&all.collect::<Vec<_>>());
        let markers = (0..)
            .zip(tokens)
            .filter(|(_, token)| stop::is_marker(token))
            .map(|(id, _)| id);
        for id in markers.chain(ends) {
            types[id as usize] = CONTROL;
        }

        Ok(Some(types))
    }

    /// Returns the scores of `tokens` tokens.
    pub(crate) fn scores(&self, tokens: usize) -> Result<Vec<f32>, Fault> {
        let key = "tokenizer.ggml.scores";
        let expected = format!("an array of {tokens} finite numbers, one for each token");
        let Some(Value::Array(values)) = self.get(key) else {
            return self.wrong(key, expected);
        };

        // Adding 0 makes -0 to 0, so that the two are the same score.
        let scores = values
            .values()
            .map(|value| value.number().map(|score| score as f32 + 0.0));
        let scores: Option<Vec<f32>> = scores
            .map(|score| score.filter(|score| score.is_finite()))
            .collect();
        match scores {
            Some(scores) if scores.len() == tokens => Ok(scores),
            _ => self.wrong(key, expected),
        }
    }

    pub(crate) fn merges(&self) -> Result<Vec<&'a str>, Fault> {
        match self.get("tokenizer.ggml.merges") {
            None => Err(Fault::NoMerges("tokenizer.ggml.merges")),
            Some(Value::Array(merges)) if merges.is_empty() => {
                Err(Fault::NoMerges("tokenizer.ggml.merges"))
            }
            Some(_) => self.strings("tokenizer.ggml.merges"),
        }
    }

    /// The bytes of an array of integers of eight bits, if the key is there.
    pub(crate) fn bytes(&self, key: &'static str) -> Result<Option<Vec<u8>>, Fault> {
        let byte = |value: Value| match value.integer()? {
            n @ -128..=255 => Some(n as u8),
            _ => None,
        };
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(values)) => {
                let bytes: Option<Vec<u8>> = values.values().map(byte).collect();
                let bytes = bytes.filter(|bytes| bytes.len() == values.len());
                bytes.map_or_else(
                    || self.wrong(key, "an array of bytes"),
                    |bytes| Ok(Some(bytes)),
                )
            }
            Some(_) => self.wrong(key, "an array of bytes"),
        }
    }

    /// The token of the vocabulary that a key names; where the file does not say, `default`, if
    /// there is one of that number.
    pub(crate) fn id(&self, key: &'static str, default: Option<u32>, tokens: usize) -> Option<u32> {
        let named = self
            .get(key)
            .and_then(Value::integer)
            .and_then(|id| u32::try_from(id).ok());
        let default = default.filter(|_| self.get(key).is_none());
        named.or(default).filter(|id| (*id as usize) < tokens)
    }

    /// The token that begins a text, if the model wants one. Where the file does not say, `add` has
    /// it, and the number is `default`.
    pub(crate) fn bos(
        &self,
        add: bool,
        default: Option<u32>,
        tokens: usize,
    ) -> Result<Option<u32>, Fault> {
        let wanted = self.flag("tokenizer.ggml.add_bos_token", add)?;
        match self.id("tokenizer.ggml.bos_token_id", default, tokens) {
            _ if !wanted => Ok(None),
            Some(id) => Ok(Some(id)),
            None => self.wrong(
                "tokenizer.ggml.bos_token_id",
                format!("a token below {tokens}"),
            ),
        }
    }
}
