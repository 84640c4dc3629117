//! From a text to tokens: cut at tokens by name, normalized, segmented.

use std::ops::Range;

use crate::tokenizer::sentencepiece::model::{Segmentation, SentencePiece, Spaces};
use crate::tokenizer::sentencepiece::normalize::{Normalized, normalize};
use crate::tokenizer::sentencepiece::{bpe, unigram};

/// A token with the bytes of the text that it is of.
pub(crate) type Place = (u32, Range<usize>);

/// The position of a text in the input: its beginning, or a continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncoderText {
    /// All of it: it gets a space in front, if the model wants one.
    Whole,
    /// A text that continues another.
    Rest,
}

/// Which tokens may stand in a text by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedTokenPolicy {
    /// All.
    Special,
    /// Only tokens of text, and no control tokens.
    Literal,
}

impl SentencePiece {
    /// The tokens of a text, each with its bytes.
    pub(crate) fn encode(
        &self,
        text: &str,
        kind: EncoderText,
        names: NamedTokenPolicy,
    ) -> Vec<Place> {
        let matcher = match names {
            NamedTokenPolicy::Special => &self.named.all,
            NamedTokenPolicy::Literal => &self.named.user_defined,
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
            end = found.end()
                + if token.takes_space {
                    leading_space(&text[found.end()..])
                } else {
                    0
                };
            out.push((token.id, found.start()..end));
        }

        self.between(text, end..text.len(), kind, &mut out);
        out
    }

    /// Adds the tokens of the text between tokens that are given by name.
    fn between(&self, text: &str, range: Range<usize>, kind: EncoderText, out: &mut Vec<Place>) {
        if range.is_empty() {
            return;
        }

        let continues = kind == EncoderText::Rest && range.start == 0;
        let spaces = Spaces {
            prefix: self.spaces.prefix && !continues,
            ..self.spaces
        };
        let normalized = normalize(&text[range.clone()], spaces, self.charsmap.as_ref());
        let segments = match self.kind {
            Segmentation::Bpe => bpe::segments(self, &normalized.text),
            Segmentation::Unigram => unigram::segments(self, &normalized.text),
        };
        let begin = out.len();
        for segment in segments {
            self.segment(segment, &normalized, begin, out);
        }
        for (_, at) in &mut out[begin..] {
            *at = at.start + range.start..at.end + range.start;
        }
    }

    /// Adds the token of a segment, or the tokens of its bytes, or the unknown token.
    ///
    /// One unknown token stands for neighboring segments too. The tokens of this part of the text
    /// begin at `begin`.
    fn segment(
        &self,
        segment: Range<usize>,
        normalized: &Normalized,
        begin: usize,
        out: &mut Vec<Place>,
    ) {
        let text = &normalized.text[segment.clone()];
        let at = normalized.origin(segment);
        if let Some(piece) = self.pieces.get(text) {
            out.push((piece.id, at));
        } else if let Some(bytes) = &self.bytes {
            out.extend(
                text.bytes()
                    .map(|byte| (bytes[usize::from(byte)], at.clone())),
            );
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
    text.bytes()
        .take_while(|byte| matches!(byte, b' ' | 9..=13))
        .count()
}
