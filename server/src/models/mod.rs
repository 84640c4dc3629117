//! The models that a server has, and their state.

mod adapters;
mod device;
mod folder;
mod loader;
mod opened;
mod overrides;
mod registry;
mod scripted;
mod served;

pub(crate) use adapters::forbidden;
pub use adapters::{AdapterEntry, AdapterLease, AdapterOptions, AdapterTable, ServedAdapter};
pub use device::{
    CacheFolder, DeviceLoader, DeviceOptions, DraftOptions, DraftOrigin, OpenContext, Repetition,
};
pub use folder::{is_model_folder, models_in};
pub use loader::{LoadError, LoadProgress, ModelEntry, ModelLoader};
pub use opened::OpenedModel;
pub(crate) use overrides::TEMPLATE_INPUTS;
pub use overrides::{LoadedTemplate, RequestOverrides};
pub use registry::{ListedModel, ModelState, Models, RegistryOptions};
pub use scripted::{ScriptedLoader, ScriptedSizes};
pub use served::{ModelDescription, RequestDefaults, ServedModel};
