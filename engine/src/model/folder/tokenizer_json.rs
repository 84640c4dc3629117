//! What is read of `tokenizer.json` besides what the library `tokenizers` reads: the bytes of each token, and what the
//! library would panic on.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::model::byte_level;
use crate::model::folder::special::Added;
use crate::model::sentencepiece::charsmap::Charsmap;
use crate::model::sentencepiece::model::SPACE;
use crate::model::sentencepiece::read;
use crate::model::stop;
use crate::model::token_type::{BYTE, CONTROL, NORMAL, USER_DEFINED};
use crate::model::vocabulary_fault::Fault;

/// The file.
#[derive(Deserialize)]
pub(crate) struct File {
    #[serde(default)]
    pub(crate) added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
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
    #[serde(default)]
    unk_token: Option<String>,
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

/// How the tokens are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelled {
    /// Each byte as a character of GPT-2's alphabet.
    Bytes,
    /// As they are, with U+2581 for a space.
    Spaces {
        /// A text has got a space in front.
        prefix: bool,
        /// Tokens such as `<0x0A>` are bytes.
        bytes: bool,
    },
}

impl Spelled {
    /// The bytes of a token.
    pub(crate) fn piece(self, text: &str, kind: i64) -> Vec<u8> {
        match self {
            Spelled::Bytes => byte_level::piece(text, kind),
            _ if kind == USER_DEFINED => text.as_bytes().to_vec(),
            Spelled::Spaces { bytes, .. } => {
                let byte = bytes && kind == NORMAL && read::byte(text).is_some();
                read::piece(text, if byte { BYTE } else { kind })
            }
        }
    }

    /// Whether a text has got a space in front.
    pub(crate) fn space_prefix(self) -> bool {
        matches!(self, Spelled::Spaces { prefix: true, .. })
    }
}

impl File {
    /// One more than the largest number of a token.
    pub(crate) fn size(&self) -> Result<u32, Fault> {
        let listed = self.listed()?.into_iter().filter_map(|(_, id)| u32::try_from(id?).ok());
        let last = listed.chain(self.added_tokens.iter().map(|added| added.id)).max();
        let size = last.map_or(0, |last| last.saturating_add(1));
        if size > MOST { Err(Fault::Size { size, most: MOST }) } else { Ok(size) }
    }

    /// The spellings and numbers of the model's vocabulary.
    fn listed(&self) -> Result<Vec<(&str, Option<u64>)>, Fault> {
        match (&self.model.vocab, self.kind()) {
            (Value::Object(table), "BPE") => {
                Ok(table.iter().map(|(text, id)| (text.as_str(), id.as_u64())).collect())
            }
            (Value::Array(entries), "Unigram") => {
                Ok((0..).zip(entries).map(|(id, entry)| (first(entry), Some(id))).collect())
            }
            (_, kind) => Err(Fault::Vocabulary(kind.to_owned())),
        }
    }

    fn kind(&self) -> &str {
        let merges = if self.model.vocab.is_object() { "BPE" } else { "" };
        self.model.kind.as_deref().unwrap_or(merges)
    }

    /// The spelling and the type of each token; numbers without a token have an empty spelling.
    pub(crate) fn tokens(&self, vocab: u32) -> Result<Vec<(&str, i64)>, Fault> {
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
        for (text, id) in self.listed()? {
            set(id, text, NORMAL)?;
        }
        for Added { id, content, special } in &self.added_tokens {
            let control = *special || stop::is_marker(content);
            set(Some(u64::from(*id)), content, if control { CONTROL } else { USER_DEFINED })?;
        }
        Ok(tokens)
    }

