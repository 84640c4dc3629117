//! A vocabulary of scores.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;

use crate::tokenizer::sentencepiece::charsmap::Charsmap;

/// U+2581, which stands for a space in tokens.
pub(crate) const SPACE: char = '\u{2581}';

/// A vocabulary and how texts become its tokens.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    pub(super) kind: Segmentation,
    /// The tokens that texts are made of: normal, user-defined and unused ones.
    pub(super) pieces: HashMap<Box<str>, TokenPiece>,
    /// The length of the longest of them, in bytes.
    pub(super) longest: usize,
    /// The score of a character that no piece covers.
    pub(super) unknown_score: f64,
    /// The tokens of the bytes 0 to 255, if there are all of them.
    pub(super) bytes: Option<Vec<u32>>,
    /// The token for characters without another token. It is always present if `bytes` is `None`.
    pub(super) unknown: Option<u32>,
    pub(super) named: NamedTokens,
    pub(super) spaces: Spaces,
    pub(super) charsmap: Option<Charsmap>,
}

/// The algorithm that segments a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segmentation {
    Bpe,
    Unigram,
}

/// A token that texts are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenPiece {
    pub(super) id: u32,
    pub(super) score: f32,
    /// Made on the way to longer ones only.
    pub(super) unused: bool,
}

/// Tokens that are found in a text as they stand.
#[derive(Debug)]
pub(super) struct NamedTokens {
    /// With the control tokens among them.
    pub(super) all: TokenMatcher,
    /// The user-defined tokens, which are matched in the text like other text.
    pub(super) user_defined: TokenMatcher,
}

#[derive(Debug)]
pub(super) struct TokenMatcher {
    pub(super) search: AhoCorasick,
    pub(super) tokens: Vec<NamedToken>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct NamedToken {
    pub(super) id: u32,
    /// White space after it belongs to it.
    pub(super) takes_space: bool,
}

/// The treatment of spaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spaces {
    /// One is put in front of a text, and after a token by name.
    pub(super) prefix: bool,
    /// None are left at the ends, and one of several.
    pub(super) merged: bool,
}

impl SentencePiece {
    /// Returns true if each byte of a text is a byte of a token.
    pub(crate) fn keeps_all_bytes(&self) -> bool {
        self.bytes.is_some() && !self.spaces.merged && self.charsmap.is_none()
    }

    /// Returns true if a token by name takes the white space after it.
    pub(crate) fn takes_space(&self) -> bool {
        self.named.all.tokens.iter().any(|token| token.takes_space)
    }

    /// Returns the length of the longest token that texts are made of, in bytes.
    pub(crate) fn longest_piece(&self) -> usize {
        self.longest
    }

    /// Whether a space is put in front of a text.
    pub(crate) fn has_space_prefix(&self) -> bool {
        self.spaces.prefix
    }
}
