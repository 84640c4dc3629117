//! The models of a server, by name: which are loaded, which are being loaded, and which was used
//! last.
//!
//! A model is loaded on its own thread when a request names it. Until it is ready, requests for it
//! get an error with the progress. If the device has too little memory, or if the maximum number of
//! models is loaded, the one that was used least recently is unloaded. Its running requests may end
//! first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::loader::{LoadError, LoadProgress, ModelEntry, ModelLoader};
use super::served::ServedModel;
use crate::error::{ErrorKind, RequestError};

/// The options of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryOptions {
    /// The maximum number of models that are loaded at a time, or `None` for as many as fit.
    pub loaded: Option<usize>,
    /// The time that running requests have to end before their model is unloaded.
    pub grace: Duration,
}

impl Default for RegistryOptions {
    fn default() -> RegistryOptions {
        RegistryOptions {
            loaded: None,
            grace: Duration::from_secs(30),
        }
    }
}

/// The models of a server. Clones share them.
#[derive(Clone)]
pub struct Models {
    shared: Arc<Shared>,
}

struct Shared {
    names: NamePolicy,
    loader: Option<Arc<dyn ModelLoader>>,
    options: RegistryOptions,
    table: Mutex<Table>,
    /// Changes whenever the state of a model changes.
    changes: watch::Sender<u64>,
}

/// The names that requests may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamePolicy {
    /// Any name means the only model, unless it has adapters.
    Any,
    /// A name must be that of a model.
    Listed,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    /// The number of uses so far, as a clock.
    uses: u64,
    /// True if the server shuts down, so that no model is loaded any more.
    closed: bool,
}

struct Slot {
    entry: ModelEntry,
    state: SlotState,
    /// The time of the last use, by the clock of the table.
    used: u64,
}

enum SlotState {
    Unloaded,
    Loading(Arc<LoadProgress>),
    Loaded(Arc<ServedModel>),
    Failed(String),
}

/// A model in the list of a server.
#[derive(Clone)]
pub struct ListedModel {
    /// The name in requests and responses.
    pub name: String,
    /// The path of the file or folder.
    pub path: String,
    /// The size of its files in bytes, or 0 if it is not known.
    pub bytes: u64,
    /// The state.
    pub state: ModelState,
}

/// The state of a model.
#[derive(Clone)]
pub enum ModelState {
    /// A request that names the model loads it.
    Unloaded,
    /// The model is being loaded.
    Loading {
        /// The copied share of its weights in percent.
        percent: u64,
    },
    /// The model is loaded.
    Loaded(Arc<ServedModel>),
    /// The last attempt to load the model has failed, for this reason. The next request tries again.
    Failed(String),
}

impl Models {
    /// Returns a registry with one loaded model, which answers requests for every name.
    ///
    /// Clients such as Claude Code send names of other models. With a single model there is only
    /// one that they can mean.
    pub fn single(model: Arc<ServedModel>) -> Models {
        let entry = ModelEntry {
            name: model.name.clone(),
            path: model.description.path.clone().into(),
            bytes: model.description.bytes,
        };
        let slot = Slot {
            entry,
            state: SlotState::Loaded(model),
            used: 0,
        };
        Models::new(
            NamePolicy::Any,
            None,
            RegistryOptions::default(),
            vec![slot],
        )
    }

    /// Returns a registry with one model, which answers requests for every name. It is loaded now.
    pub fn load_single(entry: ModelEntry, loader: Arc<dyn ModelLoader>) -> Models {
        let models = Models::new(
            NamePolicy::Any,
            Some(loader),
            RegistryOptions::default(),
            vec![Slot::unloaded(entry)],
        );
        models.start_loading(&mut models.table(), 0);
        models
    }

