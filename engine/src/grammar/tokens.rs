//! A vocabulary as the parser of grammars sees it: the bytes of each token.
//!
//! A token that steers the model has no bytes. It is spelled with a byte in front that no text has, so that a grammar may
//! ask for it by name, `<|name|>`, and no text is mistaken for it.

use std::sync::Arc;

use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::model::byte_level::utf8;
use crate::model::tokenizer::Tokenizer;

/// Bytes of the longest token that is ever allowed; the library knows none of 1,024.
const LONGEST: usize = 1000;

/// A vocabulary.
pub(super) struct Tokens {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// Whether there is a token for each byte. Without, some text may have no tokens, and none are forced.
    every_byte: bool,
}

impl Tokens {
    /// Of a model with so many tokens, whose texts end with one of `end`.
    pub(super) fn new(tokenizer: Arc<Tokenizer>, vocab: u32, end: &[u32]) -> Tokens {
        let words: Vec<Vec<u8>> = (0..vocab).map(|id| word(&tokenizer, id)).collect();
        let mut single = [false; 256];
        words
            .iter()
            .filter(|word| word.len() == 1)
            .for_each(|word| single[usize::from(word[0])] = true);
        let trie = TokTrie::from(&TokRxInfo::new(vocab, INVALID_TOKEN), &words);
        let end: Vec<u32> = end.iter().copied().filter(|id| *id < vocab).collect();
        let trie = if end.is_empty() {
            trie
        } else {
            trie.with_eos_tokens(&end)
        };
        Tokens {
            tokenizer,
            trie,
            every_byte: utf8().all(|byte| single[usize::from(byte)]),
        }
    }

    /// The tokens of a text as the model was trained on them; where these have other bytes, such as a space in front, or
    /// are none, the longest tokens from the left.
    fn encode(&self, text: &str) -> Vec<TokenId> {
        let ids = self.tokenizer.encode_rest(text).unwrap_or_default();
        let exact = ids
            .iter()
            .flat_map(|id| self.tokenizer.piece(*id))
            .eq(text.as_bytes());
        if exact {
            ids
        } else {
            self.trie.greedy_tokenize(text.as_bytes())
        }
    }
}

/// The bytes that stand for a token; none for one that is never allowed.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let piece = tokenizer.piece(id);
    match tokenizer.control(id) {
        Some(name) if name.starts_with('<') && name.ends_with('>') && name.len() < LONGEST => {
            [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
        }
        Some(_) => vec![],
        None if piece.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) || piece.len() > LONGEST => {
            vec![]
        }
        None => piece.to_vec(),
    }
}

impl TokenizerEnv for Tokens {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie
            .tokenize_with_greedy_fallback(bytes, |text| self.encode(text))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.every_byte
    }
}
