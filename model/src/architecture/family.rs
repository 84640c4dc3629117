//! The model families as data: each is one row, an [`Architecture`].
//!
//! Nothing else names a family. The layers that a family makes are in
//! [`layers`](crate::architecture::layers), and the tensors of a layer in
//! [`roles`](crate::architecture::roles).

use crate::config::rope::YarnBounds;
use crate::layer::attention::HeadNorms;
use crate::layer::description::{NormKind, NormPositions};
use crate::layer::feed_forward::{DenseForm, ExpertWeighting, GateActivation};
use crate::layer::rope_pairing::RopePairing;

/// The factor that embeddings are multiplied by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum EmbeddingScaling {
    /// No factor.
    One,
    /// The square root of the row length, in `f32`.
    RootOfLength,
    /// A factor of the file.
    Factor(f32),
}

/// The settings in which the forward pass of a model family differs from Llama.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the metadata keys.
    pub name: &'static str,
    /// The dimensions of a head that form a rotary pair.
    pub pairing: RopePairing,
    /// The biases of Q, K and V.
    pub biases: FamilyBiases,
    /// The norms of queries and keys before they are rotated.
    pub head_norms: HeadNorms,
    /// The positions of the norms around attention and the feed-forward.
    pub norms: NormPositions,
    /// The kind of all norms but those of queries and keys, which are RMSNorms.
    pub norm: NormKind,
    /// The activation function of the feed-forward.
    pub activation: GateActivation,
    /// The form of dense feed-forwards.
    pub dense: DenseForm,
    /// The mixtures of experts in the files of the family.
    pub experts: FamilyExperts,
    /// Whether the projection of attention's output has a bias.
    pub output_bias: bool,
    /// Whether each head has an attention sink, and the router and the experts have biases.
    pub sinks_and_biases: bool,
    /// The bounds between the pairs that YaRN scales and those that it does not.
    pub yarn_bounds: YarnBounds,
    /// The factor of the embeddings.
    pub embedding_scale: EmbeddingScaling,
    /// The layers that attend to a sliding window, and those that are not rotated.
    pub windows: Windows,
    /// The factors that a file may have for embeddings, residuals, scores and logits.
    pub factors: FileFactors,
    /// Whether a file may bound attention scores and logits by `cap * tanh(x / cap)`.
    pub soft_caps: bool,
    /// The number of layers of the model whose attention scores are multiplied by `1 / sqrt(hidden
    /// / heads)` instead of `1 / sqrt(head_dim)`.
    pub scores_by_hidden: Option<u32>,
    /// Whether the tensors `rope_factors_long.weight` and `rope_factors_short.weight` may divide
    /// the rotary frequencies.
    pub long_factors: bool,
    /// The matrices whose rows are stored one after the other in one tensor of a file. Each entry
    /// has the name of the tensor, and the names that its matrices have as separate tensors.
    pub fused: &'static [(&'static str, &'static [&'static str])],
    /// The modules whose names in GGUF files differ from the usual ones. Each entry has the usual name
    /// of the tensor, and its name in the files of the family.
    pub gguf_modules: &'static [(&'static str, &'static str)],
    /// The modules whose names in folders differ from the usual ones. Each entry has the name of
    /// the module in GGUF files, and its name behind `model.layers.N.` in folders. An entry with the
    /// full name of a tensor, such as `attn_sinks.weight`, has its full name in folders.
    pub folder_modules: &'static [(&'static str, &'static str)],
}

/// The biases of Q, K and V in the files of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyBiases {
    /// No file has biases.
    None,
    /// Every file has biases.
    Always,
    /// A file may have biases.
    IfStored,
}

/// The mixtures of experts in the files of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyExperts {
    /// Every layer is dense. A file with experts is rejected.
    None,
    /// A file with a number of experts has them, and other files are dense.
    IfCounted(ExpertKind),
    /// Every file has experts.
    Always(ExpertKind),
}

/// The settings in which mixtures of experts differ between families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertKind {
    /// The weights of the chosen experts.
    pub weighting: ExpertWeighting,
    /// The key with the width of an expert.
    pub width: ExpertWidth,
    /// The expert that every token passes.
    pub shared: FamilySharedExpert,
}