    /// Returns a registry with several models. Each is loaded when a request names it.
    pub fn several(
        entries: Vec<ModelEntry>,
        loader: Arc<dyn ModelLoader>,
        options: RegistryOptions,
    ) -> Models {
        let slots = entries.into_iter().map(Slot::unloaded).collect();
        Models::new(NamePolicy::Listed, Some(loader), options, slots)
    }

    fn new(
        names: NamePolicy,
        loader: Option<Arc<dyn ModelLoader>>,
        options: RegistryOptions,
        slots: Vec<Slot>,
    ) -> Models {
        let table = Table {
            slots,
            ..Table::default()
        };
        Models {
            shared: Arc::new(Shared {
                names,
                loader,
                options,
                table: Mutex::new(table),
                changes: watch::Sender::new(0),
            }),
        }
    }

    /// Returns the model or the adapter for a request that names `name`, or no model. If it is not
    /// loaded, loading starts.
    ///
    /// # Errors
    /// Returns an error if there is no such model, if it is being loaded, or if it cannot be loaded.
    pub async fn find(&self, name: Option<&str>) -> Result<Arc<ServedModel>, RequestError> {
        let model = self.find_loaded(name)?;
        match self.shared.names {
            NamePolicy::Any => model.named(name),
            NamePolicy::Listed => Ok(model),
        }
    }

    /// Returns the loaded model for a request that names `name`.
    fn find_loaded(&self, name: Option<&str>) -> Result<Arc<ServedModel>, RequestError> {
        let mut table = self.table();
        let index = self.index(&table, name)?;
        table.uses += 1;
        let now = table.uses;
        let slot = &mut table.slots[index];
        slot.used = now;
        match &slot.state {
            SlotState::Loaded(model) => Ok(Arc::clone(model)),
            SlotState::Loading(progress) => Err(loading(&slot.entry.name, progress)),
            // A single model is loaded once, and the server ends if that fails.
            SlotState::Failed(reason) if self.shared.names == NamePolicy::Any => {
                Err(RequestError::new(ErrorKind::Internal, reason.clone()))
            }
            SlotState::Failed(reason) => {
                // The request that learns of the failure ends it, so that the next one tries again.
                let error = RequestError::new(
                    ErrorKind::Internal,
                    format!("the model {} was not loaded: {reason}", slot.entry.name),
                );
                slot.state = SlotState::Unloaded;
                Err(error)
            }
            SlotState::Unloaded => {
                if table.closed {
                    return Err(shutting_down());
                }
                let progress = self.start_loading(&mut table, index);
                Err(loading(&table.slots[index].entry.name, &progress))
            }
        }
    }

    /// Returns the index of the model with this name.
    fn index(&self, table: &Table, name: Option<&str>) -> Result<usize, RequestError> {
        if self.shared.names == NamePolicy::Any {
            return Ok(0);
        }
        let names = || {
            let names: Vec<&str> = table.slots.iter().map(|slot| &*slot.entry.name).collect();
            names.join(", ")
        };
        let Some(name) = name else {
            // A server that has loaded one model answers with it.
            let mut loaded = (0..table.slots.len())
                .filter(|&index| matches!(table.slots[index].state, SlotState::Loaded(_)));
            return match (loaded.next(), loaded.next()) {
                (Some(only), None) => Ok(only),
                _ => Err(RequestError::invalid(
                    "model",
                    format!("the request names no model: use one of {}", names()),
                )),
            };
        };
        let found = table.slots.iter().position(|slot| slot.entry.name == name);
        found.ok_or_else(|| RequestError {
            kind: ErrorKind::NotFound,
            message: format!("no model {name:?}: use one of {}", names()),
            param: Some("model".to_owned()),
        })
    }

    /// Returns all models, in order of their names.
    pub fn list(&self) -> Vec<ListedModel> {
        let table = self.table();
        let listed = table.slots.iter().map(|slot| ListedModel {
            name: slot.entry.name.clone(),
            path: slot.entry.path.display().to_string(),
            bytes: slot.entry.bytes,
            state: match &slot.state {
                SlotState::Unloaded => ModelState::Unloaded,
                SlotState::Loading(progress) => ModelState::Loading {
                    percent: progress.percent(),
                },
                SlotState::Loaded(model) => ModelState::Loaded(Arc::clone(model)),
                SlotState::Failed(reason) => ModelState::Failed(reason.clone()),
            },
        });
        listed.collect()
    }

