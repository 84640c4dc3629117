//! The tokenizer of a folder: `tokenizer.json`, as the library `tokenizers` reads it, if it is byte-level BPE.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokenizers::processors::PostProcessorWrapper;

use crate::Error;
use crate::model::folder::folder_fault::Fault as FolderFault;
use crate::model::folder::read;
use crate::model::folder::special::{self, Added, TOKENIZER, TOKENIZER_CONFIG, spelling};
use crate::model::stop;
use crate::model::token_type::{CONTROL, NORMAL, USER_DEFINED};
use crate::model::tokenizer::{self, Tokenizer};
use crate::model::vocabulary_fault::Fault;

/// What is read of `tokenizer.json` besides what the library reads.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    dropout: Option<f64>,
    /// By name, so that a vocabulary of another kind is refused by that.
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Vec<Merge>,
}

/// A merge is a pair, or in older files a string with a space.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

/// Builds the tokenizer of a folder whose model has so many tokens.
pub(crate) fn read(folder: &Path, vocab: u32, config: &Map<String, Value>) -> Result<Tokenizer, Error> {
    let path = folder.join(TOKENIZER);
    let fault = |fault| Error::Tokenizer { path: path.clone(), fault: Box::new(fault) };
    let Some(bytes) = read::bytes(folder, TOKENIZER)? else {
        return Err(Error::Tokenizer { path: folder.to_owned(), fault: Box::new(Fault::NoFile) });
    };
    let file: File = serde_json::from_slice(&bytes).map_err(|error| Error::Folder {
        path: path.clone(),
        fault: Box::new(FolderFault::Json(error.to_string())),
    })?;
    let tokens = file.tokens(vocab).map_err(fault)?;
    file.check(&tokens).map_err(fault)?;
    let library = |error: tokenizers::Error| fault(Fault::Library(error.to_string()));
    let mut encoder = tokenizers::Tokenizer::from_bytes(&bytes).map_err(library)?;
    encoder.with_padding(None);
    encoder.with_truncation(None).map_err(library)?;
    if let Some(added) = file.added_tokens.iter().find(|t| encoder.token_to_id(&t.content) != Some(t.id)) {
        return Err(fault(Fault::AddedId { id: added.id, text: added.content.clone() }));
    }
    let settings = read::object(folder, TOKENIZER_CONFIG)?;
    let beginning = Beginning::read(&encoder, settings.as_ref(), config, vocab);
    let (bos, warning) = bos(&encoder, &beginning).map_err(fault)?;
    let settings = settings.unwrap_or_default();
    // What it adds is known now; it would also take white space out of the tokens' offsets.
    encoder.with_post_processor(None::<PostProcessorWrapper>);
    let pieces = tokens.iter().map(|(text, kind)| tokenizer::piece(text, *kind)).collect();
    let eos = match spelling(&settings, "eos_token") {
        Some(text) => Some(
            encoder
                .token_to_id(text)
                .ok_or_else(|| fault(Fault::NoSpelling { key: "eos_token", text: text.to_owned() }))?,
        ),
        None => special::ids(config, "eos_token_id", vocab).unwrap_or_default().first().copied(),
    };
    Ok(Tokenizer::new(encoder, pieces, bos, eos, warning.into_iter().collect()))
}

impl File {
    /// The spelling and the type of each token; numbers without a token have an empty spelling.
    fn tokens(&self, vocab: u32) -> Result<Vec<(&str, i64)>, Fault> {
        let Some(table) = self.model.vocab.as_object() else {
            return Err(Fault::Vocabulary(self.model.kind.clone().unwrap_or_default()));
        };
        let mut tokens: Vec<(&str, i64)> = vec![("", NORMAL); vocab as usize];
        let mut set = |id: Option<u64>, text, kind| {
            let slot = id.and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
            let slot = slot.ok_or_else(|| Fault::Outside { text: String::from(text), vocab })?;
            if !slot.0.is_empty() && slot.0 != text {
                let (first, second) = (slot.0.to_owned(), String::from(text));
                return Err(Fault::SameId { id: id.unwrap_or_default(), first, second });
            }
            *slot = (text, kind);
            Ok(())
        };
        for (text, id) in table {
            set(id.as_u64(), text.as_str(), NORMAL)?;
        }
        for Added { id, content, special } in &self.added_tokens {
            let control = *special || stop::is_marker(content);
            set(Some(u64::from(*id)), content, if control { CONTROL } else { USER_DEFINED })?;
        }
        Ok(tokens)
    }

