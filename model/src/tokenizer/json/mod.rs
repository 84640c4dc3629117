//! The file `tokenizer.json` of a Hugging Face folder, and `tekken.json` in its place.

pub(crate) mod components;
pub(crate) mod file;
pub(crate) mod pattern;
pub(crate) mod spelled;
pub(crate) mod tekken;
pub(crate) mod vocabulary;
