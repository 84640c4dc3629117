//! GGUF files: the directory, its values, and a writer.

pub(crate) mod fault;
pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod kind;
pub(crate) mod reader;
pub(crate) mod split;
pub(crate) mod value;
pub mod writer;

pub use crate::format::tensor_type::{TENSOR_TYPES, TensorType};
pub use fault::Fault;
pub use file::{ALIGNMENT, Directory, Gguf, Tensor};
pub use value::{Array, Value};
