//! The LoRA adapters that are served next to their base model.
//!
//! A request chooses an adapter by its name, in place of a model's. It then gets a model that has
//! the name of the adapter and holds a share of its [`AdapterLease`]. An adapter that is
//! unloaded leaves the table at once. Its memory is freed when the last request has dropped its
//! share, and when no sequence uses it any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::spawn_blocking;
use warpwright_model::Outline;

use crate::error::{ErrorKind, RequestError};
use crate::id::unix_seconds;
use crate::scheduler::Scheduler;

/// The adapters of a model that are loaded with it, and the folder of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterOptions {
    /// The adapters that are loaded with the model.
    pub loaded: Vec<AdapterEntry>,
    /// The folder from which requests may load adapters, or `None` if they may not.
    pub folder: Option<PathBuf>,
}

impl AdapterOptions {
    /// Returns true if the model may have adapters.
    pub fn are_used(&self) -> bool {
        !self.loaded.is_empty() || self.folder.is_some()
    }
}

/// An adapter, and its name in requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterEntry {
    /// The name in requests and responses.
    pub name: String,
    /// The folder of the adapter.
    pub path: PathBuf,
}

/// A share of a loaded adapter. Dropping the last one unloads the adapter.
pub struct AdapterLease {
    key: String,
    scheduler: Scheduler,
}

impl AdapterLease {
    /// Returns the key of the adapter in the engine.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for AdapterLease {
    fn drop(&mut self) {
        self.scheduler.unload_adapter(&self.key);
    }
}

/// An adapter in the list of a model.
#[derive(Clone)]
pub struct ServedAdapter {
    /// The name in requests and responses.
    pub name: String,
    /// The folder of the adapter.
    pub path: PathBuf,
    /// The time of loading, in seconds since 1970.
    pub created: u64,
    pub(super) lease: Arc<AdapterLease>,
}

/// The adapters of a model by name.
pub struct AdapterTable {
    /// The name of the base model.
    base: String,
    scheduler: Scheduler,
    outline: Outline,
    folder: Option<PathBuf>,
    adapters: Mutex<BTreeMap<String, ServedAdapter>>,
}

impl AdapterTable {
    /// Returns the table of a model with adapters that are loaded already, each with its key.
    pub(super) fn new(
        base: String,
        scheduler: Scheduler,
        outline: Outline,
        folder: Option<PathBuf>,
        loaded: Vec<(AdapterEntry, String)>,
    ) -> AdapterTable {
        let served = loaded.into_iter().map(|(entry, key)| {
            let adapter = served(entry, key, &scheduler);
            (adapter.name.clone(), adapter)
        });
        let adapters = Mutex::new(served.collect());
        AdapterTable {
            base,
            scheduler,
            outline,
            folder,
            adapters,
        }
    }

    /// Returns all adapters, in order of their names.
    pub fn list(&self) -> Vec<ServedAdapter> {
        self.table().values().cloned().collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<ServedAdapter> {
        self.table().get(name).cloned()
    }

    /// Loads an adapter of the folder for requests of this name.
    ///
    /// # Errors
    /// Returns an error that names the field if the name is empty or in use, if the path is not in
    /// the folder, or if the adapter cannot be read, does not fit the model or does not fit into
    /// memory. Returns [`ErrorKind::Forbidden`] if the server was started without a folder.
    pub async fn load(&self, name: &str, path: &str) -> Result<(), RequestError> {
        let Some(folder) = &self.folder else {
            return Err(forbidden());
        };
        self.check_name(name)?;
        let path = inside(folder, path)?;
        let outline = self.outline.clone();
        let folder = path.clone();
        let read = spawn_blocking(move || outline.read_adapter(&folder)).await;
        let adapter = read
            .map_err(|error| RequestError::new(ErrorKind::Internal, error.to_string()))?
            .map_err(|error| RequestError::invalid("lora_path", error.to_string()))?;
        let key = self.scheduler.load_adapter(adapter).await;
        let key = key.map_err(|error| match error.kind {
            ErrorKind::Invalid => RequestError::invalid("lora_path", error.message),
            _ => error,
        })?;
        let entry = AdapterEntry {
            name: name.to_owned(),
            path,
        };
        let adapter = served(entry, key, &self.scheduler);

        // Another request may have loaded an adapter of this name meanwhile.
        let mut table = self.table();
        if table.contains_key(name) {
            drop(table);
            return Err(in_use(name));
        }
        table.insert(name.to_owned(), adapter);
        Ok(())
    }

    /// Unloads an adapter. Running requests may end with it.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotFound`] if no adapter has the name, or [`ErrorKind::Forbidden`] if
    /// requests may not load adapters.
    pub fn unload(&self, name: &str) -> Result<(), RequestError> {
        if self.folder.is_none() {
            return Err(forbidden());
        }
        let removed = self.table().remove(name);
        removed.map(drop).ok_or_else(|| RequestError {
            kind: ErrorKind::NotFound,
            message: format!("no adapter {name:?} is loaded"),
            param: Some("lora_name".to_owned()),
        })
    }

    fn check_name(&self, name: &str) -> Result<(), RequestError> {
        if name.is_empty() {
            return Err(RequestError::invalid("lora_name", "`lora_name` is empty"));
        }
        if name == self.base || self.find(name).is_some() {
            return Err(in_use(name));
        }
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, ServedAdapter>> {
        // No code panics while it has the lock, and the table is valid after every statement.
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn served(entry: AdapterEntry, key: String, scheduler: &Scheduler) -> ServedAdapter {
    ServedAdapter {
        name: entry.name,
        path: entry.path,
        created: unix_seconds(),
        lease: Arc::new(AdapterLease {
            key,
            scheduler: scheduler.clone(),
        }),
    }
}

/// Returns the path of an adapter, which must be in the folder, also after all links are resolved.
fn inside(folder: &Path, path: &str) -> Result<PathBuf, RequestError> {
    let missing = |path: &Path, error: std::io::Error| {
        RequestError::invalid(
            "lora_path",
            format!("cannot open {}: {error}", path.display()),
        )
    };
    if path.is_empty() {
        return Err(RequestError::invalid("lora_path", "`lora_path` is empty"));
    }
    let folder = folder
        .canonicalize()
        .map_err(|error| missing(folder, error))?;
    let path = folder.join(path);

    // A path outside is refused in the same way whether it exists or not, so that a client learns
    // nothing about other files.
    let outside = || RequestError {
        kind: ErrorKind::Forbidden,
        message: format!(
            "{} is not in the folder of --lora-dir, or does not exist",
            path.display()
        ),
        param: Some("lora_path".to_owned()),
    };
    let resolved = path.canonicalize().map_err(|_| outside())?;
    if resolved.starts_with(&folder) {
        Ok(resolved)
    } else {
        Err(outside())
    }
}

/// The refusal of a server that loads no adapters for requests.
pub(crate) fn forbidden() -> RequestError {
    RequestError::new(
        ErrorKind::Forbidden,
        "requests cannot load and unload adapters: start the server with --lora-dir FOLDER",
    )
}

fn in_use(name: &str) -> RequestError {
    RequestError::invalid(
        "lora_name",
        format!("the name {name:?} is in use: unload the adapter first, or choose another name"),
    )
}
