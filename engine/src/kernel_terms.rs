//! Translates the terms of model files into the terms of kernels.
//!
//! The crate of models does not depend on the crate of kernels, so each has its own types. A number
//! format has the same type number in both, which is ggml's.

use warpwright_kernels::pipeline::lora;
use warpwright_kernels::{
    Activation, Constant, EmbeddingScale, Format, Pairing, RowOrder, Weighting,
};
use warpwright_model::adapter::names::MAX_RANK;
use warpwright_model::layer::{Attention, ExpertWeighting};
use warpwright_model::{EmbeddingScaling, GateActivation, RopePairing, WeightFormat};

/// Returns the kernels' format of weights.
pub(crate) fn kernel_format(format: WeightFormat) -> Format {
    Format::from_ggml_type(format.ggml_type()).expect("a test compares the two lists of formats")
}

/// Returns the kernels' pairing of the dimensions of a head.
pub(crate) fn kernel_pairing(pairing: RopePairing) -> Pairing {
    match pairing {
        RopePairing::Interleaved => Pairing::Interleaved,
        RopePairing::HalfSplit => Pairing::HalfSplit,
    }
}

/// Returns the order in which the rows of queries and keys become tiles, so that the two rows of a
/// rotary pair are in the same tile.
pub(crate) fn rotary_row_order(attention: &Attention) -> RowOrder {
    match attention.pairing {
        RopePairing::Interleaved => RowOrder::interleaved(attention.head_dim),
        RopePairing::HalfSplit => RowOrder::half_split(attention.head_dim),
    }
}

/// Returns the kernels' activation function. The clamped SwiGLU has its own kernel, and the callers of
/// this function refuse it or handle it before.
pub(crate) fn kernel_activation(activation: GateActivation) -> Activation {
    match activation {
        GateActivation::Silu => Activation::Silu,
        GateActivation::GeluTanh => Activation::GeluTanh,
        GateActivation::ClampedSwiglu => unreachable!("only the simple kernels compute it"),
    }
}

/// Returns the kernels' weighting of chosen experts.
pub(crate) fn kernel_weighting(weighting: ExpertWeighting) -> Weighting {
    match weighting {
        ExpertWeighting::Softmax => Weighting::All,
        ExpertWeighting::SoftmaxOfChosen => Weighting::Chosen,
    }
}

/// Returns the kernels' factor of embeddings.
pub(crate) fn kernel_embedding_scale(scaling: EmbeddingScaling) -> EmbeddingScale {
    match scaling {
        EmbeddingScaling::One => EmbeddingScale::One,
        EmbeddingScaling::RootOfLength => EmbeddingScale::RootOfLength,
        EmbeddingScaling::Factor(factor) => EmbeddingScale::Factor(Constant::new(factor)),
    }
}

// An adapter file may have each rank that the kernels compute, and no larger one.
const _: () = assert!(MAX_RANK == lora::MAX_RANK);

#[cfg(test)]
mod tests {
    use super::*;

    /// The two lists have the same formats, with the same names and block sizes.
    #[test]
    fn each_format_has_the_same_blocks_in_both_crates() {
        let described =
            |name: &str, ggml_type, len, bytes| (name.to_owned(), ggml_type, len, bytes);
        let of_model = WeightFormat::ALL
            .map(|f| described(f.name(), f.ggml_type(), f.block_len(), f.block_bytes()));
        let of_kernels =
            Format::ALL.map(|f| described(f.name(), f.ggml_type(), f.block_len(), f.block_bytes()));
        assert_eq!(of_model, of_kernels);
    }
}
