//! A model before it is on a device: its file, its hyperparameters, the outline of its weights, and its tokenizer.

pub(crate) mod architecture;
pub mod config;
pub(crate) mod file;
pub mod gguf;
pub(crate) mod keys;
pub(crate) mod kind;
pub(crate) mod known;
pub(crate) mod outline;
pub(crate) mod roles;
pub mod rope;
pub mod shape;
pub(crate) mod stop;
pub mod tokenizer;
pub(crate) mod value;

pub use outline::{Model, Outline, Weight, Weights};
pub use roles::Block;
