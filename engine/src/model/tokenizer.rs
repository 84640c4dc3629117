//! Text to tokens and back.

use std::ops::Range;

use crate::Error;
use crate::model::gguf::Gguf;
use crate::model::gguf_vocabulary;
use crate::model::sentencepiece::encode::Text;
use crate::model::vocabulary::Vocabulary;
pub use crate::model::vocabulary_fault::Fault;

/// A vocabulary in both directions.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
}

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, Error> {
        let fault = |fault| Error::Tokenizer {
            path: gguf.path.clone(),
            fault: Box::new(fault),
        };
        gguf_vocabulary::read(&gguf.directory)
            .map(Tokenizer::new)
            .map_err(fault)
    }

    pub(crate) fn new(vocabulary: Vocabulary) -> Tokenizer {
        Tokenizer { vocabulary }
    }

    /// What makes it doubtful that texts get the tokens that the model was trained on, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.vocabulary.warnings
    }

    /// This vocabulary, for texts that are nobody's commands: a control token that stands in one by name is text.
    pub fn literal(mut self) -> Tokenizer {
        self.vocabulary
            .encoder
            .take_literally(&self.vocabulary.control);
        self
    }

    /// The tokens of a text, after BOS where the model wants it. Control tokens may stand in the text by
    /// name, unless it is taken [literally](Self::literal).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let ids = self.vocabulary.encoder.encode(text, Text::Whole)?;
        let bos = self.vocabulary.bos.filter(|bos| ids.first() != Some(bos));
        Ok(bos.into_iter().chain(ids).collect())
    }

    /// The tokens of a whole text that names BOS itself where it wants it, such as a rendered conversation.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.vocabulary.encoder.encode(text, Text::Whole)
    }

    /// The tokens of a text that goes on from another one: as [`encode`](Self::encode), without BOS, and, for a
    /// SentencePiece vocabulary of a GGUF file, without a space in front.
    pub fn encode_rest(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.vocabulary.encoder.encode(text, Text::Rest)
    }

    /// The tokens of a whole text without BOS, each with the bytes of the text that it is of. Tokens that share a
    /// character have all of it; one of a space in front alone has none.
    pub fn encode_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, Error> {
        self.vocabulary.encoder.places(text)
    }

    /// How many tokens there are.
    pub fn size(&self) -> usize {
        self.vocabulary.pieces.len()
    }

    /// The token that begins a text, if the model wants one.
    pub fn bos(&self) -> Option<u32> {
        self.vocabulary.bos
    }

    /// The token that ends a text, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.vocabulary.eos
    }

    /// The bytes of one token: none for a control token or a number outside the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.vocabulary
            .pieces
            .get(id as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// The spelling of a token that steers the model and has no text.
    pub fn control(&self, id: u32) -> Option<&str> {
        self.vocabulary.control.get(&id).map(|text| &**text)
    }

    /// What a token is for people: the name of one that has no text, such as `<|im_end|>`, or its text.
    pub fn spelling(&self, id: u32) -> Option<String> {
        let text = || String::from_utf8_lossy(self.piece(id)).into_owned();
        ((id as usize) < self.size()).then(|| self.control(id).map_or_else(text, str::to_owned))
    }

    /// The text of some tokens, without the space that was put in front before they were made; bytes that are not UTF-8
    /// become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.piece(*id)).copied().collect();
        let first = ids.iter().find(|id| !self.piece(**id).is_empty());
        let added = first.is_some_and(|first| self.vocabulary.space_prefix.is_in(*first));
        let text = match bytes.strip_prefix(b" ") {
            Some(rest) if added => rest,
            _ => &bytes,
        };
        String::from_utf8_lossy(text).into_owned()
    }

    /// A decoder for tokens that come one by one, and go on from a text: a space in front is one of the text.
    pub fn stream(&self) -> Stream<'_> {
        Stream {
            tokenizer: self,
            pending: vec![],
            spelled: vec![],
        }
    }
}

/// Turns tokens into text as soon as the characters are whole.
#[derive(Debug)]
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u8>,
    /// Control tokens that are text here.
    spelled: Vec<u32>,
}

impl Stream<'_> {
    /// Adds the control tokens whose spelling `shows` accepts to the text.
    pub fn spell(&mut self, shows: impl Fn(&str) -> bool) {
        let control = self.tokenizer.vocabulary.control.iter();
        self.spelled = control
            .filter(|(_, name)| shows(name))
            .map(|(id, _)| *id)
            .collect();
    }

    /// The text that `id` completes. At most three bytes are held back: the start of a character.
    pub fn push(&mut self, id: u32) -> String {
        let name = self
            .tokenizer
            .control(id)
            .filter(|_| self.spelled.contains(&id));
        self.pending
            .extend_from_slice(name.map_or_else(|| self.tokenizer.piece(id), str::as_bytes));
        let held = unfinished(&self.pending);
        let rest = self.pending.split_off(self.pending.len() - held);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// What is left at the end: U+FFFD if a character never became whole.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// The length of the character that starts but does not end in `bytes`.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let tail = last.map_or(&[][..], |chunk| chunk.invalid());
    let starts = std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none());
    if starts { tail.len() } else { 0 }
}
