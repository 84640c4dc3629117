//! The parts of `tokenizer.json` that the library `tokenizers` does not read: the spelling of each
//! token, and settings that the library would silently ignore or panic on.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::folder::special::Added;
use crate::tokenizer::byte_level;
use crate::tokenizer::json::components;
use crate::tokenizer::json::components::ComponentSection;
use crate::tokenizer::json::spelled::Spelled;
use crate::tokenizer::sentencepiece::read;
use crate::tokenizer::stop;
use crate::tokenizer::token_type::{CONTROL, NORMAL, USER_DEFINED};
use crate::tokenizer::vocabulary_fault::Fault;

/// The file.
#[derive(Deserialize)]
pub(crate) struct TokenizerFile {
    #[serde(default)]
    pub(crate) added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    unk_id: Option<usize>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    /// By name, so that a vocabulary of another kind is refused by that.
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Vec<MergeRule>,
}

/// A merge is a pair, or in older files a string with a space.
#[derive(Deserialize)]
#[serde(untagged)]
enum MergeRule {
    Pair(String, String),
    Line(String),
}

impl TokenizerFile {
    /// One more than the largest number of a token.
    pub(crate) fn size(&self) -> Result<u32, Fault> {
        let listed = self
            .listed()?
            .into_iter()
            .filter_map(|(_, id)| u32::try_from(id?).ok());
        let last = listed
            .chain(self.added_tokens.iter().map(|added| added.id))
            .max();
        let size = last.map_or(0, |last| last.saturating_add(1));
        if size > MOST {
            Err(Fault::Size { size, most: MOST })
        } else {
            Ok(size)
        }
    }

    /// The spellings and numbers of the model's vocabulary.
    fn listed(&self) -> Result<Vec<(&str, Option<u64>)>, Fault> {
        match (&self.model.vocab, self.kind()) {
            (Value::Object(table), "BPE") => Ok(table
                .iter()
                .map(|(text, id)| (text.as_str(), id.as_u64()))
                .collect()),
            (Value::Array(entries), "Unigram") => Ok((0..)
                .zip(entries)
                .map(|(id, entry)| (first(entry), Some(id)))
                .collect()),
            (_, kind) => Err(Fault::Vocabulary(kind.to_owned())),
        }
    }

    fn kind(&self) -> &str {
        let merges = if self.model.vocab.is_object() {
            "BPE"
        } else {
            ""
        };
        self.model.kind.as_deref().unwrap_or(merges)
    }

    /// The spelling and the type of each token; numbers without a token have an empty spelling.
    pub(crate) fn tokens(&self, vocab: u32) -> Result<Vec<(&str, i64)>, Fault> {
        let mut tokens: Vec<(&str, i64)> = vec![("", NORMAL); vocab as usize];
        let mut set = |id: Option<u64>, text, kind| {
            let slot = id.and_then(|id| tokens.get_mut(usize::try_from(id).ok()?));
            let slot = slot.ok_or_else(|| Fault::Outside {
                text: String::from(text),
                vocab,
            })?;
            if !slot.0.is_empty() && slot.0 != text {
                return Err(Fault::SameId {
                    id: id.unwrap_or_default(),
                    first: slot.0.to_owned(),
                    second: String::from(text),
                });
            }

            *slot = (text, kind);
            Ok(())
        };
        for (text, id) in self.listed()? {
            set(id, text, NORMAL)?;
        }

        for Added {
            id,
            content,
            special,
            ..
        } in &self.added_tokens
        {
            let control = *special || stop::is_marker(content);
            set(
                Some(u64::from(*id)),
                content,
                if control { CONTROL } else { USER_DEFINED },
            )?;
        }

        Ok(tokens)
    }

    /// The unknown token of a unigram model.
    pub(crate) fn unknown(&self) -> Option<usize> {
        self.model.unk_id
    }

    /// Returns true if an added token ends a text by its spelling, and the file allows it in any
    /// text.
    pub(crate) fn has_common_markers(&self) -> bool {
        self.added_tokens
            .iter()
            .any(|added| !added.special && stop::is_marker(&added.content))
    }

    /// Refuses components and settings that are not supported; gives a warning for each key that is
    /// left out.
    pub(crate) fn check_parts(&self, vocab: u32) -> Result<Vec<String>, Fault> {
        let mut spare = vec![];
        let parts = [
            (ComponentSection::Normalizer, &self.normalizer),
            (ComponentSection::PreTokenizer, &self.pre_tokenizer),
            (ComponentSection::PostProcessor, &self.post_processor),
            (ComponentSection::Decoder, &self.decoder),
        ];
        for (part, component) in parts {
            components::check(part, component, vocab, &mut spare)?;
        }
        if self.model.dropout.is_some_and(|share| share != 0.0) {
            return Err(Fault::Dropout);
        }

        if let Some(value) = self
            .model
            .continuing_subword_prefix
            .clone()
            .filter(|value| !value.is_empty())
        {
            return Err(Fault::ModelSetting {
                key: "continuing_subword_prefix",
                value,
            });
        }

        let mut seen = HashMap::new();
        for added in &self.added_tokens {
            if seen
                .insert(&added.content, added)
                .is_some_and(|before| before != added)
            {
                return Err(Fault::AddedTwice(added.content.clone()));
            }
        }

        Ok(spare
            .into_iter()
            .map(|key| format!("the key {key} is not known, and left out"))
            .collect())
    }

    /// Refuses a vocabulary that is not complete; says how the tokens are spelled, and warns of
    /// texts that lose bytes.
    pub(crate) fn check(&self, tokens: &[(&str, i64)]) -> Result<(Spelled, Option<String>), Fault> {
        let spelled = Spelled::new(&self.decoder, &self.pre_tokenizer, &self.normalizer)?;
        if self.kind() == "Unigram" {
            return read::check_lengths(tokens.iter().map(|(text, _)| *text))
                .map(|()| (spelled, None));
        }

        let ids: HashMap<&str, u32> = (0..)
            .zip(tokens)
            .map(|(id, (text, _))| (*text, id))
            .collect();
        let lossy = match (spelled, &self.model.unk_token) {
            (Spelled::Bytes, _) => byte_level::check_bytes(&ids)?,
            (_, Some(_)) => None,
            (_, None) if self.model.byte_fallback == Some(true) => {
                read::check_bytes(&ids).map(|()| None)?
            }
            (_, None) => return Err(Fault::NoUnknown),
        };
        if self.model.merges.is_empty() {
            return Err(Fault::NoMerges("model.merges"));
        }

        // The first line of older files says the version.
        let version = |merge: &&MergeRule| match merge {
            MergeRule::Line(line) => line.starts_with("#version"),
            MergeRule::Pair(..) => false,
        };
        let pairs = self
            .model
            .merges
            .iter()
            .filter(|merge| !version(merge))
            .map(|merge| match merge {
                MergeRule::Pair(a, b) => Ok((a.as_str(), b.as_str())),
                MergeRule::Line(line) => line.split_once(' ').ok_or(line.as_str()),
            });
        byte_level::merges(pairs, &ids).map(|_| (spelled, lossy))
    }
}

/// The most tokens of a file that comes without `config.json`.
const MOST: u32 = 1 << 24;

/// The spelling in an entry of a unigram vocabulary, which is a pair with its score.
fn first(entry: &Value) -> &str {
    entry.get(0).and_then(Value::as_str).unwrap_or_default()
}
