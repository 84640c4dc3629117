//! The reasons why an adapter cannot be merged.

use crate::format::weight_format::WeightFormat;

/// A reason why an adapter cannot be merged. The message follows the name of the model.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum MergeFault {
    #[error(
        "tensor {tensor:?} is {}: the adapter could be lost when the sum is rounded to {}. Decode with `run --adapter`, or \
         merge into the model in F32, F16 or BF16",
        format.name(), format.name()
    )]
    Quantized {
        tensor: String,
        format: WeightFormat,
    },
    #[error(
        "tensor {tensor:?} is NF4: the adapter could be lost when the sum is rounded to NF4. Decode with `run --adapter`, or \
         merge into the model in F32, F16 or BF16"
    )]
    Nf4 { tensor: String },
    #[error(
        "weight {index} of tensor {tensor:?} with the adapter is {value}, which is out of range for {}. Decode with \
         `run --adapter`, or merge into the model in a wider format",
        format.name()
    )]
    TooLarge {
        tensor: String,
        index: usize,
        value: f64,
        format: WeightFormat,
    },
    #[error(
        "the model is split into {files} files: merge these first with llama.cpp's `llama-gguf-split --merge FIRST-PART \
         OUT.gguf`"
    )]
    Split { files: usize },
    #[error(
        "A of {projection} in layer {layer} times {by} is not finite in F32, as llama.cpp reads it"
    )]
    Factor {
        layer: usize,
        projection: &'static str,
        by: f64,
    },
}
