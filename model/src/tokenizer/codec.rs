//! Text to tokens and back.

use std::ops::Range;

use crate::Error;
use crate::gguf::file::Gguf;
use crate::tokenizer::gguf_vocabulary;
use crate::tokenizer::sentencepiece::encode::EncoderText;
use crate::tokenizer::vocabulary::Vocabulary;

/// A tokenizer: converts text to tokens and tokens to text.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF file describes.
    ///
    /// # Errors
    /// Returns an error if the vocabulary is missing, damaged, or of a kind that is not supported.
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

    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Returns the reasons to doubt that texts get the tokens on which the model was trained, one
    /// sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.vocabulary.warnings
    }

    /// Returns a tokenizer for untrusted text, in which the name of a control token is ordinary
    /// text.
    pub fn literal(mut self) -> Tokenizer {
        self.vocabulary
            .encoder
            .take_literally(&self.vocabulary.control);
        self
    }

    /// Returns the tokens of a text, after BOS if the model wants it. The text may contain control
    /// tokens by name, unless the tokenizer is [literal](Self::literal).
    ///
    /// # Errors
    /// Returns an error if the text cannot be tokenized.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let ids = self.vocabulary.encoder.encode(text, EncoderText::Whole)?;
        let bos = self.vocabulary.bos.filter(|bos| ids.first() != Some(bos));
        Ok(bos.into_iter().chain(ids).collect())
    }

    /// Returns the tokens of a whole text that contains BOS by name if the model wants it, such as
    /// a rendered conversation.
    ///
    /// # Errors
    /// Returns an error if the text cannot be tokenized.
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.vocabulary.encoder.encode(text, EncoderText::Whole)
    }

    /// Returns the tokens of a text that continues another one. It works like
    /// [`encode`](Self::encode) without BOS. For a SentencePiece vocabulary of a GGUF file, no
    /// space is prepended either.
    ///
    /// # Errors
    /// Returns an error if the text cannot be tokenized.
    pub fn encode_rest(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.vocabulary.encoder.encode(text, EncoderText::Rest)
    }

    /// Returns the tokens of a whole text without BOS, each with its byte range in the text. Tokens
    /// that share a character each have the range of the whole character. A token of only the
    /// prepended space has an empty range.
    ///
    /// # Errors
    /// Returns an error if the text cannot be tokenized.
    pub fn encode_places(&self, text: &str) -> Result<Vec<(u32, Range<usize>)>, Error> {
        self.vocabulary.encoder.places(text)
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn size(&self) -> usize {
        self.vocabulary.pieces.len()
    }

    /// Returns the token that begins a text, if the model wants one.
    pub fn bos(&self) -> Option<u32> {
        self.vocabulary.bos
    }

    /// Returns the token that ends a text, if the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.vocabulary.eos
    }

    /// Returns the bytes of a token. They are empty for a control token and for an id outside the
    /// vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.vocabulary
            .pieces
            .get(id as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the name of a control token, which steers the model and has no text.
    pub fn control(&self, id: u32) -> Option<&str> {
        self.vocabulary.control.get(&id).map(|text| &**text)
    }

    /// Returns the names of all control tokens, in no order.
    pub(crate) fn control_names(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.control.values().map(|name| &**name)
    }

    /// Returns a readable form of a token: its text, or its name if it has no text, such as
    /// `<|im_end|>`.
    pub fn spelling(&self, id: u32) -> Option<String> {
        if id as usize >= self.size() {
            return None;
        }
        let text = || String::from_utf8_lossy(self.piece(id)).into_owned();
        Some(self.control(id).map_or_else(text, str::to_owned))
    }

    /// Returns the text of some tokens, without the space that was prepended when they were
    /// encoded. Bytes that are not valid UTF-8 become U+FFFD.
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

    /// Returns a decoder for tokens that arrive one by one and continue a text. A leading space
    /// belongs to the text.
    pub fn stream(&self) -> Stream<'_> {
        Stream {
            tokenizer: self,
            pending: vec![],
            spelled: vec![],
        }
    }
}

/// A decoder from tokens to text that releases each character as soon as it is complete.
#[derive(Debug)]
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u8>,
    /// Control tokens that are text here.
    spelled: Vec<u32>,
}

impl Stream<'_> {
    /// Adds the spelling of control tokens to the text, for those whose spelling `shows` accepts.
    pub fn spell(&mut self, shows: impl Fn(&str) -> bool) {
        let control = self.tokenizer.vocabulary.control.iter();
        self.spelled = control
            .filter(|(_, name)| shows(name))
            .map(|(id, _)| *id)
            .collect();
    }

    /// Returns the text that `id` completes. At most three bytes are held back: the beginning of a
    /// character.
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

    /// Returns the rest at the end of the text: U+FFFD if a character is incomplete.
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
