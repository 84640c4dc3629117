//! The model families as data: each is one row, an [`Architecture`].
//!
//! Nothing else names a family. The layers that a family makes are in
//! [`layers`](crate::architecture::layers), and the tensors of a layer in
//! [`roles`](crate::architecture::roles).

use crate::layer::feed_forward::GateActivation;
use crate::layer::rope_pairing::RopePairing;

/// The factor that embeddings are multiplied by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EmbeddingScaling {
    /// No factor.
    One,
    /// The square root of the row length, in `f32`.
    RootOfLength,
}

/// The settings in which the forward pass of a model family differs from Llama.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the metadata keys.
    pub name: &'static str,
    /// The dimensions of a head that form a rotary pair.
    pub pairing: RopePairing,
    /// Whether Q, K and V have biases.
    pub biases: bool,
    /// Whether each head of Q and K passes an RMSNorm before it is rotated.
    pub head_norms: bool,
    /// Whether the outputs of attention and of the feed-forward pass an RMSNorm before they are
    /// added to the residual stream.
    pub norms_after: bool,
    /// The activation function of the feed-forward.
    pub activation: GateActivation,
    /// The factor of the embeddings.
    pub embedding_scale: EmbeddingScaling,
    /// The layers that attend to a sliding window.
    pub windows: Windows,
    /// The number of layers of the model whose attention scores are multiplied by `1 / sqrt(hidden
    /// / heads)` instead of `1 / sqrt(head_dim)`.
    pub scores_by_hidden: Option<u32>,
    /// Whether the tensors `rope_factors_long.weight` and `rope_factors_short.weight` may divide
    /// the rotary frequencies.
    pub long_factors: bool,
    /// The matrices whose rows are stored one after the other in one tensor of a file. Each entry
    /// has the name of the tensor, and the names that its matrices have as separate tensors.
    pub fused: &'static [(&'static str, &'static [&'static str])],
}

/// The layers that attend to a sliding window of the latest positions instead of all positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Windows {
    /// No layer has a window. A file with a window is rejected.
    None,
    /// Every layer has a window, if the file has one.
    Every,
    /// All layers but each `period`-th have a window, which the file must have. They have separate
    /// rotary frequencies.
    Local {
        /// The distance between layers without a window.
        period: u32,
        /// The base of the frequencies in the layers with a window, which are not scaled.
        rope_base: f64,
    },
}

impl Architecture {
    /// Returns the length of a head in configuration files that leave it out, or `None` if it
    /// follows from the length of the residual stream. The family with head norms has 128.
    pub(crate) fn default_head_dim(&self) -> Option<u32> {
        self.head_norms.then_some(128)
    }

    /// Llama. GGUF files permute the rows of Q and K so that a rotary pair is two neighboring rows.
    pub const LLAMA: &Architecture = &Architecture {
        name: "llama",
        pairing: RopePairing::Interleaved,
        biases: false,
        head_norms: false,
        norms_after: false,
        activation: GateActivation::Silu,
        embedding_scale: EmbeddingScaling::One,
        windows: Windows::None,
        scores_by_hidden: None,
        long_factors: false,
        fused: &[],
    };

    /// Llama with the rows of Q and K in their original order: a rotary pair is an element of a
    /// head's first half and one of its second half.
    pub const LLAMA_IN_HALVES: &Architecture = &Architecture {
        pairing: RopePairing::HalfSplit,
        ..*Architecture::LLAMA
    };

    /// Qwen 2 and Qwen 2.5.
    pub const QWEN2: &Architecture = &Architecture {
        name: "qwen2",
        pairing: RopePairing::HalfSplit,
        biases: true,
        ..*Architecture::LLAMA
    };

    /// Qwen 3.
    pub const QWEN3: &Architecture = &Architecture {
        name: "qwen3",
        pairing: RopePairing::HalfSplit,
        head_norms: true,
        ..*Architecture::LLAMA
    };

    /// Gemma 3, text only. The converter has added 1 to the weights of the norms.
    ///
    /// The factor of the embeddings is rounded to F32, as in llama.cpp. The `transformers` library
    /// rounds it to the format of the weights. A model with 62 layers is the 27B model.
    pub const GEMMA3: &Architecture = &Architecture {
        name: "gemma3",
        pairing: RopePairing::HalfSplit,
        head_norms: true,
        norms_after: true,
        activation: GateActivation::GeluTanh,
        embedding_scale: EmbeddingScaling::RootOfLength,
        windows: Windows::Local {
            period: 6,
            rope_base: 10_000.0,
        },
        scores_by_hidden: Some(62),
        ..*Architecture::LLAMA
    };

    /// Phi 3, 3.5 and 4. A window in the file applies to every layer, as in the `transformers`
    /// library. llama.cpp ignores it (`load_arch_hparams` in `models/phi3.cpp`), so its logits
    /// differ beyond the window.
    pub const PHI3: &Architecture = &Architecture {
        name: "phi3",
        pairing: RopePairing::HalfSplit,
        windows: Windows::Every,
        long_factors: true,
        fused: &[
            (
                "attn_qkv.weight",
                &["attn_q.weight", "attn_k.weight", "attn_v.weight"],
            ),
            ("ffn_up.weight", &["ffn_gate.weight", "ffn_up.weight"]),
        ],
        ..*Architecture::LLAMA
    };

    /// All architectures of GGUF files.
    pub const ALL: [&Architecture; 5] = [
        Architecture::LLAMA,
        Architecture::QWEN2,
        Architecture::QWEN3,
        Architecture::GEMMA3,
        Architecture::PHI3,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simple kernels add a bias or norm the heads, but have no path for both.
    #[test]
    fn no_family_has_both_biases_and_head_norms() {
        for family in Architecture::ALL {
            assert!(!(family.biases && family.head_norms), "{}", family.name);
        }
    }
}
