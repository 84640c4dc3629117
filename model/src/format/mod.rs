//! The number formats of weights: those of ggml, and NF4.

pub mod nf4;
pub(crate) mod stored_vector;
pub(crate) mod tensor_type;
pub(crate) mod weight_format;
pub(crate) mod wide;
