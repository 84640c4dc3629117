//! The hyperparameters of a model, and the keys of files that they are read from.

pub(crate) mod gguf_keys;
pub(crate) mod hyperparameters;
pub(crate) mod json;
pub(crate) mod known_keys;
pub mod rope;

pub use crate::architecture::family::{Architecture, Windows};
pub use crate::problem::Problem;
pub use hyperparameters::{Config, Local};
