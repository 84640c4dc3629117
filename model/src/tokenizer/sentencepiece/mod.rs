//! SentencePiece: converts text to tokens by scores, as BPE or as a unigram model.
//!
//! A text is divided at the tokens that it contains by name. The text between them is normalized,
//! in which spaces become U+2581 and one is put in front. Then it is segmented. `bpe` merges
//! neighbors, the best score first. `unigram` takes the path with the best sum of scores. A
//! character without a token is spelled in bytes, or becomes the unknown token. The steps come from
//! `bpe_model.cc`, `unigram_model.cc` and `normalizer.cc` of SentencePiece. Settings that a GGUF
//! file cannot store are as in `llama-vocab.cpp` of llama.cpp.
//!
//! The library `tokenizers` is not used, because its BPE ranks pairs instead of tokens. If two
//! merges make the same token, the pair with the lower rank wins there, and the leftmost pair wins
//! in SentencePiece. Runs of spaces would be tokenized differently.

mod bpe;
pub(crate) mod charsmap;
pub(crate) mod encode;
pub(crate) mod model;
mod normalize;
pub(crate) mod read;
mod unigram;
