//! The interface between the registry of models and the code that loads one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::served::ServedModel;

/// A model that a server can load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// The name in requests and responses.
    pub name: String,
    /// The GGUF file or the Hugging Face folder.
    pub path: PathBuf,
    /// The size of its files in bytes, or 0 if it is not known.
    pub bytes: u64,
}

/// The progress of loading a model. Threads share it.
#[derive(Debug, Default)]
pub struct LoadProgress {
    done: AtomicU64,
    total: AtomicU64,
    kernels: AtomicU64,
    all_kernels: AtomicU64,
}

impl LoadProgress {
    /// Sets the number of bytes that are copied, and their total.
    pub fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Sets the number of sizes of steps whose kernels are compiled, and of all sizes.
    pub fn set_kernels(&self, done: usize, all: usize) {
        self.all_kernels.store(all as u64, Ordering::Relaxed);
        self.kernels.store(done as u64, Ordering::Relaxed);
    }

    /// Returns the progress in percent: the copied share of the weights, then the compiled share of
    /// the kernels. On a machine that has compiled them before, the latter takes no time.
    pub fn percent(&self) -> u64 {
        let all = self.all_kernels.load(Ordering::Relaxed);
        if all > 0 {
            return 50 + share(self.kernels.load(Ordering::Relaxed), all) / 2;
        }
        let total = self.total.load(Ordering::Relaxed);
        share(self.done.load(Ordering::Relaxed), total) / 2
    }
}

/// Returns a share in percent, or 0 before anything is known.
fn share(done: u64, all: u64) -> u64 {
    done.saturating_mul(100)
        .checked_div(all)
        .map_or(0, |percent| percent.min(100))
}

/// The reason why a model was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The device has too little free memory. It may have enough after another model was unloaded.
    #[error("{0}")]
    Memory(String),
    /// The files or the device cannot be used.
    #[error("{0}")]
    Failed(String),
}

/// Loads models.
pub trait ModelLoader: Send + Sync {
    /// Loads a model and starts its scheduler. It runs on a thread of its own and may take minutes.
    ///
    /// # Errors
    /// Returns the reason if the model cannot be served.
    fn load(&self, entry: &ModelEntry, progress: &LoadProgress) -> Result<ServedModel, LoadError>;
}
