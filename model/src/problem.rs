//! Errors about inconsistent metadata or tensors of a model.

/// A problem with the metadata or the tensors of a model.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Problem {
    #[error("key {0:?} is missing")]
    MissingKey(String),
    #[error("key {key:?} is {found}; expected {expected}")]
    Key {
        key: String,
        found: String,
        expected: String,
    },
    #[error("key {key:?} is {found}: {why}")]
    RefusedKey {
        key: String,
        found: String,
        why: &'static str,
    },
    #[error(
        "key {key:?} ({found}) is not known for architecture {architecture}, so the model could run wrongly"
    )]
    UnknownKey {
        key: String,
        found: String,
        architecture: &'static str,
    },
    #[error("architecture {found:?} is not supported; supported: {supported}")]
    Architecture { found: String, supported: String },
    #[error(
        "rope scaling {0:?} is not supported; supported: none, linear, yarn, and per-pair factors in rope_freqs.weight"
    )]
    RopeScaling(String),
    #[error("key {key:?} is {found:?}; supported: {supported}")]
    RopeType {
        key: String,
        found: String,
        supported: String,
    },
    #[error("key \"model_type\" is {found:?}; supported as a folder: {supported}")]
    ModelType { found: String, supported: String },
    #[error("tensor {name:?} is {found}; supported: F32, F16, BF16")]
    Dtype { name: String, found: String },
    #[error(
        "tensor \"lm_head.weight\" is there, and tie_word_embeddings of config.json says that the embedding serves as \
         head; remove the tensor, or set tie_word_embeddings to false to use it"
    )]
    TiedHead,
    #[error("{what} is {found}; supported: {supported}")]
    Size {
        what: &'static str,
        found: u32,
        supported: &'static str,
    },
    #[error("tensor {name:?} of shape {expected:?} is missing")]
    MissingTensor { name: String, expected: Vec<u64> },
    #[error("tensor {name:?} has shape {found:?}; expected {expected:?}")]
    Shape {
        name: String,
        found: Vec<u64>,
        expected: Vec<u64>,
    },
    #[error("tensor {name:?} is {found}; supported: {supported}")]
    Format {
        name: String,
        found: &'static str,
        supported: String,
    },
    #[error(
        "tensor {name:?} is not part of architecture {architecture}, so the model would run wrongly"
    )]
    StrayTensor {
        name: String,
        architecture: &'static str,
    },
    #[error("tensor {name:?} has rows of {len} weights, {format} needs a multiple of {block}")]
    RowLength {
        name: String,
        len: u64,
        format: &'static str,
        block: u64,
    },
    #[error("tensor {name:?} holds {value} at index {index}; expected finite numbers above zero")]
    RopeFactor {
        name: String,
        index: usize,
        value: f32,
    },
}
