//! The models that a server has, and their state.

mod registry;
mod served;

pub use registry::Models;
pub use served::{ModelDescription, ServedModel};
