//! The spelling of the tokens of `tokenizer.json`, as its decoder defines it.
//!
//! A decoder is a chain of steps over the spellings of all tokens of a text. Only chains are
//! supported in which the bytes of a token do not depend on its neighbors, except for a space in
//! front of the whole text.

use serde_json::Value;

use crate::tokenizer::byte_level;
use crate::tokenizer::json::components::{ComponentSection, steps};
use crate::tokenizer::sentencepiece::model::SPACE;
use crate::tokenizer::sentencepiece::read;
use crate::tokenizer::token_type::{BYTE, CONTROL, NORMAL};
use crate::tokenizer::vocabulary::SpacePrefix;
use crate::tokenizer::vocabulary_fault::Fault;

/// The encoding of bytes in the spelling of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelled {
    /// Each byte as a character of GPT-2's alphabet.
    Bytes,
    /// As they are, with U+2581 for a space.
    Spaces {
        prefix: Prefix,
        /// Tokens such as `<0x0A>` are bytes.
        bytes: bool,
    },
}

/// The space that a text has got in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefix {
    None,
    /// Any space that the text begins with.
    Any,
    /// One that the first token spells as U+2581.
    Spelled,
}

impl Spelled {
    /// As the steps of the decoder have it, where the other parts agree.
    pub(crate) fn new(
        decoder: &Value,
        pre_tokenizer: &Value,
        normalizer: &Value,
    ) -> Result<Spelled, Fault> {
        let chain = steps(ComponentSection::Decoder, decoder);
        let byte_level = |step: &&Value| step["type"] == "ByteLevel";
        if chain.first().is_some_and(byte_level) {
            let makes = [
                (ComponentSection::PreTokenizer, pre_tokenizer),
                (ComponentSection::Normalizer, normalizer),
            ];
            let made = makes
                .into_iter()
                .any(|(part, value)| steps(part, value).iter().any(byte_level));
            let other = chain[1..].iter().find(|step| step["type"] != "Fuse");
            return match other.or(chain.first().filter(|_| !made)) {
                Some(step) => Err(unsupported(step)),
                None => Ok(Spelled::Bytes),
            };
        }

        Chain::default().all(&chain)
    }

    /// The bytes of a token.
    pub(crate) fn piece(self, text: &str, kind: i64) -> Vec<u8> {
        match self {
            Spelled::Bytes => byte_level::piece(text, kind),
            Spelled::Spaces { bytes, .. } => {
                let byte = bytes && kind != CONTROL && read::byte(text).is_some();
                read::piece(
                    text,
                    if byte {
                        BYTE
                    } else if kind == CONTROL {
                        CONTROL
                    } else {
                        NORMAL
                    },
                )
            }
        }
    }

    /// The space that a text has got in front.
    pub(crate) fn space_prefix(self, tokens: &[(&str, i64)]) -> SpacePrefix {
        match self {
            Spelled::Spaces {
                prefix: Prefix::Any,
                ..
            } => SpacePrefix::Any,
            Spelled::Spaces {
                prefix: Prefix::Spelled,
                ..
            } => {
                let others = (0..)
                    .zip(tokens)
                    .filter(|(_, (text, _))| text.starts_with(' '));
                SpacePrefix::Spelled(others.map(|(id, _)| id).collect())
            }
            _ => SpacePrefix::None,
        }
    }
}

/// The combined effect of the steps so far.
#[derive(Default)]
struct Chain {
    spaces: bool,
    bytes: bool,
    fused: bool,
    prefix: Option<Prefix>,
}

impl Chain {
    fn all(mut self, chain: &[&Value]) -> Result<Spelled, Fault> {
        chain.iter().try_for_each(|step| self.step(step))?;
        if chain.is_empty() {
            return Err(Fault::Decoder("is missing".to_owned()));
        }
        if !self.spaces {
            return Err(Fault::Decoder("makes no spaces of U+2581".to_owned()));
        }

        Ok(Spelled::Spaces {
            prefix: self.prefix.unwrap_or(Prefix::None),
            bytes: self.bytes,
        })
    }

    /// Adds a step. Its position matters: before `Fuse` it sees tokens, and after it the whole
    /// text.
    fn step(&mut self, step: &Value) -> Result<(), Fault> {
        match step["type"].as_str().unwrap_or_default() {
            "Metaspace"
                if !self.spaces && !self.fused && step["replacement"] == String::from(SPACE) =>
            {
                self.spaces = true;
                self.prefix = has_prefix(step).then_some(Prefix::Spelled);
            }
            "Replace" if !self.spaces && is_space(step) => self.spaces = true,
            "ByteFallback" if !self.bytes && !self.fused => self.bytes = true,
            "Fuse" => self.fused = true,
            "Strip" if self.spaces && self.fused && self.prefix.is_none() && strips_one(step) => {
                self.prefix = Some(if step["start"] == 1 {
                    Prefix::Any
                } else {
                    Prefix::None
                });
            }
            _ => return Err(unsupported(step)),
        }
        Ok(())
    }
}

fn unsupported(step: &Value) -> Fault {
    Fault::Decoder(format!(
        "has a step of the type {} where it stands",
        step["type"]
    ))
}

/// Whether a step makes U+2581 a space.
fn is_space(step: &Value) -> bool {
    step["pattern"]["String"] == String::from(SPACE) && step["content"] == " "
}

/// Whether a step takes a space from the beginning, or nothing.
fn strips_one(step: &Value) -> bool {
    step["content"] == " " && step["stop"] == 0 && (step["start"] == 0 || step["start"] == 1)
}

/// Whether a `Metaspace` puts a space in front.
fn has_prefix(step: &Value) -> bool {
    match step.get("prepend_scheme").and_then(Value::as_str) {
        Some(scheme) => scheme != "never",
        None => step.get("add_prefix_space") != Some(&Value::Bool(false)),
    }
}