    /// Returns the loaded models.
    pub fn loaded(&self) -> Vec<Arc<ServedModel>> {
        let table = self.table();
        let loaded = table.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Loaded(model) => Some(Arc::clone(model)),
            SlotState::Unloaded | SlotState::Loading(_) | SlotState::Failed(_) => None,
        });
        loaded.collect()
    }

    /// Checks that the server can answer requests.
    ///
    /// # Errors
    /// Returns an error if the only model is being loaded, or if the device of a model has failed.
    pub fn health(&self) -> Result<(), RequestError> {
        let table = self.table();
        if table.closed {
            return Err(shutting_down());
        }
        for slot in &table.slots {
            match &slot.state {
                SlotState::Loaded(model) => {
                    if let Some(reason) = model.scheduler.status().lost {
                        return Err(RequestError::new(
                            ErrorKind::Internal,
                            format!("the device has failed: {reason}"),
                        ));
                    }
                }
                SlotState::Loading(progress) if self.shared.names == NamePolicy::Any => {
                    return Err(loading(&slot.entry.name, progress));
                }
                SlotState::Failed(reason) if self.shared.names == NamePolicy::Any => {
                    return Err(RequestError::new(ErrorKind::Internal, reason.clone()));
                }
                SlotState::Unloaded | SlotState::Loading(_) | SlotState::Failed(_) => {}
            }
        }
        Ok(())
    }

    /// Waits until the model that [`load_single`](Models::load_single) loads is loaded.
    ///
    /// # Errors
    /// Returns the reason if it cannot be loaded.
    pub async fn ready(&self) -> Result<Arc<ServedModel>, String> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            match self.table().slots.first().map(|slot| &slot.state) {
                Some(SlotState::Loaded(model)) => return Ok(Arc::clone(model)),
                Some(SlotState::Failed(reason)) => return Err(reason.clone()),
                Some(SlotState::Loading(_)) => {}
                Some(SlotState::Unloaded) | None => {
                    return Err("no model is being loaded".to_owned());
                }
            }
            if changes.changed().await.is_err() {
                return Err("the registry has ended".to_owned());
            }
        }
    }

    /// Refuses new requests and lets the running ones of all models end for at most `grace`.
    pub async fn shut_down(&self, grace: Duration) {
        self.table().closed = true;
        let ending = self.loaded().into_iter().map(|model| {
            let ended = model.scheduler.shut_down(grace);
            tokio::spawn(ended)
        });
        for ended in ending.collect::<Vec<_>>() {
            if let Err(error) = ended.await {
                tracing::error!(%error, "a scheduler did not end");
            }
        }
    }

    /// Starts the thread that loads a model.
    fn start_loading(&self, table: &mut Table, index: usize) -> Arc<LoadProgress> {
        let progress = Arc::new(LoadProgress::default());
        let slot = &mut table.slots[index];
        let Some(loader) = self.shared.loader.clone() else {
            slot.state = SlotState::Failed("the model was unloaded".to_owned());
            return progress;
        };
        slot.state = SlotState::Loading(Arc::clone(&progress));
        let job = LoadJob {
            models: self.clone(),
            loader,
            entry: slot.entry.clone(),
            progress: Arc::clone(&progress),
            index,
        };
        let thread = std::thread::Builder::new().name("load model".to_owned());
        if let Err(error) = thread.spawn(move || job.run()) {
            slot.state = SlotState::Failed(format!("no thread to load the model: {error}"));
        }
        progress
    }

    /// Removes the model that was used least recently from the table, but not the one at `except`.
    /// A model without requests goes before a busy one.
    fn take_least_recent(&self, except: usize) -> Option<Arc<ServedModel>> {
        let mut table = self.table();
        let loaded =
            table.slots.iter_mut().enumerate().filter(|(index, slot)| {
                *index != except && matches!(slot.state, SlotState::Loaded(_))
            });
        let (_, slot) = loaded.min_by_key(|(_, slot)| (is_busy(&slot.state), slot.used))?;
        match std::mem::replace(&mut slot.state, SlotState::Unloaded) {
            SlotState::Loaded(model) => Some(model),
            other @ (SlotState::Unloaded | SlotState::Loading(_) | SlotState::Failed(_)) => {
                slot.state = other;
                None
            }
        }
    }

    fn set(&self, index: usize, state: SlotState) {
        self.table().slots[index].state = state;
        self.shared.changes.send_modify(|changes| *changes += 1);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code panics while it has the lock, and the table is valid after every statement.
        self.shared
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn unloaded(entry: ModelEntry) -> Slot {
        Slot {
            entry,
            state: SlotState::Unloaded,
            used: 0,
        }
    }
}

