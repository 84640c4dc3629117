//! What is wrong with a vocabulary.

use crate::model::problem::Problem;

/// What is wrong with a vocabulary.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Fault {
    #[error(transparent)]
    Metadata(#[from] Problem),
    #[error("tokenizer.ggml.model is {0:?}; supported: gpt2 (byte-level BPE)")]
    Model(String),
    #[error("tokenizer.ggml.pre is {found:?}; supported: {supported}")]
    PreTokenizer { found: String, supported: String },
    #[error("the vocabulary has no merges (tokenizer.ggml.merges), without which a text has no tokens")]
    NoMerges,
    #[error("key \"{key}\" is {found}; expected {expected}")]
    Key { key: &'static str, found: String, expected: String },
    #[error("tokens {first} and {second} are both {text:?}")]
    Duplicate { first: u32, second: u32, text: String },
    #[error("the vocabulary has no token for the byte {0:#04x}")]
    NoByte(u8),
    #[error("merge {index} is {text:?}; expected two tokens whose concatenation is a token")]
    Merge { index: usize, text: String },
    #[error("the tokenizer library refuses the vocabulary: {0}")]
    Library(String),
}
