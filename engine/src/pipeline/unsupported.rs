//! The reasons why the pipeline does not run a model on a device, or runs it without overlap.

use warpwright_model::WeightFormat;

use super::gemv_kind::GemvKind;

/// A reason why the pipeline does not run a model on a device, or runs it without overlap.
/// `Display` writes it as a sentence.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
#[non_exhaustive]
pub enum Unsupported {
    #[error("requested")]
    Requested,
    #[error("compute capability {}.{} is below {needed}.0", found.0, found.1)]
    Capability { found: (u32, u32), needed: u32 },
    #[error("{what} {found} is not a multiple of {multiple}")]
    Multiple {
        what: &'static str,
        found: u32,
        multiple: u32,
    },
    #[error("head_dim {found} is above {max}")]
    HeadDim { found: u32, max: u32 },
    #[error("{found} query heads share a KV head, at most {max} are supported")]
    Group { found: u32, max: u32 },
    #[error(
        "partial rotary embedding (rope_dim {rope_dim} of head_dim {head_dim}) is not supported"
    )]
    PartialRope { rope_dim: u32, head_dim: u32 },
    #[error("two rotary bases without head norms are not supported")]
    TwoRopes,
    #[error("LayerNorm is not supported")]
    LayerNorm,
    #[error(
        "layers that norm only the outputs of attention and the feed-forward are not supported"
    )]
    OutputNorms,
    #[error("attention and feed-forward with the same input are not supported")]
    ParallelBlock,
    #[error("norms over all heads of queries and keys are not supported")]
    ProjectionNorms,
    #[error("soft caps are not supported")]
    SoftCaps,
    #[error("attention sinks are not supported for several tokens at once")]
    Sinks,
    #[error(
        "a bias of the output projection is not supported with an adapter, with a norm after it, or \
         for several tokens at once"
    )]
    OutputBias,
    #[error("a feed-forward without a gate is not supported")]
    PlainFeedForward,
    #[error("the clamped SwiGLU is supported only in mixtures of experts")]
    ClampedSwiglu,
    #[error("the pipeline has kernels for one token at a time of a mixture of experts")]
    Experts,
    #[error("experts that every token passes (shared experts) are not supported")]
    SharedExpert,
    #[error("biases of experts are not supported for several tokens at once")]
    ExpertBiases,
    #[error("mixtures of experts whose output is normed are not supported")]
    NormedExperts,
    #[error("{tensor} is {}, which has no tiled layout", format.name())]
    Layout {
        tensor: String,
        format: WeightFormat,
    },
    #[error("{tensor} has rows of {len}, not a multiple of {multiple}")]
    RowLength {
        tensor: String,
        len: u32,
        multiple: u32,
    },
    #[error("{} is {} and {} is {}: {why}", tensors[0].0, tensors[0].1.name(), tensors[1].0, tensors[1].1.name())]
    Mixed {
        tensors: [(String, WeightFormat); 2],
        why: &'static str,
    },
    #[error("{} with rows of {n} does not fit {shared} bytes of shared memory", spelled(*product))]
    SharedMemory {
        product: GemvKind,
        n: u32,
        shared: u32,
    },
}

fn spelled(product: GemvKind) -> &'static str {
    match product {
        GemvKind::Qkv => "Q, K and V",
        GemvKind::O => "the output",
        GemvKind::GateUp => "gate and up",
        GemvKind::Down => "the down projection",
        GemvKind::Head => "the LM head",
    }
}
