//! The models that a server has, and their state.

mod served;

pub use served::{ModelDescription, ServedModel};
