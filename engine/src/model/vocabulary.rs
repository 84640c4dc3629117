//! A vocabulary that has been read, whichever file it is from: what makes tokens of a text, and the bytes of each token.

use std::collections::HashMap;

use crate::Error;
use crate::model::sentencepiece::encode::{Names, Place, Text};
use crate::model::sentencepiece::model::SentencePiece;
use crate::model::token_type::{CONTROL, UNKNOWN};

/// What a tokenizer is made of.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pub(crate) encoder: Encoder,
    /// The bytes of each token.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// The spellings of tokens that steer the model and have no text.
    pub(crate) control: HashMap<u32, Box<str>>,
    /// Whether a text gets a space in front before it becomes tokens, which the text of these tokens has not.
    pub(crate) space_prefix: bool,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) warnings: Vec<String>,
}

/// What makes tokens of a text.
#[derive(Debug)]
pub(crate) enum Encoder {
    /// The library `tokenizers`, without a post-processor.
    Library(Box<tokenizers::Tokenizer>),
    /// SentencePiece's scores.
    SentencePiece(Box<SentencePiece>, Names),
}

impl Encoder {
    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str, kind: Text) -> Result<Vec<u32>, Error> {
        match self {
            Encoder::Library(library) => {
                let encoding = library.encode_fast(text, false).map_err(refused)?;
                Ok(encoding.get_ids().to_vec())
            }
            Encoder::SentencePiece(model, names) => {
                Ok(model.encode(text, kind, *names).into_iter().map(|(id, _)| id).collect())
            }
        }
    }

    /// The tokens of a text, each with the bytes that it is of.
    pub(crate) fn places(&self, text: &str) -> Result<Vec<Place>, Error> {
        match self {
            Encoder::Library(library) => {
                let encoding = library.encode(text, false).map_err(refused)?;
                let places = encoding.get_offsets().iter().map(|(start, end)| *start..*end);
                Ok(std::iter::zip(encoding.get_ids().iter().copied(), places).collect())
            }
            Encoder::SentencePiece(model, names) => Ok(model.encode(text, Text::Whole, *names)),
        }
    }

    /// From now on, a control token that stands in a text by name is text.
    pub(crate) fn take_literally(&mut self) {
        match self {
            Encoder::Library(library) => library.set_encode_special_tokens(true),
            Encoder::SentencePiece(_, names) => *names = Names::Literal,
        }
    }
}

fn refused(error: tokenizers::Error) -> Error {
    Error::Encode(error.to_string())
}

/// The tokens that have no text, by their numbers.
pub(crate) fn control<'a>(tokens: impl Iterator<Item = (&'a str, i64)>) -> HashMap<u32, Box<str>> {
    let control = (0..).zip(tokens).filter(|(_, (_, kind))| matches!(*kind, CONTROL | UNKNOWN));
    control.map(|(id, (text, _))| (id, text.into())).collect()
}
