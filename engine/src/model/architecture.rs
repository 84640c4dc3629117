//! The model families as data: each is one row, an [`Architecture`].
//!
//! Nothing else in the engine names a family. The tensors of a block are in [`roles`](crate::model::roles).

use warpwright_kernels::{Activation, EmbeddingScale, Pairing};

/// What distinguishes the forward pass of a model family from that of Llama.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub name: &'static str,
    /// Which dimensions of a head are a rotary pair.
    pub pairing: Pairing,
    /// Whether Q, K and V have biases.
    pub biases: bool,
    /// Whether each head of Q and K passes an RMSNorm before it is rotated.
    pub head_norms: bool,
    /// Whether what attention and the feed-forward give passes an RMSNorm before it is added to the residual stream.
    pub norms_after: bool,
    /// The activation function of the feed-forward.
    pub activation: Activation,
    /// What embeddings are multiplied by.
    pub embedding_scale: EmbeddingScale,
    /// Which layers attend to a window of the latest positions.
    pub windows: Windows,
    /// The number of layers of a model whose scores are multiplied by `1 / sqrt(hidden / heads)` and not by
    /// `1 / sqrt(head_dim)`.
    pub scores_by_hidden: Option<u32>,
    /// Whether `rope_factors_long.weight` and `rope_factors_short.weight` may divide the rotary frequencies.
    pub long_factors: bool,
    /// The matrices whose rows stand one after the other in one tensor of a file: the tensor, and the names that they
    /// have where each is a tensor of its own.
    pub fused: &'static [(&'static str, &'static [&'static str])],
}

/// Which layers attend to a window of the latest positions, and not to all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Windows {
    /// None. A file that has a window is refused.
    None,
    /// All, if a file has a window.
    Every,
    /// All but each `period`-th: a file has a window. Those with a window have rotary frequencies of their own.
    Local {
        /// Layers from one without a window to the next.
        period: u32,
        /// Base of the frequencies of the others; nothing scales them.
        rope_base: f64,
    },
}

impl Architecture {
    /// Llama. GGUF permutes the rows of Q and K so that a rotary pair is two neighbours.
    pub const LLAMA: &Architecture = &Architecture {
        name: "llama",
        pairing: Pairing::Interleaved,
        biases: false,
        head_norms: false,
        norms_after: false,
        activation: Activation::Silu,
        embedding_scale: EmbeddingScale::One,
        windows: Windows::None,
        scores_by_hidden: None,
        long_factors: false,
        fused: &[],
    };

    /// Llama with the rows of Q and K as its makers have them: a rotary pair is an element of a head's first half and one
    /// of its second.
    pub const LLAMA_IN_HALVES: &Architecture = &Architecture {
        pairing: Pairing::HalfSplit,
        ..*Architecture::LLAMA
    };

    /// Qwen 2 and 2.5.
    pub const QWEN2: &Architecture = &Architecture {
        name: "qwen2",
        pairing: Pairing::HalfSplit,
        biases: true,
        ..*Architecture::LLAMA
    };

    /// Qwen 3.
    pub const QWEN3: &Architecture = &Architecture {
        name: "qwen3",
        pairing: Pairing::HalfSplit,
        head_norms: true,
        ..*Architecture::LLAMA
    };

    /// Gemma 3, text only. The converter has added 1 to the weights of the norms. The factor of the embeddings is
    /// rounded to F32, as llama.cpp does; transformers rounds it to the format of the weights. A model of 62 layers is
    /// the one of 27 billion weights.
    pub const GEMMA3: &Architecture = &Architecture {
        name: "gemma3",
        pairing: Pairing::HalfSplit,
        head_norms: true,
        norms_after: true,
        activation: Activation::GeluTanh,
        embedding_scale: EmbeddingScale::RootOfLength,
        windows: Windows::Local {
            period: 6,
            rope_base: 10_000.0,
        },
        scores_by_hidden: Some(62),
        ..*Architecture::LLAMA
    };

    /// Phi 3, 3.5 and 4. A file's window holds in every layer, as in transformers; llama.cpp ignores it
    /// (`load_arch_hparams` of `models/phi3.cpp`), which gives other logits beyond the window.
    pub const PHI3: &Architecture = &Architecture {
        name: "phi3",
        pairing: Pairing::HalfSplit,
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

    /// All that GGUF files have.
    pub const ALL: [&Architecture; 5] = [
        Architecture::LLAMA,
        Architecture::QWEN2,
        Architecture::QWEN3,
        Architecture::GEMMA3,
        Architecture::PHI3,
    ];
}
