//! Which tokens end a text.
//!
//! A chat model ends a turn with one token and a document with another, and its file names at most
//! one of each kind. So the vocabulary's other tokens for it end a text too, known by their
//! spelling as in `llama-vocab.cpp` of llama.cpp.

use crate::gguf::file::Directory;
use crate::gguf::value::Value;
use crate::problem::Problem;
use crate::tokenizer::token_type::{CONTROL, USER_DEFINED, types};

/// Spellings that nothing but the end of a text, a turn or a file has.
const MARKERS: [&str; 18] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|tool_response>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|file_sep|>",
];

/// Spellings that a text may have too: they count where the vocabulary says that the token is none
/// of a text's.
const SPECIAL: [&str; 15] = [
    "</s>",
    "<eos>",
    "[EOS]",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[e~[",
    "<|repo_name|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
];

/// Keys that name a token which ends a text.
const KEYS: [&str; 6] = ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"];

/// Returns true if a token with this spelling ends a text, independent of its type.
pub(crate) fn is_marker(token: &str) -> bool {
    MARKERS.contains(&token)
}

/// The tokens that end a text, in order.
pub(crate) fn tokens(directory: &Directory, vocab: u32) -> Result<Vec<u32>, Problem> {
    let mut stop = named(directory, vocab)?;
    stop.extend(spelled_in(directory));
    stop.sort_unstable();
    stop.dedup();
    Ok(stop)
}

fn named(directory: &Directory, vocab: u32) -> Result<Vec<u32>, Problem> {
    let token = |name: &str| {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let value = directory.metadata.get(&key)?;
        let id = value
            .integer()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|id| *id < vocab);
        Some(id.ok_or_else(|| {
            let expected = format!("a token below the vocabulary's size ({vocab})");
            let found = if value.integer().is_some() {
                value.to_string()
            } else {
                value.described()
            };
            Problem::Key {
                key,
                found,
                expected,
            }
        }))
    };
    KEYS.iter().filter_map(|name| token(name)).collect()
}

fn spelled_in(directory: &Directory) -> Vec<u32> {
    let Some(Value::Array(tokens)) = directory.metadata.get("tokenizer.ggml.tokens") else {
        return vec![];
    };

    let types = types(directory, tokens.len()).ok().flatten();
    let special = |id: usize| {
        types
            .as_ref()
            .is_none_or(|t| matches!(t[id], CONTROL | USER_DEFINED))
    };
    let tokens = (0..).zip(tokens.strings().into_iter().flatten());
    spelled(
        &tokens
            .map(|(id, token)| (id, token, special(id as usize)))
            .collect::<Vec<_>>(),
    )
}

/// Returns the tokens that end a text by their spelling. The flag is true if the vocabulary
/// distinguishes the token from text.
pub(crate) fn spelled(tokens: &[(u32, &str, bool)]) -> Vec<u32> {
    let ends = |token: &str, special: bool| is_marker(token) || SPECIAL.contains(&token) && special;
    let found = tokens
        .iter()
        .filter(|(_, token, special)| ends(token, *special));
    let found: Vec<(u32, &str)> = found.map(|(id, token, _)| (*id, *token)).collect();
    let has = |token: &str| found.iter().any(|(_, found)| *found == token);
    let end_is_a_channel =
        (has("<|call|>") || has("<|calls|>")) && (has("<|return|>") || has("<|flush|>"));

    // gpt-oss and solar-open end parts of a reply with `<|end|>`; in gemma4 `</s>` is a tag like
    // others.
    let means_more = |token: &str| match token {
        "<|end|>" => end_is_a_channel,
        "</s>" => has("<|tool_response>"),
        _ => false,
    };
    found
        .iter()
        .filter(|(_, token)| !means_more(token))
        .map(|(id, _)| *id)
        .collect()
}
