//! Translates the terms of model files into the terms of kernels.
//!
//! The crate of models does not depend on the crate of kernels, so each has its own types. A number
//! format has the same type number in both, which is ggml's.

use warpwright_kernels::{Format, Pairing};
use warpwright_model::{RopePairing, WeightFormat};

/// Returns the kernels' format of weights.
pub(crate) fn kernel_format(format: WeightFormat) -> Format {
    Format::from_ggml_type(format.ggml_type()).expect("a test of the engine compares the formats")
}

/// Returns the kernels' pairing of the dimensions of a head.
pub(crate) fn kernel_pairing(pairing: RopePairing) -> Pairing {
    match pairing {
        RopePairing::Interleaved => Pairing::Interleaved,
        RopePairing::HalfSplit => Pairing::HalfSplit,
    }
}

#[cfg(test)]
mod tests {
    use warpwright_kernels::train::{nested, nf4};
    use warpwright_model::nf4 as file;

    /// Files and kernels give the codes the same meaning.
    #[test]
    fn nf4_has_the_same_constants_in_both_crates() {
        assert_eq!(file::VALUES, nf4::VALUES);
        assert_eq!(file::BLOCK, nf4::BLOCK);
        assert_eq!(file::NESTED_BLOCK, nested::BLOCK);
        assert_eq!(file::dynamic_map(), nested::dynamic_map());
    }
}