/// The key of GGUF files with the width of an expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertWidth {
    /// `feed_forward_length`.
    FeedForward,
    /// `expert_feed_forward_length`. Without it, an expert has `feed_forward_length` divided by the
    /// number of chosen experts.
    Own,
}

/// The expert that every token passes, in the files of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilySharedExpert {
    /// No file has one.
    None,
    /// A file with `expert_shared_feed_forward_length` has one without a gate.
    IfSized,
    /// Every file has one with a gate. Without `expert_shared_feed_forward_length`, its width is
    /// `feed_forward_length`.
    Gated,
}

impl FamilyExperts {
    /// Returns the settings of the mixtures of experts, or `None` if no file has experts.
    pub fn kind(&self) -> Option<ExpertKind> {
        match *self {
            FamilyExperts::None => None,
            FamilyExperts::IfCounted(kind) | FamilyExperts::Always(kind) => Some(kind),
        }
    }
}

/// The factors in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFactors {
    /// A file with a factor other than 1 is rejected.
    None,
    /// Factors of embeddings, residuals and scores. Logits are divided by `logit_scale`.
    All,
    /// Logits are multiplied by `logit_scale`, which the file must have.
    Logits,
}

/// The layers that attend to a sliding window of the latest positions instead of all positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Windows {
    /// No layer has a window. A file with a window is rejected.
    None,
    /// Every layer has a window, if the file has one.
    Every,
    /// All layers but each `period`-th have a window.
    Local {
        /// The distance between layers without a window.
        period: u32,
        /// The rotation of the layers with a window, and of the others.
        rope: LocalRope,
        /// The meaning of a file without a window.
        absent: AbsentWindow,
    },
    /// No layer has a window, and each `period`-th layer is not rotated.
    Unrotated {
        /// The distance between layers that are not rotated.
        period: u32,
    },
}

/// The rotary embedding of layers with a window, and of the layers between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalRope {
    /// Layers with a window have this base unless the file has another one, and no scaling.
    Base(f64),
    /// Layers with a window have the base of the other layers, and no scaling.
    Unscaled,
    /// All layers have the same rotation.
    Same,
    /// Layers with a window are rotated, and layers without one are not.
    Only,
}

/// The meaning of a file that has no window, in a family whose files may have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentWindow {
    /// The file is rejected.
    Rejected,
    /// All layers attend to all positions, and all are rotated.
    AllAlike,
}

impl Architecture {
    /// Returns the length of a head in configuration files that leave it out, or `None` if it
    /// follows from the length of the residual stream.
    pub(crate) fn default_head_dim(&self) -> Option<u32> {
        // transformers has this default in `configuration_qwen3.py`, whatever the other sizes are.
        (self == Architecture::QWEN3).then_some(128)
    }

    /// Llama and Mixtral. GGUF files permute the rows of Q and K so that a rotary pair is two neighboring rows.
    pub const LLAMA: &Architecture = &Architecture {
        name: "llama",
        pairing: RopePairing::Interleaved,
        biases: FamilyBiases::None,
        head_norms: HeadNorms::None,
        norms: NormPositions::Before,
        norm: NormKind::Rms,
        activation: GateActivation::Silu,
        dense: DenseForm::Gated,
        experts: FamilyExperts::IfCounted(MIXTRAL_EXPERTS),
        output_bias: false,
        sinks_and_biases: false,
        yarn_bounds: YarnBounds::Whole,
        embedding_scale: EmbeddingScaling::One,
        windows: Windows::None,
        factors: FileFactors::None,
        soft_caps: false,
        scores_by_hidden: None,
        long_factors: false,
        fused: &[],
        gguf_modules: &[],
        folder_modules: &[],
    };

    /// Llama with the rows of Q and K in their original order: a rotary pair is an element of a
    /// head's first half and one of its second half.
    pub const LLAMA_IN_HALVES: &Architecture = &Architecture {
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        ..*Architecture::LLAMA
    };

