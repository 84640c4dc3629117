//! SentencePiece: text to tokens by scores, as BPE or as a unigram model.
//!
//! A text is cut at the tokens that stand in it by name. What lies between is normalized (spaces
//! become U+2581, one is put in front) and segmented: by merging neighbours, the best score first
//! (`bpe`), or by the path of the best sum of scores (`unigram`). A character that no token covers
//! is spelled in bytes, or is the unknown token. The steps are those of `bpe_model.cc`,
//! `unigram_model.cc` and `normalizer.cc` of SentencePiece; where a file cannot say what these
//! read, they are those of `llama-vocab.cpp` of llama.cpp.
//!
//! This is no use of the library `tokenizers`: its BPE ranks pairs and not tokens, so that of two
//! ways to make the same token the one with the lower rank wins, and in SentencePiece the leftmost.
//! Runs of spaces come out differently.

mod bpe;
pub(crate) mod charsmap;
pub(crate) mod encode;
pub(crate) mod model;
mod normalize;
pub(crate) mod read;
mod unigram;
