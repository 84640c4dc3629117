//! The errors in an adapter's directory.

use crate::adapter::names::{CONFIG, PROJECTIONS, TENSORS};

/// An error in an adapter's directory. The message follows the name of the file or directory.
#[derive(thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum AdapterFault {
    #[error("not a directory: an adapter is a directory that contains {CONFIG} and {TENSORS}")]
    NoFolder,
    #[error("contains no {0}: an adapter is a directory that contains {CONFIG} and {TENSORS}")]
    NoFile(&'static str),
    #[error(
        "stores its tensors as a pickle, which can run arbitrary code: save the adapter with PEFT's \
         safe_serialization=True"
    )]
    Pickle,
    #[error("not valid JSON: {0}")]
    Json(String),
    #[error("not a JSON object")]
    NoObject,
    #[error("the key {0:?} is missing")]
    MissingKey(&'static str),
    #[error("{key:?} is {found}, but must be {wanted}")]
    Value {
        key: String,
        found: String,
        wanted: String,
    },
    #[error("{key:?} is {found}: {feature} is not supported, only {instead}")]
    Unsupported {
        key: String,
        found: String,
        feature: &'static str,
        instead: &'static str,
    },
    #[error("{key:?} is {found}: the key is unknown, and must be null, false or empty")]
    UnknownKey { key: String, found: String },
    #[error(
        "{key:?} has the pattern {pattern:?}: only module names such as \"q_proj\" are supported"
    )]
    Pattern { key: &'static str, pattern: String },
    #[error("{key:?} has several values for {module}: {first} and {second}")]
    TwoValues {
        key: &'static str,
        module: String,
        first: f64,
        second: f64,
    },
    #[error("\"target_modules\" has {target:?}: only {} can have an adapter", PROJECTIONS.join(", "))]
    Target { target: String },
    #[error(
        "tensor {name:?} belongs to a module that \"target_modules\" of {CONFIG} does not name"
    )]
    Untargeted { name: String },
    #[error(
        "tensor {name:?} belongs to a module that \"layers_to_transform\" or \"exclude_modules\" of {CONFIG} leaves out"
    )]
    LeftOut { name: String },
    #[error("no tensor of {target:?}, which \"target_modules\" of {CONFIG} names")]
    NoTensors { target: String },
    #[error(
        "\"init_lora_weights\" is off, so PEFT would initialize the matrices of {module} at random: the settings name \
         it, but the directory has none. List the layers that have matrices in \"layers_to_transform\""
    )]
    Random { module: String },
    #[error("not a valid safetensors file: {0}")]
    Safetensors(String),
    #[error("contains no tensors")]
    Empty,
    #[error(
        "unexpected tensor {name:?}: an adapter of this model has lora_A and lora_B of {}",
        PROJECTIONS.join(", ")
    )]
    Stray { name: String },
    #[error("tensor {name:?} belongs to layer {layer}, but the model has layers 0 to {last}")]
    Layer {
        name: String,
        layer: usize,
        last: usize,
    },
    #[error(
        "tensor {name:?} belongs to a dense feed-forward, but layer {layer} of the model has experts: adapters of \
         experts are not supported, adapters of attention are"
    )]
    Experts { name: String, layer: usize },
    #[error("contains {there:?} but not {missing:?}")]
    Half { there: String, missing: String },
    #[error("tensor {name:?} is {found}, but must be F32, F16 or BF16")]
    Type { name: String, found: String },
    #[error(
        "tensor {name:?} is {found:?}, but must be {wanted:?} for this model and the rank in {CONFIG}"
    )]
    Shape {
        name: String,
        found: Vec<usize>,
        wanted: [usize; 2],
    },
    #[error(
        "value {index} of tensor {name:?} is {value}, which is not finite in f32 when multiplied by the scale {scale}"
    )]
    NotFinite {
        name: String,
        index: usize,
        value: f32,
        scale: f64,
    },
    #[error(
        "adapters of {0} models are not supported: their files store several projections in one matrix"
    )]
    Fused(&'static str),
}
