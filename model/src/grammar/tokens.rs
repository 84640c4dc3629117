//! Describes the vocabulary of a model to llguidance, as the bytes of each token.
//!
//! A control token has no bytes of text. Its bytes are a marker that is not valid in UTF-8, and
//! then its name. A grammar can therefore require the token as `<|name|>`, while the same
//! characters as text cannot match it.

use std::sync::Arc;

use llguidance::toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::tokenizer::byte_level::utf8;
use crate::tokenizer::codec::Tokenizer;

/// The maximum length of an allowed token in bytes. The library supports fewer than 1,024.
const LONGEST: usize = 1000;

/// The vocabulary of a model.
pub(super) struct Tokens {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// True if each byte that UTF-8 uses is a token. Otherwise some texts have no tokens, so no
    /// text may be forced.
    every_byte: bool,
}

impl Tokens {
    /// Returns the vocabulary of the first `vocab` tokens of a tokenizer. Texts end with a token in
    /// `end`.
    pub(super) fn new(tokenizer: Arc<Tokenizer>, vocab: u32, end: &[u32]) -> Tokens {
        let words: Vec<Vec<u8>> = (0..vocab).map(|id| word(&tokenizer, id)).collect();
        let mut is_token = [false; 256];
        for word in &words {
            if let [byte] = word[..] {
                is_token[usize::from(byte)] = true;
            }
        }

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
            every_byte: utf8().all(|byte| is_token[usize::from(byte)]),
        }
    }

    /// Splits a text into tokens as the model's tokenizer does.
    ///
    /// A tokenizer may change the text, for example by adding a space in front, or fail. The text
    /// is then split greedily into the longest tokens, because the bytes must be exactly those that
    /// the grammar demands.
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

/// Returns the bytes of a token. A token without bytes is never allowed.
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
