//! The tokens of a folder that mean something by themselves: those that begin and end texts.
//!
//! `config.json` and `generation_config.json` name them by number, `tokenizer_config.json` by
//! spelling, and `tokenizer.json` lists those that are found in a text as they stand
//! (`added_tokens`), or `tekken.json` in its place.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::folder::folder_fault::Fault;
use crate::folder::json::shown;
use crate::folder::read;
use crate::problem::Problem;
use crate::tokenizer::json::tekken;
use crate::tokenizer::stop;

/// The files.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
/// The tokenizer of folders without the file above.
pub(crate) const TEKKEN: &str = "tekken.json";
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub(crate) const TEMPLATE_JINJA: &str = "chat_template.jinja";
pub(crate) const TEMPLATES: &str = "additional_chat_templates";
pub(crate) const TEMPLATE_JSON: &str = "chat_template.json";
/// The file with the sampling defaults of a model, which also names end tokens.
pub const GENERATION: &str = "generation_config.json";

/// A token of `added_tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Added {
    pub(crate) id: u32,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) special: bool,
    // How it is found in a text, which the library knows.
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
}

/// The part of `tokenizer.json` in which the tokens that end a text are found.
#[derive(Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<Added>,
}

/// The tokens that end a text, in order.
pub(crate) fn stop(
    folder: &Path,
    config: &Map<String, Value>,
    vocab: u32,
) -> Result<Vec<u32>, Error> {
    let problem = |name: &str, problem| Error::Model {
        path: folder.join(name),
        problem: Box::new(problem),
    };
    let mut stop = ids(config, "eos_token_id", vocab).map_err(|p| problem("config.json", p))?;
    if let Some(generation) = read::object(folder, GENERATION)? {
        stop.extend(ids(&generation, "eos_token_id", vocab).map_err(|p| problem(GENERATION, p))?);
    }

    let (name, added) = added(folder)?;
    if let Some((id, content, _)) = added.iter().find(|(id, ..)| *id >= vocab) {
        return Err(problem(name, outside(content, *id, vocab)));
    }

    let spelled = added
        .iter()
        .map(|(id, content, special)| (*id, content.as_str(), *special));
    stop.extend(stop::spelled(&spelled.collect::<Vec<_>>()));
    stop.sort_unstable();
    stop.dedup();
    Ok(stop)
}

pub(crate) fn outside(token: &str, id: u32, vocab: u32) -> Problem {
    let expected = format!("a number below vocab_size of config.json ({vocab})");
    Problem::Key {
        key: format!("token {token:?}"),
        found: id.to_string(),
        expected,
    }
}

/// Tokens: the number, the spelling, and whether it is a control token.
type SpelledTokens = Vec<(u32, String, bool)>;

/// Returns the tokens that are found in a text as they stand, with the name of their file.
fn added(folder: &Path) -> Result<(&'static str, SpelledTokens), Error> {
    if let Some(bytes) = read::bytes(folder, TOKENIZER)? {
        let read: AddedTokens = serde_json::from_slice(&bytes).map_err(|error| Error::Folder {
            path: folder.join(TOKENIZER),
            fault: Box::new(Fault::Json(error.to_string())),
        })?;
        let added = read.added_tokens.into_iter();
        let added = added.map(|token| (token.id, token.content, token.special));
        return Ok((TOKENIZER, added.collect()));
    }

    let Some(bytes) = read::bytes(folder, TEKKEN)? else {
        return Ok((TOKENIZER, vec![]));
    };
    let control = tekken::control(&bytes).map_err(|fault| Error::Tokenizer {
        path: folder.join(TEKKEN),
        fault: Box::new(fault),
    })?;
    let control = (0..).zip(control).map(|(id, name)| (id, name, true));
    Ok((TEKKEN, control.collect()))
}

/// The tokens under a key: one or several numbers, or none.
pub(crate) fn ids(values: &Map<String, Value>, key: &str, vocab: u32) -> Result<Vec<u32>, Problem> {
    let Some(value) = values.get(key).filter(|value| !value.is_null()) else {
        return Ok(vec![]);
    };

    let one = |value: &Value| {
        value
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .filter(|id| *id < vocab)
    };
    let ids = match value {
        Value::Array(values) => values.iter().map(one).collect(),
        value => one(value).map(|id| vec![id]),
    };
    ids.ok_or_else(|| {
        let expected = format!("a token below vocab_size ({vocab}), or a list of such");
        Problem::Key {
            key: key.to_owned(),
            found: shown(value),
            expected,
        }
    })
}

/// The spelling of a token under a key of `tokenizer_config.json`: a string, or an object with the
/// string as `content`.
pub(crate) fn spelling<'a>(values: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    match values.get(key)? {
        Value::String(text) => Some(text),
        Value::Object(token) => token.get("content")?.as_str(),
        _ => None,
    }
}
