//! The families of models, the tensors of a layer, and the outline that both give a model.

pub(crate) mod family;
pub(crate) mod layers;
pub(crate) mod outline;
pub(crate) mod roles;
pub mod shape;
