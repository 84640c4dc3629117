//! Finds the chat template in a model's files, and the token spellings that it may use.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::Error;
use crate::Files;
use crate::folder::contents::Folder;
use crate::folder::read;
use crate::folder::special::{
    TEMPLATE_JINJA, TEMPLATE_JSON, TEMPLATES, TOKENIZER_CONFIG, spelling,
};
use crate::gguf::file::Gguf;
use crate::gguf::value::Value as GgufValue;

/// A chat template from a model's files.
pub(super) struct Found {
    /// The file that contains the template.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// The variables that contain the spelling of a token, such as `bos_token`.
    pub(super) special: Vec<(&'static str, String)>,
}

/// The variables with the spelling of a token, and the keys of their tokens in GGUF files.
const SPECIAL: [(&str, &str); 7] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
    ("cls_token", "tokenizer.ggml.cls_token_id"),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];

/// The names that models use if they have several templates.
pub(super) const DEFAULT: &str = "default";
pub(super) const TOOL_USE: &str = "tool_use";

/// Returns the template with the first of these names that the files contain.
pub(super) fn find(files: &Files, names: &[&str]) -> Result<Option<Found>, Error> {
    match files {
        Files::Gguf(gguf) => find_in_gguf(gguf, names),
        Files::Folder(folder) => find_in_folder(folder, names),
    }
}

/// Returns the variables that contain the spelling of a token.
pub(super) fn special(files: &Files) -> Result<Vec<(&'static str, String)>, Error> {
    match files {
        Files::Gguf(gguf) => Ok(special_of_gguf(gguf)),
        Files::Folder(folder) => {
            let settings = read::object(&folder.path, TOKENIZER_CONFIG)?.unwrap_or_default();
            Ok(special_of_settings(&settings))
        }
    }
}

fn special_of_settings(settings: &Map<String, Value>) -> Vec<(&'static str, String)> {
    SPECIAL
        .iter()
        .filter_map(|(name, _)| Some((*name, spelling(settings, name)?.to_owned())))
        .collect()
}

fn special_of_gguf(gguf: &Gguf) -> Vec<(&'static str, String)> {
    let metadata = &gguf.directory.metadata;
    let tokens: Vec<&str> = match metadata.get("tokenizer.ggml.tokens") {
        Some(GgufValue::Array(tokens)) => tokens.strings().into_iter().flatten().collect(),
        _ => vec![],
    };
    let spelled = |key: &str| {
        let id = usize::try_from(metadata.get(key)?.integer()?).ok()?;
        tokens.get(id).map(|text| String::from(*text))
    };
    SPECIAL
        .iter()
        .filter_map(|(name, key)| Some((*name, spelled(key)?)))
        .collect()
}

/// Finds a template in a GGUF file: under `tokenizer.chat_template`, or with its name after a dot.
fn find_in_gguf(gguf: &Gguf, names: &[&str]) -> Result<Option<Found>, Error> {
    let metadata = &gguf.directory.metadata;
    let path = gguf.path.clone();
    let key = |name: &&str| match *name {
        DEFAULT => "tokenizer.chat_template".to_owned(),
        name => format!("tokenizer.chat_template.{name}"),
    };
    let found = names
        .iter()
        .map(key)
        .find_map(|key| Some((metadata.get(&key)?, key)));
    let text = match found {
        None => return Ok(None),
        Some((GgufValue::String(text), _)) => text.clone(),
        Some((_, key)) => {
            return Err(Error::ChatTemplate {
                path,
                problem: format!("is not a string ({key})"),
            });
        }
    };
    Ok(Some(Found {
        path,
        text,
        special: special_of_gguf(gguf),
    }))
}

/// Finds a template in a folder. `chat_template.jinja` comes before `chat_template.json`, and that
/// before `tokenizer_config.json`. Named templates next to the first one have separate files.
fn find_in_folder(folder: &Folder, names: &[&str]) -> Result<Option<Found>, Error> {
    let folder = &folder.path;
    let settings = read::object(folder, TOKENIZER_CONFIG)?.unwrap_or_default();
    let special = special_of_settings(&settings);
    let found = |name: &str, text| {
        Ok(Some(Found {
            path: folder.join(name),
            text,
            special,
        }))
    };
    for name in names {
        let file = match *name {
            DEFAULT => TEMPLATE_JINJA.to_owned(),
            name => format!("{TEMPLATES}/{name}.jinja"),
        };
        if let Some(text) = read::text(folder, &file)? {
            return found(&file, text);
        }
    }

    let object = read::object(folder, TEMPLATE_JSON)?.unwrap_or_default();
    if let Some(text) = in_object(folder, TEMPLATE_JSON, &object, names)? {
        return found(TEMPLATE_JSON, text);
    }

    match in_object(folder, TOKENIZER_CONFIG, &settings, names)? {
        Some(text) => found(TOKENIZER_CONFIG, text),
        None => Ok(None),
    }
}

/// Returns the template under `chat_template` of a JSON file: a string, or the first of these names
/// in a list of named templates.
fn in_object(
    folder: &Path,
    file: &str,
    object: &Map<String, Value>,
    names: &[&str],
) -> Result<Option<String>, Error> {
    let problem = match object.get("chat_template") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        Some(Value::Array(named)) => {
            let called = |name: &&str| named.iter().find(|template| template["name"] == *name);
            let found = names.iter().find_map(called);
            if let Some(text) = found.and_then(|template| template["template"].as_str()) {
                return Ok(Some(text.to_owned()));
            }
            "is a list (chat_template) without an entry named \"default\""
        }
        Some(_) => "is neither a string nor a list of named templates (chat_template)",
    };
    Err(Error::ChatTemplate {
        path: folder.join(file),
        problem: problem.to_owned(),
    })
}
