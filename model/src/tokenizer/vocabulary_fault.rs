//! Errors about vocabularies.

use crate::problem::Problem;

/// An error in a vocabulary.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Fault {
    #[error(transparent)]
    Metadata(#[from] Problem),
    #[error(
        "tokenizer.ggml.model is {0:?}; supported: gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 (unigram), gemma4"
    )]
    Model(String),
    #[error("tokenizer.ggml.pre is {found:?}; supported: {supported}")]
    PreTokenizer { found: String, supported: String },
    #[error("the vocabulary has no merges ({0}), without which a text has no tokens")]
    NoMerges(&'static str),
    #[error("key \"{key}\" is {found}; expected {expected}")]
    Key {
        key: &'static str,
        found: String,
        expected: String,
    },
    #[error("tokens {first} and {second} are both {text:?}")]
    Duplicate {
        first: u32,
        second: u32,
        text: String,
    },
    #[error("the vocabulary has no token for the byte {0:#04x}")]
    NoByte(u8),
    #[error("merge {index} is {text:?}; expected two tokens whose concatenation is a token")]
    Merge { index: usize, text: String },
    #[error("token {id} is of the type of bytes and spelled {text:?}; expected such as \"<0x0A>\"")]
    ByteToken { id: u32, text: String },
    #[error(
        "the vocabulary has neither byte fallback nor an unknown token, so a text could lose characters"
    )]
    NoUnknown,
    #[error("a token has {len} bytes; a unigram vocabulary may have tokens of up to {most}")]
    LongToken { len: usize, most: usize },
    #[error(
        "the normalization (precompiled_charsmap) is damaged: it is no trie with a replacement at each leaf"
    )]
    Charsmap,
    #[error("the tokenizer library refuses the vocabulary: {0}")]
    Library(String),
    #[error(
        "the folder has no tokenizer.json and no tekken.json, without one of which a text has no tokens"
    )]
    NoFile,
    #[error("{0}")]
    Tekken(String),
    #[error("the vocabulary is of the kind {0:?}; supported: BPE, Unigram")]
    Vocabulary(String),
    #[error("merges are left out at random (model.dropout), which is not supported")]
    Dropout,
    #[error(
        "the decoder {0}; supported: ByteLevel, if the pre_tokenizer has it too, and Metaspace, or Replace of U+2581, \
         with ByteFallback, Fuse and Strip in this order, as SentencePiece's vocabularies have"
    )]
    Decoder(String),
    #[error("{part} has the type {kind}, which is none of the tokenizer library's")]
    Component { part: &'static str, kind: String },
    #[error("{part}: {key} of {kind} {problem}")]
    Setting {
        part: &'static str,
        kind: &'static str,
        key: &'static str,
        problem: String,
    },
    #[error("model.{key} is {value:?}, which is not supported")]
    ModelSetting { key: &'static str, value: String },
    #[error("added token {0:?} stands twice, with different settings")]
    AddedTwice(String),
    #[error(
        "the post-processor puts the token {id} in front of a text; the vocabulary ends before {vocab}"
    )]
    BeginsOutside { id: u32, vocab: u32 },
    #[error("the vocabulary has the numbers 0 to {size}, excluded; at most {most} are supported")]
    Size { size: u32, most: u32 },
    #[error("token {text:?} has no number below vocab_size of config.json ({vocab})")]
    Outside { text: String, vocab: u32 },
    #[error("tokens {first:?} and {second:?} both have the number {id}")]
    SameId {
        id: u64,
        first: String,
        second: String,
    },
    #[error("added token {text:?} does not get its number, {id}, from the tokenizer library")]
    AddedId { id: u32, text: String },
    #[error("{key} of tokenizer_config.json is {text:?}, which is no token")]
    NoSpelling { key: &'static str, text: String },
    #[error(
        "the post-processor makes {all:?} of the tokens {text:?}; supported: one token in front of a text, or none"
    )]
    PostProcessor { all: Vec<u32>, text: Vec<u32> },
}
