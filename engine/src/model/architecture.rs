//! The model families as data: each is one row, an [`Architecture`].
//!
//! Nothing else in the engine names a family. The tensors of a block are in [`roles`](crate::model::roles).

use warpwright_kernels::Pairing;

/// What distinguishes the forward pass of a model family from that of Llama.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub name: &'static str,
    /// Which dimensions of a head are a rotary pair.
    pub pairing: Pairing,
    /// Whether Q, K and V have biases.
    pub biases: bool,
    /// Whether each head of Q and K passes an RMSNorm before it is rotated.
    pub head_norms: bool,
    /// The matrices whose rows stand one after the other in one tensor of a file: the tensor, and the names that they
    /// have where each is a tensor of its own.
    pub fused: &'static [(&'static str, &'static [&'static str])],
}

impl Architecture {
    /// Llama. GGUF permutes the rows of Q and K so that a rotary pair is two neighbours.
    pub const LLAMA: &Architecture = &Architecture {
        name: "llama",
        pairing: Pairing::Interleaved,
        biases: false,
        head_norms: false,
        fused: &[],
    };

    /// Qwen 2 and 2.5.
    pub const QWEN2: &Architecture =
        &Architecture { name: "qwen2", pairing: Pairing::HalfSplit, biases: true, ..*Architecture::LLAMA };

    /// Qwen 3.
    pub const QWEN3: &Architecture = &Architecture {
        name: "qwen3",
        pairing: Pairing::HalfSplit,
        head_norms: true,
        ..*Architecture::LLAMA
    };

    /// All of them.
    pub const ALL: [&Architecture; 3] = [Architecture::LLAMA, Architecture::QWEN2, Architecture::QWEN3];
}
