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
}

impl LoadProgress {
    /// Sets the number of bytes that are copied, and their total.
    pub fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Returns the copied share of the weights in percent. Afterwards the kernels are compiled, which
    /// takes no time on a machine that has compiled them before.
    pub fn percent(&self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed);
        // Nothing is known before the files are open.
        done.saturating_mul(100)
            .checked_div(total)
            .map_or(0, |percent| percent.min(100))
    }
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