    /// Qwen 2 and Qwen 2.5.
    pub const QWEN2: &Architecture = &Architecture {
        name: "qwen2",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        biases: FamilyBiases::Always,
        ..*Architecture::LLAMA
    };

    /// Qwen 3.
    pub const QWEN3: &Architecture = &Architecture {
        name: "qwen3",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        head_norms: HeadNorms::QueriesAndKeys,
        ..*Architecture::LLAMA
    };

    /// Gemma 3, text only. The converter has added 1 to the weights of the norms.
    ///
    /// The factor of the embeddings is rounded to F32, as in llama.cpp. The `transformers` library
    /// rounds it to the format of the weights. A model with 62 layers is the 27B model.
    pub const GEMMA3: &Architecture = &Architecture {
        name: "gemma3",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        head_norms: HeadNorms::QueriesAndKeys,
        norms: NormPositions::BeforeAndAfter,
        activation: GateActivation::GeluTanh,
        embedding_scale: EmbeddingScaling::RootOfLength,
        windows: Windows::Local {
            period: 6,
            rope: LocalRope::Base(10_000.0),
            absent: AbsentWindow::Rejected,
        },
        scores_by_hidden: Some(62),
        folder_modules: GEMMA_MODULES,
        ..*Architecture::LLAMA
    };

    /// Phi 3, 3.5 and 4. A window in the file applies to every layer, as in the `transformers`
    /// library. llama.cpp ignores it (`load_arch_hparams` in `models/phi3.cpp`), so its logits
    /// differ beyond the window.
    pub const PHI3: &Architecture = &Architecture {
        name: "phi3",
        experts: FamilyExperts::None,
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
        folder_modules: &[
            ("attn_qkv", "self_attn.qkv_proj"),
            ("ffn_up", "mlp.gate_up_proj"),
        ],
        ..*Architecture::LLAMA
    };

    /// Mistral 7B to Small 3.2, with the rows of Q and K in their original order. Their GGUF files
    /// are in the family `llama`. A window in `config.json` applies to every layer
    /// (`modeling_mistral.py` in transformers).
    pub const MISTRAL_IN_HALVES: &Architecture = &Architecture {
        windows: Windows::Every,
        ..*Architecture::LLAMA_IN_HALVES
    };

    /// Granite 3, and the dense models of Granite 4. GGUF files permute the rows of Q and K like
    /// those of Llama (`GraniteModel` in `conversion/granite.py` and `models/granite.cpp` of
    /// llama.cpp, `modeling_granite.py` in transformers).
    pub const GRANITE: &Architecture = &Architecture {
        name: "granite",
        experts: FamilyExperts::None,
        factors: FileFactors::All,
        ..*Architecture::LLAMA
    };

    /// Granite with the rows of Q and K in their original order.
    pub const GRANITE_IN_HALVES: &Architecture = &Architecture {
        pairing: RopePairing::HalfSplit,
        ..*Architecture::GRANITE
    };

    /// The dense models of Granite 4 in folders, which store them as a mixture of experts without
    /// experts: only the shared feed-forward is left (`modeling_granitemoehybrid.py` in
    /// transformers).
    pub const GRANITE_SHARED_IN_HALVES: &Architecture = &Architecture {
        fused: &[("ffn_up.weight", &["ffn_gate.weight", "ffn_up.weight"])],
        folder_modules: &[
            ("ffn_up", "shared_mlp.input_linear"),
            ("ffn_down", "shared_mlp.output_linear"),
        ],
        ..*Architecture::GRANITE_IN_HALVES
    };

    /// SmolLM 3. Each fourth layer is not rotated (`models/smollm3.cpp` of llama.cpp,
    /// `modeling_smollm3.py` in transformers).
    pub const SMOLLM3: &Architecture = &Architecture {
        name: "smollm3",
        experts: FamilyExperts::None,
        windows: Windows::Unrotated { period: 4 },
        ..*Architecture::LLAMA
    };

