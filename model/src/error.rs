//! The error type of the crate. Each message says what is wrong, where it is, and what to do.

use std::path::PathBuf;

use crate::adapter::fault as adapter_fault;
use crate::folder::folder_fault;
use crate::gguf::fault;
use crate::grammar::fault as grammar_fault;
use crate::merge::fault as merge_fault;
use crate::problem::Problem;
use crate::tokenizer::vocabulary_fault;

/// Why a model, or a file that belongs to it, cannot be used.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Error {
    #[error("cannot open {}: {source}", path.display())]
    Open {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} changed while it was read: wait until it is complete and try again", path.display())]
    Changed { path: PathBuf },
    #[error(
        "{}: weight {index} of tensor {tensor:?} is {value}: the file is damaged, so download it again or use another one",
        path.display()
    )]
    Weight {
        path: PathBuf,
        tensor: String,
        index: usize,
        value: f32,
    },
    #[error("{} is {what}", path.display())]
    NoFile { path: PathBuf, what: &'static str },
    #[error("{}: {fault}", path.display())]
    Gguf {
        path: PathBuf,
        fault: Box<fault::Fault>,
    },
    #[error("{}: {fault}", path.display())]
    Folder {
        path: PathBuf,
        fault: Box<folder_fault::Fault>,
    },
    #[error("{}: {problem}", path.display())]
    Model {
        path: PathBuf,
        problem: Box<Problem>,
    },
    #[error("{shape} cannot be quantized as {quantization}: {problem} (possible are {others})")]
    Shape {
        shape: &'static str,
        quantization: &'static str,
        problem: Box<Problem>,
        others: String,
    },
    #[error("{}: {fault}", path.display())]
    Tokenizer {
        path: PathBuf,
        fault: Box<vocabulary_fault::Fault>,
    },
    #[error("{}: the chat template {problem}", path.display())]
    ChatTemplate { path: PathBuf, problem: String },
    #[error("the chat template {0}")]
    Chat(String),
    #[error("{}: {fault}", path.display())]
    Adapter {
        path: PathBuf,
        fault: Box<adapter_fault::AdapterFault>,
    },
    #[error("{}: {fault}", path.display())]
    Merge {
        path: PathBuf,
        fault: Box<merge_fault::MergeFault>,
    },
    #[error("the prompt cannot be tokenized: {0}")]
    Encode(String),
    #[error("a stop string is empty: it would end every text before its first character")]
    EmptyStop,
    #[error("the {what} cannot be used: {fault}")]
    Grammar {
        what: &'static str,
        fault: Box<grammar_fault::GrammarFault>,
    },
    #[error("the grammar failed after {tokens} tokens: {problem}")]
    GrammarFailed { tokens: u32, problem: String },
}

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the
/// sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(
    Error,
    Problem,
    adapter_fault::AdapterFault,
    fault::Fault,
    folder_fault::Fault,
    grammar_fault::GrammarFault,
    merge_fault::MergeFault,
    vocabulary_fault::Fault
);