    /// Refuses what is no byte-level BPE, and what the library would panic on.
    fn check(&self, tokens: &[(&str, i64)]) -> Result<(), Fault> {
        let kind = self.model.kind.as_deref().unwrap_or("BPE");
        if kind != "BPE" {
            return Err(Fault::Vocabulary(kind.to_owned()));
        }
        if self.model.byte_fallback {
            return Err(Fault::ByteFallback);
        }
        if self.model.dropout.is_some_and(|share| share != 0.0) {
            return Err(Fault::Dropout);
        }
        if !is_byte_level(&self.decoder) || !is_byte_level(&self.pre_tokenizer) {
            return Err(Fault::NotByteLevel);
        }
        let ids: HashMap<&str, u32> = (0..).zip(tokens).map(|(id, (text, _))| (*text, id)).collect();
        tokenizer::check_bytes(&ids)?;
        if self.model.merges.is_empty() {
            return Err(Fault::NoMerges);
        }
        let pairs = self.model.merges.iter().map(|merge| match merge {
            Merge::Pair(a, b) => Ok((a.as_str(), b.as_str())),
            Merge::Line(line) => line.split_once(' ').ok_or(line.as_str()),
        });
        tokenizer::merges(pairs, &ids).map(|_| ())
    }
}

/// Whether a step is that of bytes as printable characters, or one of several.
fn is_byte_level(step: &Value) -> bool {
    let several = ["pretokenizers", "decoders"].iter().filter_map(|key| step.get(key)?.as_array());
    step["type"] == "ByteLevel" || several.flatten().any(is_byte_level)
}

/// What puts a token in front of a text.
struct Beginning<'a> {
    /// The class in `tokenizer_config.json`; without the file, that of the model's family.
    class: &'a str,
    /// `add_bos_token` of `tokenizer_config.json`.
    wanted: Option<bool>,
    /// `bos_token` there, or `bos_token_id` of `config.json`.
    bos: Option<u32>,
}

impl<'a> Beginning<'a> {
    fn read(
        encoder: &tokenizers::Tokenizer,
        settings: Option<&'a Map<String, Value>>,
        config: &'a Map<String, Value>,
        vocab: u32,
    ) -> Beginning<'a> {
        let text =
            |values: &'a Map<String, Value>, key| values.get(key).and_then(Value::as_str).unwrap_or("");
        let spelled = settings.and_then(|settings| encoder.token_to_id(spelling(settings, "bos_token")?));
        let numbered = || special::ids(config, "bos_token_id", vocab).unwrap_or_default().first().copied();
        Beginning {
            class: match settings {
                Some(settings) => text(settings, "tokenizer_class"),
                None if text(config, "model_type") == "llama" => LLAMA_CLASS,
                None => "",
            },
            wanted: settings.and_then(|settings| settings.get("add_bos_token")?.as_bool()),
            bos: spelled.or_else(numbered),
        }
    }
}

const LLAMA_CLASS: &str = "LlamaTokenizer";

/// The token that begins a text, and a warning where two files differ in it.
///
/// It is what the post-processor of `tokenizer.json` puts in front of a text. Llama's own classes in transformers make
/// that step anew: by `add_bos_token` of `tokenizer_config.json`, which is true for them unless it says otherwise.
fn bos(
    encoder: &tokenizers::Tokenizer,
    beginning: &Beginning<'_>,
) -> Result<(Option<u32>, Option<String>), Fault> {
    let ids = |special| {
        let encoding = encoder.encode_fast("a", special).map_err(|e| Fault::Library(e.to_string()))?;
        Ok::<Vec<u32>, Fault>(encoding.get_ids().to_vec())
    };
    let (all, text) = (ids(true)?, ids(false)?);
    let added = match all.strip_suffix(&text[..]) {
        Some([]) => None,
        Some([bos]) => Some(*bos),
        _ => return Err(Fault::PostProcessor { all, text }),
    };
    let own = beginning.class.starts_with(LLAMA_CLASS);
    let differ = beginning.wanted.is_some_and(|wanted| wanted != added.is_some());
    let warning = differ.then(|| {
        format!(
            "add_bos_token of tokenizer_config.json and the post-processor of tokenizer.json differ in whether a text \
             begins with a token of its own; {} is followed, as by transformers",
            if own { TOKENIZER_CONFIG } else { TOKENIZER }
        )
    });
    match (own, beginning.wanted.unwrap_or(true)) {
        (false, _) => Ok((added, warning)),
        (true, false) => Ok((None, warning)),
        (true, true) => Ok((Some(added.or(beginning.bos).ok_or(Fault::NoBos)?), warning)),
    }
}
