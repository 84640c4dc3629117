//! Tests of the engine: files, numbers and tokens; the forward pass on the emulator.

mod config;
mod gguf;
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
