//! Tokenizers: vocabularies of GGUF files and folders, text to tokens, and tokens to text.

pub(crate) mod bound;
pub(crate) mod byte_level;
pub(crate) mod codec;
pub(crate) mod cuts;
pub(crate) mod expression;
pub(crate) mod gguf_vocabulary;
pub(crate) mod json;
pub(crate) mod pre_tokenizer;
pub(crate) mod sentencepiece;
pub(crate) mod stop;
pub(crate) mod text;
pub(crate) mod token_type;
pub(crate) mod vocabulary;
pub(crate) mod vocabulary_fault;
pub(crate) mod vocabulary_tables;

pub use bound::TokenBound;
pub use codec::{Stream, Tokenizer};
pub use vocabulary_fault::Fault;