fn is_busy(state: &SlotState) -> bool {
    match state {
        SlotState::Loaded(model) => {
            let status = model.scheduler.status();
            !status.sequences.is_empty() || status.waiting > 0
        }
        SlotState::Unloaded | SlotState::Loading(_) | SlotState::Failed(_) => false,
    }
}

fn shutting_down() -> RequestError {
    RequestError::new(ErrorKind::Unavailable, "the server is shutting down")
}

fn loading(name: &str, progress: &LoadProgress) -> RequestError {
    RequestError::new(
        ErrorKind::Unavailable,
        format!("Loading model {name}: {} %", progress.percent()),
    )
}

/// The work of the thread that loads a model.
struct LoadJob {
    models: Models,
    loader: Arc<dyn ModelLoader>,
    entry: ModelEntry,
    progress: Arc<LoadProgress>,
    index: usize,
}

impl LoadJob {
    fn run(self) {
        // A panic must not leave the model in the state of loading, in which it would stay.
        let loaded = catch_unwind(AssertUnwindSafe(|| self.load()));
        let state = match loaded {
            Ok(Ok(model)) => {
                tracing::info!(model = self.entry.name, "loaded");
                SlotState::Loaded(Arc::new(model))
            }
            Ok(Err(error)) => {
                tracing::error!(model = self.entry.name, %error, "not loaded");
                SlotState::Failed(error.to_string())
            }
            Err(_) => SlotState::Failed("the code that loads the model has panicked".to_owned()),
        };
        self.models.set(self.index, state);
    }

    /// Loads the model, and unloads others while there is too little memory.
    fn load(&self) -> Result<ServedModel, LoadError> {
        if let Some(most) = self.models.shared.options.loaded {
            while self.models.loaded().len() >= most.max(1) {
                if !self.unload_one() {
                    break;
                }
            }
        }
        loop {
            match self.loader.load(&self.entry, &self.progress) {
                Err(LoadError::Memory(reason)) => {
                    if !self.unload_one() {
                        return Err(LoadError::Memory(reason));
                    }
                }
                other => return other,
            }
        }
    }

    /// Unloads the model that was used least recently. Returns false if no other one is loaded.
    fn unload_one(&self) -> bool {
        let Some(model) = self.models.take_least_recent(self.index) else {
            return false;
        };
        tracing::info!(
            model = model.name,
            reason = format!("memory for {}", self.entry.name),
            "unloading"
        );
        let ended = model.scheduler.shut_down(self.models.shared.options.grace);
        // The memory is free when the scheduler's thread has dropped its engine.
        drop(model);
        let waited = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map(|runtime| runtime.block_on(ended));
        if let Err(error) = waited {
            tracing::error!(%error, "no runtime to wait for the end of a scheduler");
        }
        true
    }
}
