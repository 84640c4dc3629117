//! A vocabulary from any kind of file: the encoder of texts, and the bytes of each token.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::panic::AssertUnwindSafe;

use llguidance::panic_utils;
use tokenizers::ModelWrapper;
use tokenizers::models::unigram::Unigram;

use crate::Error;
use crate::tokenizer::cuts::Library;
use crate::tokenizer::sentencepiece::encode::{EncoderText, NamedTokenPolicy, Place};
use crate::tokenizer::sentencepiece::model::SentencePiece;
use crate::tokenizer::token_type::{CONTROL, UNKNOWN};

/// The parts of a tokenizer.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) encoder: Encoder,
    /// The bytes of each token.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// The spellings of tokens that steer the model and have no text.
    pub(crate) control: HashMap<u32, Box<str>>,
    pub(crate) space_prefix: SpacePrefix,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) warnings: Vec<String>,
}

/// The space that a text gets in front before it becomes tokens, which the text of these tokens has
/// not.
#[derive(Debug)]
pub(crate) enum SpacePrefix {
    None,
    /// Every text begins with the added space, independent of its first token.
    Any,
    /// If the first token is none of these: their space is one of the text.
    Spelled(HashSet<u32>),
}

impl SpacePrefix {
    /// Whether a space that this first token begins with was put there.
    pub(crate) fn is_in(&self, first: u32) -> bool {
        match self {
            SpacePrefix::None => false,
            SpacePrefix::Any => true,
            SpacePrefix::Spelled(others) => !others.contains(&first),
        }
    }
}

/// The encoder that converts a text to tokens.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// The library `tokenizers`, without a post-processor, and the unknown token of a unigram
    /// model.
    Library(Box<Library>, Option<usize>),
    /// SentencePiece's scores.
    SentencePiece(Box<SentencePiece>, NamedTokenPolicy),
}

impl Encoder {
    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str, kind: EncoderText) -> Result<Vec<u32>, Error> {
        match self {
            Encoder::Library(library, _) => {
                let encoding = guarded(|| library.encode_fast(text, false))?;
                Ok(encoding.get_ids().to_vec())
            }
            Encoder::SentencePiece(model, names) => Ok(model
                .encode(text, kind, *names)
                .into_iter()
                .map(|(id, _)| id)
                .collect()),
        }
    }

    /// The tokens of a text, each with the bytes that it is of.
    pub(crate) fn places(&self, text: &str) -> Result<Vec<Place>, Error> {
        match self {
            Encoder::Library(library, _) => {
                let encoding = guarded(|| library.encode(text, false))?;
                let places = encoding
                    .get_offsets()
                    .iter()
                    .map(|(start, end)| *start..*end);
                Ok(std::iter::zip(encoding.get_ids().iter().copied(), places).collect())
            }
            Encoder::SentencePiece(model, names) => {
                Ok(model.encode(text, EncoderText::Whole, *names))
            }
        }
    }

    /// From now on, a control token that stands in a text by name is text.
    pub(crate) fn take_literally(&mut self, control: &HashMap<u32, Box<str>>) {
        match self {
            Encoder::Library(library, unknown) => {
                library.set_encode_special_tokens(true);
                if let ModelWrapper::Unigram(model) = library.get_model()
                    && let Some(model) = without_control(model, *unknown, control)
                {
                    library.with_model(model);
                }
            }
            Encoder::SentencePiece(_, names) => *names = NamedTokenPolicy::Literal,
        }
    }
}

/// Runs the encoder of the library, and returns an error if it panics, because it accepts some
/// settings on which it panics later.
///
/// The message of the panic is not printed. `panic_utils` installs a hook once per process, in
/// front of the existing one. It is silent only in threads that are inside its `catch_unwind`.
fn guarded<T>(encode: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    let encoded = panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(encode())));
    encoded
        .map_err(panicked)?
        .map_err(|error| Error::Encode(error.to_string()))
}

/// Returns an error with the first line of the message of a panic. The rest is the position within
/// the library.
fn panicked(error: impl Display) -> Error {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    let reason = first.strip_prefix("panic: ").unwrap_or(first);
    Error::Encode(format!("the tokenizer library panicked: {reason}"))
}

/// Returns a unigram model that never encodes text as control tokens.
///
/// In BPE no merge produces them, but a unigram model treats them as ordinary entries. Each is
/// spelled as the last entry that is not a control token, which the library then finds in its
/// place.
fn without_control(
    model: &Unigram,
    unknown: Option<usize>,
    control: &HashMap<u32, Box<str>>,
) -> Option<Unigram> {
    let is_control = |id: usize| control.contains_key(&(id as u32));
    let mut entries: Vec<(String, f64)> = model.iter().cloned().collect();
    let last = (0..entries.len()).rev().find(|id| !is_control(*id))?;
    let other = entries[last].0.clone();

    // One behind it would be found in its place, and is not needed here.
    entries.truncate(last.max(unknown.unwrap_or(0)) + 1);
    let control = entries
        .iter_mut()
        .take(last)
        .enumerate()
        .filter(|(id, _)| is_control(*id));
    for (_, entry) in control {
        entry.0.clone_from(&other);
    }

    Unigram::from(entries, unknown, model.byte_fallback()).ok()
}

/// The tokens that have no text, by their numbers.
pub(crate) fn control<'a>(tokens: impl Iterator<Item = (&'a str, i64)>) -> HashMap<u32, Box<str>> {
    let control = (0..)
        .zip(tokens)
        .filter(|(_, (_, kind))| matches!(*kind, CONTROL | UNKNOWN));
    control.map(|(id, (text, _))| (id, text.into())).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const PANICS: &str = "tokenizer::vocabulary::tests::panics_on_two_threads";

    #[test]
    #[ignore = "prints a panic; the test after it runs it"]
    fn panics_on_two_threads() {
        let error = guarded(|| -> tokenizers::Result<()> {
            let other = std::thread::spawn(|| panic!("in another thread"));
            assert!(other.join().is_err());
            panic!("SETTING")
        });
        let message = "the prompt cannot be tokenized: the tokenizer library panicked: SETTING";
        assert_eq!(error.unwrap_err().to_string(), message);
        assert!(std::panic::catch_unwind(|| panic!("behind it")).is_err());
    }

    /// Runs in a separate process, so that its output can be read. Another thread there prints its
    /// panic as usual.
    #[test]
    fn a_panic_within_the_library_is_an_error_and_prints_nothing() {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["--exact", PANICS, "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{printed}");
        assert!(!printed.contains("SETTING"), "{printed}");

        // It ran, and was not filtered out.
        assert!(
            printed.contains("in another thread") && printed.contains("behind it"),
            "{printed}"
        );
    }
}