    /// SmolLM 3 with the rows of Q and K in their original order.
    pub const SMOLLM3_IN_HALVES: &Architecture = &Architecture {
        pairing: RopePairing::HalfSplit,
        ..*Architecture::SMOLLM3
    };

    /// EXAONE 4. In models with a window, layers without one are not rotated
    /// (`models/exaone4.cpp` of llama.cpp, `modeling_exaone4.py` in transformers).
    pub const EXAONE4: &Architecture = &Architecture {
        name: "exaone4",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        head_norms: HeadNorms::QueriesAndKeys,
        norms: NormPositions::After,
        windows: Windows::Local {
            period: 4,
            rope: LocalRope::Only,
            absent: AbsentWindow::AllAlike,
        },
        folder_modules: NORMS_AFTER_MODULES,
        ..*Architecture::LLAMA
    };

    /// OLMo 2 and OLMo 3. Only OLMo 3 has a window, and layers with a window have no rope scaling
    /// (`models/olmo2.cpp` of llama.cpp, `modeling_olmo2.py` and `modeling_olmo3.py` in
    /// transformers).
    pub const OLMO2: &Architecture = &Architecture {
        name: "olmo2",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        head_norms: HeadNorms::Projections,
        norms: NormPositions::After,
        windows: Windows::Local {
            period: 4,
            rope: LocalRope::Unscaled,
            absent: AbsentWindow::AllAlike,
        },
        folder_modules: NORMS_AFTER_MODULES,
        ..*Architecture::LLAMA
    };

    /// Gemma 2. The converter has added 1 to the weights of the norms. A model with 46 layers is
    /// the 27B model (`models/gemma2.cpp` of llama.cpp, `modeling_gemma2.py` in transformers).
    pub const GEMMA2: &Architecture = &Architecture {
        name: "gemma2",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        norms: NormPositions::BeforeAndAfter,
        activation: GateActivation::GeluTanh,
        embedding_scale: EmbeddingScaling::RootOfLength,
        windows: Windows::Local {
            period: 2,
            rope: LocalRope::Same,
            absent: AbsentWindow::Rejected,
        },
        soft_caps: true,
        scores_by_hidden: Some(46),
        folder_modules: GEMMA_MODULES,
        ..*Architecture::LLAMA
    };

    /// GLM-4 of 2025 (0414). Half of each head is rotated, in pairs of neighbors in folders too
    /// (`models/glm4.cpp` of llama.cpp, `modeling_glm4.py` in transformers).
    pub const GLM4: &Architecture = &Architecture {
        name: "glm4",
        experts: FamilyExperts::None,
        biases: FamilyBiases::IfStored,
        norms: NormPositions::BeforeAndAfter,
        fused: &[("ffn_up.weight", &["ffn_gate.weight", "ffn_up.weight"])],
        folder_modules: &[
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("ffn_up", "mlp.gate_up_proj"),
            ("post_ffw_norm", "post_mlp_layernorm"),
        ],
        ..*Architecture::LLAMA
    };

    /// Command R7B. Attention and the feed-forward have the same input, which passes a LayerNorm
    /// without a bias. Layers without a window are not rotated, and the others in pairs of neighbors
    /// in folders too (`models/cohere2.cpp` of llama.cpp, `modeling_cohere2.py` in transformers).
    pub const COHERE2: &Architecture = &Architecture {
        name: "cohere2",
        experts: FamilyExperts::None,
        norms: NormPositions::Shared,
        norm: NormKind::Layer,
        windows: Windows::Local {
            period: 4,
            rope: LocalRope::Only,
            absent: AbsentWindow::Rejected,
        },
        factors: FileFactors::Logits,
        ..*Architecture::LLAMA
    };

    /// Qwen 2 with experts: Qwen 1.5 MoE and Qwen 2 MoE. Their converter has no key for the weights
    /// of the chosen experts, which keep their share of the softmax (`models/qwen2moe.cpp` of
    /// llama.cpp, `modeling_qwen2_moe.py` in transformers).
    pub const QWEN2_MOE: &Architecture = &Architecture {
        name: "qwen2moe",
        experts: FamilyExperts::Always(ExpertKind {
            weighting: ExpertWeighting::Softmax,
            width: ExpertWidth::Own,
            shared: FamilySharedExpert::Gated,
        }),
        ..*Architecture::QWEN2
    };

