//! The file `tokenizer.json` of a Hugging Face folder.

pub(crate) mod components;
pub(crate) mod file;
pub(crate) mod pattern;
pub(crate) mod spelled;
pub(crate) mod vocabulary;
