//! Errors about model folders.

/// An error in a model folder or in one of its files.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Fault {
    #[error(
        "it has no config.json; a model is a .gguf file, or a folder with config.json and safetensors"
    )]
    NoConfig,
    #[error(
        "it has neither model.safetensors nor model.safetensors.index.json{}",
        if *.pickle { "; weights of PyTorch (.bin) are Python pickles: convert them to safetensors" } else { "" }
    )]
    NoWeights { pickle: bool },
    #[error("it is no JSON: {0}")]
    Json(String),
    #[error("it {0}")]
    Keys(String),
    #[error("it is no JSON object")]
    NotObject,
    #[error("{0}")]
    Safetensors(String),
    #[error("it has no \"weight_map\", which says which file each tensor is in")]
    NoWeightMap,
    #[error("{tensor:?} is in {file:?}; a file of the same folder is expected")]
    ShardName { tensor: String, file: String },
    #[error(
        "the file {file:?} is missing, which model.safetensors.index.json names: download the rest of the folder"
    )]
    NoShard { file: String },
    #[error("tensor {tensor:?} is not in {file:?}, where model.safetensors.index.json has it")]
    NotInShard { tensor: String, file: String },
    #[error("tensor {tensor:?} is in {first:?} and in {second:?}")]
    Twice {
        tensor: String,
        first: String,
        second: String,
    },
    #[error("expert {expert} of {name:?} is missing, but later experts are there")]
    NoExpert { name: String, expert: usize },
    #[error(
        "tensors {first:?} and {second:?} differ in shape or number format, but the matrices of all experts of a layer \
         must be alike"
    )]
    UnlikeExperts { first: String, second: String },
    #[error("tensor {tensor:?} {problem}")]
    FourBit { tensor: String, problem: String },
    #[error("it is of {found} bytes, which is more than the {most} that are read")]
    Long { found: u64, most: u64 },
}
