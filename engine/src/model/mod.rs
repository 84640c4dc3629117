//! A model before it is on a device: its file, its hyperparameters, the outline of its weights, and
//! its tokenizer.

pub(crate) mod architecture;
pub(crate) mod byte_level;
pub mod config;
pub(crate) mod config_keys;
pub(crate) mod cuts;
pub(crate) mod expression;
pub(crate) mod fault;
pub(crate) mod file;
pub mod folder;
pub mod gguf;
pub(crate) mod gguf_vocabulary;
pub mod gguf_writer;
pub(crate) mod keys;
pub(crate) mod kind;
pub(crate) mod known;
pub(crate) mod open;
pub(crate) mod outline;
pub(crate) mod pre_tokenizer;
pub(crate) mod problem;
pub(crate) mod reader;
pub(crate) mod roles;
pub mod rope;
pub(crate) mod sentencepiece;
pub mod shape;
pub(crate) mod stop;
pub(crate) mod token_type;
pub mod tokenizer;
pub(crate) mod value;
pub(crate) mod vocabulary;
pub(crate) mod vocabulary_fault;
pub(crate) mod vocabulary_tables;

pub use open::{Files, Model};
pub use outline::{Absmax, Outline, Weight, Weights};
pub use roles::Block;
