//! The models that a server has, and their state.

mod opened;
mod registry;
mod served;

pub use opened::OpenedModel;
pub use registry::Models;
pub use served::{ModelDescription, ServedModel};
