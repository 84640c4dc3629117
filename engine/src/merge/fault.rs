//! Why an adapter is not merged.

use warpwright_kernels::Format;

/// What stands against it, after the name of the model.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Fault {
    #[error(
        "tensor {tensor:?} is {}: rounded to {} again, it could lose what the adapter adds; decode with `run --adapter`, \
         or merge onto the model in F32, F16 or BF16",
        format.name(), format.name()
    )]
    Quantized { tensor: String, format: Format },
    #[error(
        "tensor {tensor:?} is NF4: rounded to NF4 again, it could lose what the adapter adds; decode with `run --adapter`, \
         or merge onto the model in F32, F16 or BF16"
    )]
    Nf4 { tensor: String },
    #[error(
        "weight {index} of tensor {tensor:?} with the adapter is {value}, which {} does not hold; decode with \
         `run --adapter`, or merge onto the model in a wider format",
        format.name()
    )]
    TooLarge {
        tensor: String,
        index: usize,
        value: f64,
        format: Format,
    },
    #[error(
        "A of {projection} in layer {layer} times {by} is not finite in F32, as llama.cpp reads it"
    )]
    Factor {
        layer: usize,
        projection: &'static str,
        by: f64,
    },
}
