//! The one error type: each sentence says what, where, and what instead.

use std::path::PathBuf;

use crate::{config, gguf, tokenizer};

/// Why a model cannot be opened or run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Error {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{}: {fault}", path.display())]
    Gguf { path: PathBuf, fault: Box<gguf::Fault> },
    #[error("{}: {problem}", path.display())]
    Model { path: PathBuf, problem: Box<config::Problem> },
    #[error("{}: {fault}", path.display())]
    Tokenizer { path: PathBuf, fault: Box<tokenizer::Fault> },
    #[error("the prompt cannot be tokenized: {0}")]
    Encode(String),
}
