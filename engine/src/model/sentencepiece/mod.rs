//! SentencePiece: text to tokens by scores, as BPE or as a unigram model.
//!
//! A text is cut at the tokens that stand in it by name. What lies between is normalized (spaces become U+2581, one is
//! put in front) and segmented: by merging neighbours, the best score first (`bpe`), or by the path of the best sum of
//! scores (`unigram`). A character that no token covers is spelled in bytes, or is the unknown token. The steps are
//! those of `bpe_model.cc`, `unigram_model.cc` and `normalizer.cc` of SentencePiece; where a file cannot say what these
//! read, they are those of `llama-vocab.cpp` of llama.cpp.
//!
//! This is no use of the library `tokenizers`: its BPE ranks pairs and not tokens, so that of two ways to make the same
//! token the one with the lower rank wins, and in SentencePiece the leftmost. Runs of spaces come out differently.

mod bpe;
pub(crate) mod charsmap;
mod normalize;
pub(crate) mod read;
mod unigram;

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::AhoCorasick;

use charsmap::Charsmap;
use normalize::{Normalized, normalize};

/// U+2581, which stands for a space in tokens.
pub(crate) const SPACE: char = '\u{2581}';

/// A vocabulary and how texts become its tokens.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    kind: Kind,
    /// The tokens that texts are made of: normal, user-defined and unused ones.
    pieces: HashMap<Box<str>, Piece>,
    /// The length of the longest of them, in bytes.
    longest: usize,
    /// The score of a character that no piece covers.
    unknown_score: f64,
    /// The tokens of the bytes 0 to 255, if there are all of them.
    bytes: Option<Vec<u32>>,
    /// The token of what has no other; there if `bytes` is not.
    unknown: Option<u32>,
    named: Named,
    spaces: Spaces,
    charsmap: Option<Charsmap>,
}

/// How a text is segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bpe,
    Unigram,
}

/// A token that texts are made of.
#[derive(Debug, Clone, Copy)]
struct Piece {
    id: u32,
    score: f32,
    /// Made on the way to longer ones only.
    unused: bool,
}

/// Tokens that are found in a text as they stand.
#[derive(Debug)]
struct Named {
    /// With the control tokens among them.
    all: Matcher,
    /// What the vocabulary's maker took for text.
    user_defined: Matcher,
}

#[derive(Debug)]
struct Matcher {
    search: AhoCorasick,
    tokens: Vec<NamedToken>,
}

#[derive(Debug, Clone, Copy)]
struct NamedToken {
    id: u32,
    /// White space after it belongs to it.
    takes_space: bool,
}

/// What happens to spaces.
#[derive(Debug, Clone, Copy)]
struct Spaces {
    /// One is put in front of a text, and after a token by name.
    prefix: bool,
    /// None are left at the ends, and one of several.
    merged: bool,
}

/// A token with the bytes of the text that it is of.
pub(crate) type Place = (u32, Range<usize>);

/// What a text is to its encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// All of it: it gets a space in front, if the model wants one.
    Whole,
    /// What goes on from another text.
    Rest,
}

/// Which tokens may stand in a text by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// All.
    Special,
    /// Those of text, and no control tokens.
    Literal,
}

impl SentencePiece {
    /// Whether a space is put in front of a text.
    pub(crate) fn has_space_prefix(&self) -> bool {
        self.spaces.prefix
    }

    /// The tokens of a text, each with its bytes.
    pub(crate) fn encode(&self, text: &str, kind: Text, names: Names) -> Vec<Place> {
        let matcher = match names {
            Names::Special => &self.named.all,
            Names::Literal => &self.named.user_defined,
        };
        let mut out = vec![];
        let mut end = 0;
        for found in matcher.search.find_iter(text) {
            // White space that the token before has taken may be a token too.
            if found.start() < end {
                continue;
            }
            self.between(text, end..found.start(), kind, &mut out);
            let token = matcher.tokens[found.pattern().as_usize()];
            end = found.end() + if token.takes_space { leading_space(&text[found.end()..]) } else { 0 };
            out.push((token.id, found.start()..end));
        }
        self.between(text, end..text.len(), kind, &mut out);
        out
    }

    /// The tokens of what stands between tokens by name.
    fn between(&self, text: &str, range: Range<usize>, kind: Text, out: &mut Vec<Place>) {
        if range.is_empty() {
            return;
        }
        let continues = kind == Text::Rest && range.start == 0;
        let spaces = Spaces { prefix: self.spaces.prefix && !continues, ..self.spaces };
        let normalized = normalize(&text[range.clone()], spaces, self.charsmap.as_ref());
        let segments = match self.kind {
            Kind::Bpe => bpe::segments(self, &normalized.text),
            Kind::Unigram => unigram::segments(self, &normalized.text),
        };
        let begin = out.len();
        segments.into_iter().for_each(|segment| self.segment(segment, &normalized, begin, out));
        out[begin..].iter_mut().for_each(|(_, at)| *at = at.start + range.start..at.end + range.start);
    }

    /// A segment's token, or those of its bytes, or the unknown one, of which one stands for neighbours too. The tokens
    /// of this part of the text begin at `begin`.
    fn segment(&self, segment: Range<usize>, normalized: &Normalized, begin: usize, out: &mut Vec<Place>) {
        let text = &normalized.text[segment.clone()];
        let at = normalized.origin(segment);
        if let Some(piece) = self.pieces.get(text) {
            out.push((piece.id, at));
        } else if let Some(bytes) = &self.bytes {
            out.extend(text.bytes().map(|byte| (bytes[usize::from(byte)], at.clone())));
        } else if let Some(unknown) = self.unknown {
            match out[begin..].last_mut() {
                Some((id, before)) if *id == unknown => before.end = at.end,
                _ => out.push((unknown, at)),
            }
        }
    }
}

/// The bytes of ASCII's white space at the beginning.
fn leading_space(text: &str) -> usize {
    text.bytes().take_while(|byte| matches!(byte, b' ' | 9..=13)).count()
}
