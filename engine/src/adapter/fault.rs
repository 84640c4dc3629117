//! What can be wrong with an adapter's folder.

use crate::adapter::names::{CONFIG, PROJECTIONS, TENSORS};

/// What is wrong, after the name of the file or folder.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Fault {
    #[error("it is no folder; an adapter is a folder with {CONFIG} and {TENSORS}")]
    NoFolder,
    #[error("it has no {0}; an adapter is a folder with {CONFIG} and {TENSORS}")]
    NoFile(&'static str),
    #[error(
        "it has its tensors as a pickle, which could run programs; save the adapter with PEFT's \
         safe_serialization=True"
    )]
    Pickle,
    #[error("it is no JSON: {0}")]
    Json(String),
    #[error("it is no JSON object")]
    NoObject,
    #[error("it has no key {0:?}")]
    MissingKey(&'static str),
    #[error("{key:?} is {found}, must be {wanted}")]
    Value {
        key: String,
        found: String,
        wanted: String,
    },
    #[error("{key:?} is {found}: {feature} is not supported; only {instead}")]
    Unsupported {
        key: String,
        found: String,
        feature: &'static str,
        instead: &'static str,
    },
    #[error("{key:?} is {found}: the key is unknown, and it is not switched off")]
    UnknownKey { key: String, found: String },
    #[error(
        "{key:?} has the pattern {pattern:?}; only names of modules are supported, such as \"q_proj\""
    )]
    Pattern { key: &'static str, pattern: String },
    #[error("{key:?} has several values for {module}: {first} and {second}")]
    TwoValues {
        key: &'static str,
        module: String,
        first: f64,
        second: f64,
    },
    #[error("\"target_modules\" has {target:?}; only {} can have an adapter", PROJECTIONS.join(", "))]
    Target { target: String },
    #[error(
        "tensor {name:?} belongs to a module that \"target_modules\" of {CONFIG} does not name"
    )]
    Untargeted { name: String },
    #[error(
        "tensor {name:?} belongs to a module that \"layers_to_transform\" or \"exclude_modules\" of {CONFIG} leaves out"
    )]
    LeftOut { name: String },
    #[error("it has no tensor of {target:?}, which \"target_modules\" of {CONFIG} names")]
    NoTensors { target: String },
    #[error(
        "\"init_lora_weights\" is off, so PEFT would draw the matrices of {module} at random: the settings name it, and \
         the folder has none. Name the layers that it has in \"layers_to_transform\""
    )]
    Random { module: String },
    #[error("it is no safetensors file: {0}")]
    Safetensors(String),
    #[error("it has no tensors")]
    Empty,
    #[error(
        "tensor {name:?} is none that an adapter of this model has: lora_A and lora_B of {}",
        PROJECTIONS.join(", ")
    )]
    Stray { name: String },
    #[error("tensor {name:?} is of layer {layer}; the model has layers 0 to {last}")]
    Layer {
        name: String,
        layer: usize,
        last: usize,
    },
    #[error("it has {there:?} without {missing:?}")]
    Half { there: String, missing: String },
    #[error("tensor {name:?} is {found}, must be F32, F16 or BF16")]
    Type { name: String, found: String },
    #[error(
        "tensor {name:?} is {found:?}, must be {wanted:?} for this model and the rank in {CONFIG}"
    )]
    Shape {
        name: String,
        found: Vec<usize>,
        wanted: [usize; 2],
    },
    #[error(
        "number {index} of tensor {name:?} is {value}, by the scale {scale}: not finite in f32"
    )]
    NotFinite {
        name: String,
        index: usize,
        value: f32,
        scale: f64,
    },
    #[error(
        "adapters of {0} models are not supported: their files have several projections in one matrix"
    )]
    Fused(&'static str),
}