    /// Refuses what is not supported, and what the library would panic on; says how the tokens are spelled, and warns of
    /// texts that lose bytes.
    pub(crate) fn check(&self, tokens: &[(&str, i64)]) -> Result<(Spelled, Option<String>), Fault> {
        if self.model.dropout.is_some_and(|share| share != 0.0) {
            return Err(Fault::Dropout);
        }
        check_charsmaps(&self.normalizer)?;
        let spelled = self.spelled()?;
        if self.kind() == "Unigram" {
            return read::check_lengths(tokens.iter().map(|(text, _)| *text)).map(|()| (spelled, None));
        }
        let ids: HashMap<&str, u32> = (0..).zip(tokens).map(|(id, (text, _))| (*text, id)).collect();
        let lossy = match (spelled, &self.model.unk_token) {
            (Spelled::Bytes, _) => byte_level::check_bytes(&ids)?,
            (_, Some(_)) => None,
            (_, None) if self.model.byte_fallback => read::check_bytes(&ids).map(|()| None)?,
            (_, None) => return Err(Fault::NoUnknown),
        };
        if self.model.merges.is_empty() {
            return Err(Fault::NoMerges);
        }
        let pairs = self.model.merges.iter().map(|merge| match merge {
            Merge::Pair(a, b) => Ok((a.as_str(), b.as_str())),
            Merge::Line(line) => line.split_once(' ').ok_or(line.as_str()),
        });
        byte_level::merges(pairs, &ids).map(|_| (spelled, lossy))
    }

    /// How the tokens are spelled, as the decoder has it.
    fn spelled(&self) -> Result<Spelled, Fault> {
        let steps = steps_of(&self.decoder);
        let byte_level = |step: &&Value| step["type"] == "ByteLevel";
        if steps.iter().any(byte_level) && steps_of(&self.pre_tokenizer).iter().any(byte_level) {
            return Ok(Spelled::Bytes);
        }
        let (mut prefix, mut bytes, mut spaces) = (false, false, false);
        for step in steps {
            match step["type"].as_str().unwrap_or_default() {
                "Metaspace" => (spaces, prefix) = (true, has_prefix(step)),
                "Replace" if is_space(step) => spaces = true,
                "ByteFallback" => bytes = true,
                "Fuse" => {}
                "Strip" if step["content"] == " " && step["stop"] == 0 => prefix = step["start"] != 0,
                other => return Err(Fault::Decoder(other.to_owned())),
            }
        }
        if spaces { Ok(Spelled::Spaces { prefix, bytes }) } else { Err(Fault::Decoder(String::new())) }
    }
}

/// The most tokens of a file that comes without `config.json`.
const MOST: u32 = 1 << 24;

/// A step, or those that it consists of.
fn steps_of(step: &Value) -> Vec<&Value> {
    let several = ["pretokenizers", "decoders", "normalizers"];
    match several.iter().find_map(|key| step.get(key)?.as_array()) {
        Some(steps) => steps.iter().flat_map(steps_of).collect(),
        None => vec![step],
    }
}

/// The spelling in an entry of a unigram vocabulary, which is a pair with its score.
fn first(entry: &Value) -> &str {
    entry.get(0).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a step makes U+2581 a space.
fn is_space(step: &Value) -> bool {
    step["pattern"]["String"] == String::from(SPACE) && step["content"] == " "
}

/// Whether a `Metaspace` puts a space in front.
fn has_prefix(step: &Value) -> bool {
    match step.get("prepend_scheme").and_then(Value::as_str) {
        Some(scheme) => scheme != "never",
        None => step.get("add_prefix_space") != Some(&Value::Bool(false)),
    }
}

/// Refuses a normalization that would lead the library out of its array.
fn check_charsmaps(normalizer: &Value) -> Result<(), Fault> {
    for step in steps_of(normalizer).into_iter().filter(|step| step["type"] == "Precompiled") {
        let text = step["precompiled_charsmap"].as_str().unwrap_or_default();
        let bytes = base64::decode(text).map_err(|_| Fault::Charsmap)?;
        Charsmap::new(&bytes).ok_or(Fault::Charsmap)?;
    }
    Ok(())
}
