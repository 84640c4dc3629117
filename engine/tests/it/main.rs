//! Tests of the engine: files, numbers and tokens; the forward pass on the emulator.

mod config;
mod gguf;
mod tokenizer;
mod write;

use std::path::{Path, PathBuf};

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The small model that the repository carries.
fn asset() -> PathBuf {
    repository("assets/rustdoc-7m-Q4_K_M.gguf")
}

/// What an independent float64 implementation says of the small model: for each quantization and prompt the
/// tokens, the greedy continuation and the eight largest logits of each step.
fn reference() -> serde_json::Value {
    let text = std::fs::read_to_string(repository("tests/data/reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}