    /// Qwen 3 with experts. GGUF files have no key for the weights of the chosen experts, which add
    /// up to 1 (`models/qwen3moe.cpp` of llama.cpp, `modeling_qwen3_moe.py` in transformers).
    pub const QWEN3_MOE: &Architecture = &Architecture {
        name: "qwen3moe",
        experts: FamilyExperts::Always(ExpertKind {
            weighting: ExpertWeighting::SoftmaxOfChosen,
            width: ExpertWidth::Own,
            shared: FamilySharedExpert::None,
        }),
        ..*Architecture::QWEN3
    };

    /// OLMoE. The chosen experts keep their share of the softmax (`models/olmoe.cpp` of llama.cpp,
    /// `modeling_olmoe.py` in transformers).
    pub const OLMOE: &Architecture = &Architecture {
        name: "olmoe",
        pairing: RopePairing::HalfSplit,
        head_norms: HeadNorms::Projections,
        experts: FamilyExperts::Always(ExpertKind {
            weighting: ExpertWeighting::Softmax,
            width: ExpertWidth::FeedForward,
            shared: FamilySharedExpert::None,
        }),
        ..*Architecture::LLAMA
    };

    /// Granite 3 with experts, and with an expert that every token passes. GGUF files permute the
    /// rows of Q and K like those of Llama (`models/granite.cpp` of llama.cpp,
    /// `modeling_granitemoe.py` and `modeling_granitemoeshared.py` in transformers).
    pub const GRANITE_MOE: &Architecture = &Architecture {
        name: "granitemoe",
        experts: FamilyExperts::Always(ExpertKind {
            weighting: ExpertWeighting::SoftmaxOfChosen,
            width: ExpertWidth::FeedForward,
            shared: FamilySharedExpert::IfSized,
        }),
        ..*Architecture::GRANITE
    };

    /// Mixtral with the rows of Q and K in their original order. Its GGUF files are in the family
    /// `llama`. A window in `config.json` applies to every layer (`modeling_mixtral.py` in
    /// transformers).
    pub const MIXTRAL_IN_HALVES: &Architecture = &Architecture {
        experts: FamilyExperts::Always(MIXTRAL_EXPERTS),
        folder_modules: &[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.experts.*.w1"),
            ("ffn_up_exps", "block_sparse_moe.experts.*.w3"),
            ("ffn_down_exps", "block_sparse_moe.experts.*.w2"),
        ],
        ..*Architecture::MISTRAL_IN_HALVES
    };

    /// Granite 3 with experts, with the rows of Q and K in their original order.
    pub const GRANITE_MOE_IN_HALVES: &Architecture = &Architecture {
        pairing: RopePairing::HalfSplit,
        fused: &[(
            "ffn_up_shexp.weight",
            &["ffn_gate_shexp.weight", "ffn_up_shexp.weight"],
        )],
        folder_modules: &[
            ("ffn_gate_inp", "block_sparse_moe.router.layer"),
            ("ffn_gate_exps", "block_sparse_moe.input_linear"),
            ("ffn_up_exps", "block_sparse_moe.input_linear"),
            ("ffn_down_exps", "block_sparse_moe.output_linear"),
            ("ffn_up_shexp", "shared_mlp.input_linear"),
            ("ffn_down_shexp", "shared_mlp.output_linear"),
        ],
        ..*Architecture::GRANITE_MOE
    };

