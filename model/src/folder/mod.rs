//! Models as Hugging Face folders: `config.json`, safetensors and `tokenizer.json`.
//!
//! The format of the weights is <https://github.com/huggingface/safetensors#format>. The names of
//! tensors and keys come from transformers (`modeling_*.py` and `configuration_*.py`). Rows of Q
//! and K are in the order of these files, in the family `llama` too: a rotary pair is an element of
//! the first half of a head and one of its second half (NeoX, or half-split). Two families have
//! interleaved pairs in their folders.

pub(crate) mod contents;
pub(crate) mod experts;
pub(crate) mod folder_fault;
pub(crate) mod four_bit;
pub(crate) mod json;
pub(crate) mod mxfp4;
pub(crate) mod names;
pub(crate) mod read;
pub(crate) mod shard;
pub(crate) mod special;
pub(crate) mod tensor;

pub use contents::Folder;
pub use folder_fault::Fault;
pub use json::shown;
pub use special::GENERATION;
