//! The types of a vocabulary's tokens.

use crate::gguf::file::Directory;
use crate::gguf::value::Value;
use crate::tokenizer::vocabulary_fault::Fault;

/// `enum llama_token_type` of `llama.h`: a piece of text.
pub(crate) const NORMAL: i64 = 1;
/// The token for text that has no other token.
pub(crate) const UNKNOWN: i64 = 2;
/// A token that steers the model and has no text.
pub(crate) const CONTROL: i64 = 3;
/// A token that is found in a text as it stands, before any merging.
pub(crate) const USER_DEFINED: i64 = 4;
/// A token that no text has; longer ones may be made of it.
pub(crate) const UNUSED: i64 = 5;
/// A byte: `<0x0A>`.
pub(crate) const BYTE: i64 = 6;

/// Returns the types of `tokens` tokens, if the file has them.
pub(crate) fn types(directory: &Directory, tokens: usize) -> Result<Option<Vec<i64>>, Fault> {
    let key = "tokenizer.ggml.token_type";
    let wrong = |expected: String| {
        let found = directory
            .metadata
            .get(key)
            .map_or(String::new(), Value::described);
        Fault::Key {
            key,
            found,
            expected,
        }
    };
    match directory.metadata.get(key) {
        None => Ok(None),
        Some(Value::Array(values)) if values.len() == tokens => {
            let types = values
                .values()
                .map(|v| v.integer().and_then(|n| i64::try_from(n).ok()));
            let types: Option<Vec<i64>> = types.collect();
            // Values that are arrays themselves do not come out.
            let types = types.filter(|types| types.len() == tokens);
            types
                .map(Some)
                .ok_or_else(|| wrong("an array of whole numbers".into()))
        }
        Some(_) => Err(wrong(format!("an array of {tokens}, one for each token"))),
    }
}