    /// gpt-oss. Layers alternate between a window and all positions, each head has an attention sink,
    /// and all projections have biases (`models/openai-moe.cpp` of llama.cpp, `modeling_gpt_oss.py` in
    /// transformers). The bounds of YaRN in GGUF files are not rounded, as in the reference
    /// implementation and in transformers. llama.cpp rounds them, so its frequencies differ slightly.
    /// In folders, the key `truncate` decides.
    pub const GPT_OSS: &Architecture = &Architecture {
        name: "gpt-oss",
        pairing: RopePairing::HalfSplit,
        biases: FamilyBiases::Always,
        activation: GateActivation::ClampedSwiglu,
        experts: FamilyExperts::Always(ExpertKind {
            weighting: ExpertWeighting::SoftmaxOfChosen,
            width: ExpertWidth::Own,
            shared: FamilySharedExpert::None,
        }),
        output_bias: true,
        sinks_and_biases: true,
        yarn_bounds: YarnBounds::Exact,
        windows: Windows::Local {
            period: 2,
            rope: LocalRope::Same,
            absent: AbsentWindow::Rejected,
        },
        gguf_modules: &[("ffn_norm.weight", "post_attention_norm.weight")],
        folder_modules: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("attn_sinks.weight", "self_attn.sinks"),
            ("ffn_gate_inp", "mlp.router"),
            (
                "ffn_gate_exps.weight",
                "mlp.experts.gate_up_proj_blocks (gate)",
            ),
            ("ffn_up_exps.weight", "mlp.experts.gate_up_proj_blocks (up)"),
            ("ffn_down_exps.weight", "mlp.experts.down_proj_blocks"),
            ("ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias (gate)"),
            ("ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias (up)"),
            ("ffn_down_exps.bias", "mlp.experts.down_proj_bias"),
        ],
        ..*Architecture::LLAMA
    };

    /// StarCoder 2. All projections and all norms have biases, and the feed-forward has no gate. A
    /// window in `config.json` applies to every layer (`modeling_starcoder2.py` in transformers).
    /// llama.cpp has no window in this family, so its logits differ beyond the window
    /// (`models/starcoder2.cpp`).
    pub const STARCODER2: &Architecture = &Architecture {
        name: "starcoder2",
        experts: FamilyExperts::None,
        pairing: RopePairing::HalfSplit,
        biases: FamilyBiases::Always,
        output_bias: true,
        norm: NormKind::LayerBiased,
        activation: GateActivation::GeluTanh,
        dense: DenseForm::PlainBiased,
        windows: Windows::Every,
        folder_modules: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..*Architecture::LLAMA
    };

    /// All architectures of GGUF files.
    pub const ALL: [&Architecture; 18] = [
        Architecture::LLAMA,
        Architecture::QWEN2,
        Architecture::QWEN3,
        Architecture::GEMMA3,
        Architecture::PHI3,
        Architecture::GRANITE,
        Architecture::SMOLLM3,
        Architecture::EXAONE4,
        Architecture::OLMO2,
        Architecture::GEMMA2,
        Architecture::GLM4,
        Architecture::COHERE2,
        Architecture::QWEN2_MOE,
        Architecture::QWEN3_MOE,
        Architecture::OLMOE,
        Architecture::GRANITE_MOE,
        Architecture::GPT_OSS,
        Architecture::STARCODER2,
    ];
}

/// The families that are refused by name: the name in GGUF files and in folders, and the reason.
pub(crate) const REFUSED: [(&str, &str); 1] = [(
    "phimoe",
    "its router weights each chosen expert by a softmax over the experts with close logits \
     (SparseMixer), which is not supported",
)];

/// The experts of Mixtral. Its weights add up to 1 (`models/llama.cpp` of llama.cpp,
/// `modeling_mixtral.py` in transformers).
const MIXTRAL_EXPERTS: ExpertKind = ExpertKind {
    weighting: ExpertWeighting::SoftmaxOfChosen,
    width: ExpertWidth::FeedForward,
    shared: FamilySharedExpert::None,
};

/// The names in folders of Gemma.
const GEMMA_MODULES: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// The names in folders of families that norm only the outputs of attention and the feed-forward.
const NORMS_AFTER_MODULES: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The simple kernels add a bias or norm the heads, but have no path for both.
    #[test]
    fn no_family_has_both_biases_and_head_norms() {
        for family in Architecture::ALL {
            let head_norms = family.head_norms != HeadNorms::None;
            let biases = family.biases != FamilyBiases::None;
            assert!(!(biases && head_norms), "{}", family.name);
        }
    }
}
