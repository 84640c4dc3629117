//! The hyperparameters of a model, the keys of files that they are read from, and the configuration
//! of the forward pass that follows from them.

pub(crate) mod forward;
pub(crate) mod gguf_keys;
pub(crate) mod hyperparameters;
pub(crate) mod json;
pub(crate) mod known_keys;
pub(crate) mod local_layers;
pub mod rope;

pub use crate::architecture::family::{
    AbsentWindow, Architecture, ExpertKind, ExpertWidth, FamilyBiases, FamilyExperts,
    FamilySharedExpert, FileFactors, LocalRope, Windows,
};
pub use crate::problem::Problem;
pub use forward::Config;
pub use hyperparameters::{ExpertLayers, Factors, Hyperparameters, Local, SoftCaps};
