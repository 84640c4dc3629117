//! The families that are read from folders: one row per `model_type` of `config.json`.
//!
//! A row has the differences between the family's configuration class in transformers and the keys
//! that all families share. Keys and defaults come from `configuration_*.py`, and the names of
//! tensors from `modeling_*.py`.

use serde_json::{Map, Value};

use crate::architecture::family::Architecture;
use crate::config::json::known_keys::ConfigKeyFate::{Harmless, Only, Refused, Used};
use crate::config::json::known_keys::{
    ConfigKeyRow, full_attention, gelu_tanh, off, on, one, zero,
};
use crate::problem::Problem;

/// A family of folders.
#[derive(Debug)]
pub(crate) struct FolderFamily {
    /// The name in `config.json`.
    pub(crate) model_type: &'static str,
    /// The class that writes text.
    pub(crate) class: &'static str,
    pub(crate) architecture: &'static Architecture,
    /// The values of keys that a file may leave out, as a JSON object. The class has these
    /// defaults.
    pub(crate) defaults: &'static str,
    /// The keys that only this family has, or that have another meaning in it.
    pub(crate) keys: &'static [ConfigKeyRow],
    /// The share of each head that is rotated.
    pub(crate) rotated: RotatedShare,
    /// The factor of queries that depends on their position.
    pub(crate) query_factor: QueryFactor,
    /// The weights of norms in the files.
    pub(crate) norm_weights: NormWeights,
    /// The key with the width of the feed-forward.
    pub(crate) feed_forward: &'static str,
    /// The key with the constant of the norms.
    pub(crate) epsilon: &'static str,
    /// The keys of the mixture of experts, in families with experts.
    pub(crate) experts: Option<ExpertKeys>,
}

/// The keys with the mixture of experts of a model. `num_experts_per_tok` is the number of experts
/// per token in all families.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpertKeys {
    /// The names of the number of experts. Versions of transformers write one or the other.
    pub(crate) count: [&'static str; 2],
    /// The number of experts in files without such a key.
    pub(crate) default_count: u32,
    /// The width of an expert.
    pub(crate) width: &'static str,
    /// The weights of the chosen experts.
    pub(crate) weighting: StoredWeighting,
    /// The width of the expert that every token passes, and whether it has a gate. A file without
    /// the key, or with 0, has no such expert.
    pub(crate) shared: Option<SharedExpertKey>,
    /// The layers with experts.
    pub(crate) layers: ExpertLayerKeys,
}

/// The key with the width of the expert that every token passes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedExpertKey {
    pub(crate) width: &'static str,
    pub(crate) gated: bool,
}

/// The weights of the chosen experts in a family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StoredWeighting {
    /// They add up to 1.
    OfChosen,
    /// They add up to 1 if `norm_topk_prob` is true. Otherwise they keep their share of all.
    ByKey,
}

/// The layers with experts in a family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ExpertLayerKeys {
    /// All layers.
    All,
    /// The layers whose number, counted from 1, is a multiple of `decoder_sparse_step`, and whose
    /// index is not in `mlp_only_layers`.
    Sparse,
}

/// The share of each head that is rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RotatedShare {
    /// Whole heads. A file with another share is rejected.
    Whole,
    /// The share in the file, or this one.
    Stored(f64),
}

/// The factor of queries that depends on their position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum QueryFactor {
    /// There is none. A file with `llama_4_scaling_beta` is rejected.
    None,
    /// `1 + llama_4_scaling_beta * ln(1 + floor(position / original_max_position_embeddings))`. It is
    /// 1 in the original context, and no kernel computes it beyond. So the original context is the
    /// context of the model.
    BeyondOriginal,
}

/// The weights of norms in the files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NormWeights {
    /// The weights.
    Stored,
    /// The weights minus 1.
    LessOne,
}

const LLAMA: FolderFamily = FolderFamily {
    model_type: "llama",
    class: "LlamaForCausalLM",
    architecture: Architecture::LLAMA_IN_HALVES,
    defaults: "{}",
    keys: &[],
    rotated: RotatedShare::Whole,
    query_factor: QueryFactor::None,
    norm_weights: NormWeights::Stored,
    feed_forward: "intermediate_size",
    epsilon: "rms_norm_eps",
    experts: None,
};

/// The keys of Qwen 3 with experts.
const QWEN3_MOE: &[ConfigKeyRow] = &[
    ("num_experts", Used, ""),
    ("num_local_experts", Used, ""),
    ("num_experts_per_tok", Used, ""),
    ("moe_intermediate_size", Used, ""),
    ("norm_topk_prob", Used, ""),
    ("decoder_sparse_step", Used, ""),
    ("mlp_only_layers", Used, ""),
    (
        "shared_expert_intermediate_size",
        Only(zero),
        "an expert that every token passes is not supported in this family",
    ),
    (
        "use_qk_norm",
        Only(on),
        "models of this family without norms of queries and keys are not supported",
    ),
    // Left of Qwen 2. Files with biases are refused for their tensors.
    ("qkv_bias", Harmless, ""),
    ("output_router_logits", Harmless, ""),
    ("router_aux_loss_coef", Harmless, ""),
];

/// The keys of Qwen 2 with experts.
const QWEN2_MOE: &[ConfigKeyRow] = &[
    ("num_experts", Used, ""),
    ("num_experts_per_tok", Used, ""),
    ("moe_intermediate_size", Used, ""),
    ("norm_topk_prob", Used, ""),
    ("decoder_sparse_step", Used, ""),
    ("mlp_only_layers", Used, ""),
    ("shared_expert_intermediate_size", Used, ""),
    (
        "qkv_bias",
        Only(on),
        "models of this family without biases are not supported",
    ),
    ("output_router_logits", Harmless, ""),
    ("router_aux_loss_coef", Harmless, ""),
];

/// The keys of Gemma 2 and 3.
const GEMMA: &[ConfigKeyRow] = &[
    (
        "hidden_activation",
        Only(gelu_tanh),
        "another activation than GELU with tanh is not supported in this family",
    ),
    // An older name, which transformers ignores.
    ("hidden_act", Harmless, ""),
    ("query_pre_attn_scalar", Used, ""),
    ("sliding_window", Used, ""),
    ("sliding_window_pattern", Used, ""),
    ("_sliding_window_pattern", Used, ""),
    ("layer_types", Used, ""),
    ("rope_local_base_freq", Used, ""),
    ("attn_logit_softcapping", Used, ""),
    ("final_logit_softcapping", Used, ""),
    (
        "use_bidirectional_attention",
        Only(off),
        "attention to later positions is not supported",
    ),
    ("cache_implementation", Harmless, ""),
    ("mm_tokens_per_image", Harmless, ""),
    ("boi_token_index", Harmless, ""),
    ("eoi_token_index", Harmless, ""),
    ("image_token_index", Harmless, ""),
];

const GRANITE: &[ConfigKeyRow] = &[
    ("embedding_multiplier", Used, ""),
    ("residual_multiplier", Used, ""),
    ("attention_multiplier", Used, ""),
    ("logits_scaling", Used, ""),
];

const GRANITE_MOE: &[ConfigKeyRow] = &[
    ("embedding_multiplier", Used, ""),
    ("residual_multiplier", Used, ""),
    ("attention_multiplier", Used, ""),
    ("logits_scaling", Used, ""),
    ("num_local_experts", Used, ""),
    ("num_experts_per_tok", Used, ""),
    ("shared_intermediate_size", Used, ""),
    ("output_router_logits", Harmless, ""),
    ("router_aux_loss_coef", Harmless, ""),
    // Of training from scratch.
    ("init_method", Harmless, ""),
];

const GRANITE_MOE_DEFAULTS: &str = r#"{"attention_multiplier": 1.0, "num_experts_per_tok": 2}"#;

const GRANITE_EXPERTS: ExpertKeys = ExpertKeys {
    count: ["num_local_experts", "num_local_experts"],
    default_count: 8,
    width: "intermediate_size",
    weighting: StoredWeighting::OfChosen,
    shared: None,
    layers: ExpertLayerKeys::All,
};

/// The families.
#[rustfmt::skip] // one key a line
pub(crate) const FAMILIES: &[FolderFamily] = &[
    LLAMA,
    FolderFamily {
        model_type: "qwen2",
        class: "Qwen2ForCausalLM",
        architecture: Architecture::QWEN2,
        ..LLAMA
    },
    FolderFamily {
        model_type: "qwen3",
        class: "Qwen3ForCausalLM",
        architecture: Architecture::QWEN3,
        ..LLAMA
    },
    FolderFamily {
        model_type: "mistral",
        class: "MistralForCausalLM",
        architecture: Architecture::MISTRAL_IN_HALVES,
        keys: &[("sliding_window", Used, "")],
        ..LLAMA
    },
    // Its factor of queries is not in the family `llama` of GGUF files.
    FolderFamily {
        model_type: "ministral3",
        class: "Ministral3ForCausalLM",
        architecture: Architecture::MISTRAL_IN_HALVES,
        defaults: r#"{"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
                "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}}"#,
        keys: &[("sliding_window", Used, "")],
        query_factor: QueryFactor::BeyondOriginal,
        ..LLAMA
    },
    FolderFamily {
        model_type: "gemma3_text",
        class: "Gemma3ForCausalLM",
        architecture: Architecture::GEMMA3,
        defaults: r#"{"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": true, "rope_theta": 1000000.0, "query_pre_attn_scalar": 256,
            "sliding_window": 4096}"#,
        keys: GEMMA,
        norm_weights: NormWeights::LessOne,
        ..LLAMA
    },
    FolderFamily {
        model_type: "gemma2",
        class: "Gemma2ForCausalLM",
        architecture: Architecture::GEMMA2,
        defaults: r#"{"head_dim": 256, "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        keys: GEMMA,
        norm_weights: NormWeights::LessOne,
        ..LLAMA
    },
    FolderFamily {
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        architecture: Architecture::PHI3,
        keys: &[
            ("sliding_window", Used, ""),
            ("original_max_position_embeddings", Used, ""),
            // The class is part of transformers, which then does not read the code in the folder.
            ("auto_map", Harmless, ""),
            ("lm_head_bias", Only(off), "a bias of the LM head is not supported"),
            ("full_attn_mod", Only(one), "layers without full attention are not supported"),
            ("interpolate_factor", Only(one), "interpolated positions are not supported"),
        ],
        rotated: RotatedShare::Stored(1.0),
        ..LLAMA
    },
    FolderFamily {
        model_type: "granite",
        class: "GraniteForCausalLM",
        architecture: Architecture::GRANITE_IN_HALVES,
        defaults: r#"{"attention_multiplier": 1.0}"#,
        keys: GRANITE,
        ..LLAMA
    },
    FolderFamily {
        model_type: "granitemoehybrid",
        class: "GraniteMoeHybridForCausalLM",
        architecture: Architecture::GRANITE_SHARED_IN_HALVES,
        defaults: r#"{"attention_multiplier": 1.0, "shared_intermediate_size": 1024,
            "num_local_experts": 8, "layer_types": ["mamba"]}"#,
        keys: &[
            ("embedding_multiplier", Used, ""),
            ("residual_multiplier", Used, ""),
            ("attention_multiplier", Used, ""),
            ("logits_scaling", Used, ""),
            ("shared_intermediate_size", Used, ""),
            ("intermediate_size", Harmless, ""),
            ("num_local_experts", Only(zero), "mixtures of experts are not supported in this family"),
            ("position_embedding_type", Only(|value| value == "rope"), "models of this family without rotary embedding are not supported"),
            ("layer_types", Only(full_attention), "layers without attention are not supported"),
            ("normalization_function", Only(|value| value == "rmsnorm"), "another norm than RMSNorm is not supported"),
            // Of experts and of layers without attention, which the rows above refuse.
            ("num_experts_per_tok", Harmless, ""),
            ("output_router_logits", Harmless, ""),
            ("router_aux_loss_coef", Harmless, ""),
            ("mamba_n_heads", Harmless, ""),
            ("mamba_n_groups", Harmless, ""),
            ("mamba_d_state", Harmless, ""),
            ("mamba_d_head", Harmless, ""),
            ("mamba_d_conv", Harmless, ""),
            ("mamba_expand", Harmless, ""),
            ("mamba_chunk_size", Harmless, ""),
            ("mamba_conv_bias", Harmless, ""),
            ("mamba_proj_bias", Harmless, ""),
            ("time_step_limit", Harmless, ""),
            ("time_step_min", Harmless, ""),
            ("time_step_max", Harmless, ""),
            ("init_method", Harmless, ""),
        ],
        feed_forward: "shared_intermediate_size",
        ..LLAMA
    },
    FolderFamily {
        model_type: "qwen2_moe",
        class: "Qwen2MoeForCausalLM",
        architecture: Architecture::QWEN2_MOE,
        defaults: r#"{"num_key_value_heads": 16, "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}"#,
        keys: QWEN2_MOE,
        experts: Some(ExpertKeys {
            count: ["num_experts", "num_experts"],
            default_count: 60,
            width: "moe_intermediate_size",
            weighting: StoredWeighting::ByKey,
            shared: Some(SharedExpertKey { width: "shared_expert_intermediate_size", gated: true }),
            layers: ExpertLayerKeys::Sparse,
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "qwen3_moe",
        class: "Qwen3MoeForCausalLM",
        architecture: Architecture::QWEN3_MOE,
        defaults: r#"{"num_key_value_heads": 4, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768}"#,
        keys: QWEN3_MOE,
        experts: Some(ExpertKeys {
            count: ["num_experts", "num_local_experts"],
            default_count: 128,
            width: "moe_intermediate_size",
            weighting: StoredWeighting::ByKey,
            shared: None,
            layers: ExpertLayerKeys::Sparse,
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "mixtral",
        class: "MixtralForCausalLM",
        architecture: Architecture::MIXTRAL_IN_HALVES,
        defaults: r#"{"num_key_value_heads": 8, "num_experts_per_tok": 2,
            "rope_theta": 1000000.0}"#,
        keys: &[
            ("sliding_window", Used, ""),
            ("num_local_experts", Used, ""),
            ("num_experts", Used, ""),
            ("num_experts_per_tok", Used, ""),
            // Of training.
            ("output_router_logits", Harmless, ""),
            ("router_aux_loss_coef", Harmless, ""),
            ("router_jitter_noise", Harmless, ""),
        ],
        experts: Some(ExpertKeys {
            count: ["num_local_experts", "num_experts"],
            default_count: 8,
            width: "intermediate_size",
            weighting: StoredWeighting::OfChosen,
            shared: None,
            layers: ExpertLayerKeys::All,
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "olmoe",
        class: "OlmoeForCausalLM",
        architecture: Architecture::OLMOE,
        defaults: r#"{"num_experts_per_tok": 8}"#,
        keys: &[
            ("num_experts", Used, ""),
            ("num_local_experts", Used, ""),
            ("num_experts_per_tok", Used, ""),
            ("norm_topk_prob", Used, ""),
            ("clip_qkv", Refused, "clamped queries, keys and values are not supported"),
            ("output_router_logits", Harmless, ""),
            ("router_aux_loss_coef", Harmless, ""),
        ],
        experts: Some(ExpertKeys {
            count: ["num_experts", "num_local_experts"],
            default_count: 64,
            width: "intermediate_size",
            weighting: StoredWeighting::ByKey,
            shared: None,
            layers: ExpertLayerKeys::All,
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "granitemoe",
        class: "GraniteMoeForCausalLM",
        architecture: Architecture::GRANITE_MOE_IN_HALVES,
        defaults: GRANITE_MOE_DEFAULTS,
        keys: GRANITE_MOE,
        experts: Some(GRANITE_EXPERTS),
        ..LLAMA
    },
    FolderFamily {
        model_type: "granitemoeshared",
        class: "GraniteMoeSharedForCausalLM",
        architecture: Architecture::GRANITE_MOE_IN_HALVES,
        defaults: GRANITE_MOE_DEFAULTS,
        keys: GRANITE_MOE,
        experts: Some(ExpertKeys {
            shared: Some(SharedExpertKey { width: "shared_intermediate_size", gated: false }),
            ..GRANITE_EXPERTS
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "gpt_oss",
        class: "GptOssForCausalLM",
        architecture: Architecture::GPT_OSS,
        defaults: r#"{"num_key_value_heads": 8, "head_dim": 64, "num_experts_per_tok": 4,
            "sliding_window": 128, "rope_theta": 150000.0,
            "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}}"#,
        keys: &[
            ("attention_bias", Only(on), "models of this family without biases are not supported"),
            ("swiglu_limit", Only(|value| value.as_f64() == Some(7.0)), "another bound of the gates than 7 is not supported"),
            ("swiglu_alpha", Only(|value| value.as_f64() == Some(1.702)), "another factor in the sigmoid than 1.702 is not supported"),
            ("num_local_experts", Used, ""),
            ("num_experts", Used, ""),
            ("num_experts_per_tok", Used, ""),
            ("sliding_window", Used, ""),
            ("layer_types", Used, ""),
            ("output_router_logits", Harmless, ""),
            ("router_aux_loss_coef", Harmless, ""),
            // Names of the reference implementation, which transformers ignores.
            ("experts_per_token", Harmless, ""),
            ("initial_context_length", Harmless, ""),
        ],
        experts: Some(ExpertKeys {
            count: ["num_local_experts", "num_experts"],
            default_count: 128,
            width: "intermediate_size",
            weighting: StoredWeighting::OfChosen,
            shared: None,
            layers: ExpertLayerKeys::All,
        }),
        ..LLAMA
    },
    FolderFamily {
        model_type: "starcoder2",
        class: "Starcoder2ForCausalLM",
        architecture: Architecture::STARCODER2,
        defaults: r#"{"num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
            "norm_epsilon": 1e-5, "use_bias": true, "tie_word_embeddings": true}"#,
        keys: &[
            ("norm_epsilon", Used, ""),
            ("sliding_window", Used, ""),
            ("use_bias", Only(on), "models of this family without biases are not supported"),
            ("hidden_act", Only(gelu_tanh), "another activation than GELU with tanh is not supported in this family"),
            // Names of the code that was in the folder before transformers had the class.
            ("mlp_type", Only(|value| value == "default"), "another feed-forward is not supported in this family"),
            ("norm_type", Only(|value| value == "layer_norm"), "another norm than LayerNorm is not supported in this family"),
            // Of training.
            ("residual_dropout", Harmless, ""),
            ("embedding_dropout", Harmless, ""),
        ],
        epsilon: "norm_epsilon",
        ..LLAMA
    },
    FolderFamily {
        model_type: "smollm3",
        class: "SmolLM3ForCausalLM",
        architecture: Architecture::SMOLLM3_IN_HALVES,
        defaults: r#"{"num_key_value_heads": 4, "rope_theta": 2000000.0,
            "tie_word_embeddings": true}"#,
        keys: &[
            ("no_rope_layers", Used, ""),
            ("no_rope_layer_interval", Used, ""),
        ],
        ..LLAMA
    },
    FolderFamily {
        model_type: "exaone4",
        class: "Exaone4ForCausalLM",
        architecture: Architecture::EXAONE4,
        defaults: r#"{"sliding_window": 4096}"#,
        keys: &[
            ("sliding_window", Used, ""),
            ("sliding_window_pattern", Used, ""),
            ("layer_types", Used, ""),
        ],
        ..LLAMA
    },
    FolderFamily {
        model_type: "olmo2",
        class: "Olmo2ForCausalLM",
        architecture: Architecture::OLMO2,
        keys: &[("sliding_window", Refused, "attention to a sliding window is not supported in this family")],
        ..LLAMA
    },
    FolderFamily {
        model_type: "olmo3",
        class: "Olmo3ForCausalLM",
        architecture: Architecture::OLMO2,
        defaults: r#"{"rope_theta": 500000.0, "sliding_window": 4096}"#,
        keys: &[
            ("sliding_window", Used, ""),
            ("layer_types", Used, ""),
        ],
        ..LLAMA
    },
    FolderFamily {
        model_type: "glm4",
        class: "Glm4ForCausalLM",
        architecture: Architecture::GLM4,
        defaults: r#"{"num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
            "rms_norm_eps": 1.5625e-7}"#,
        keys: &[("attention_bias", Used, "")],
        rotated: RotatedShare::Stored(0.5),
        ..LLAMA
    },
    FolderFamily {
        model_type: "cohere2",
        class: "Cohere2ForCausalLM",
        architecture: Architecture::COHERE2,
        defaults: r#"{"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "sliding_window": 4096,
            "tie_word_embeddings": true}"#,
        keys: &[
            ("logit_scale", Used, ""),
            ("layer_norm_eps", Used, ""),
            ("sliding_window", Used, ""),
            ("sliding_window_pattern", Used, ""),
            ("_sliding_window_pattern", Used, ""),
            ("layer_types", Used, ""),
            ("rotary_pct", Only(one), "a rotation of a part of each head is not supported in this family"),
            ("position_embedding_type", Only(|value| value == "rope_gptj"), "another position embedding is not supported in this family"),
            ("order_of_interleaved_layers", Only(|value| value == "local_attn_first"), "another order of layers is not supported"),
            ("use_qk_norm", Only(off), "norms of queries and keys are not supported in this family"),
            ("use_gated_activation", Only(on), "a feed-forward without a gate is not supported in this family"),
            ("use_parallel_block", Only(on), "a feed-forward after attention is not supported in this family"),
            ("use_embedding_sharing", Harmless, ""),
            ("use_parallel_embedding", Harmless, ""),
            ("layer_switch", Harmless, ""),
            ("cache_implementation", Harmless, ""),
        ],
        epsilon: "layer_norm_eps",
        ..LLAMA
    },
];

/// A model of text and images, of which only the text is read.
struct NestedFamily {
    model_type: &'static str,
    class: &'static str,
    /// The `model_type` of the text part, in files that leave it out.
    text: &'static str,
}

/// The models of text and images. `text_config` has the keys of a family above.
const NESTED: [NestedFamily; 2] = [
    NestedFamily {
        model_type: "gemma3",
        class: "Gemma3ForConditionalGeneration",
        text: "gemma3_text",
    },
    NestedFamily {
        model_type: "mistral3",
        class: "Mistral3ForConditionalGeneration",
        text: "mistral",
    },
];

/// The keys of a nested configuration that describe the text, if `text_config` leaves them out.
const SHARED: [&str; 5] = [
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "tie_word_embeddings",
    "quantization_config",
];

/// The keys with the parameters of the rotary embedding: the newer name, and the older one.
pub(crate) const ROPE_OBJECTS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// The configuration of the text part of a model.
pub(crate) struct TextConfig {
    /// The keys, without those that only describe images.
    pub(crate) values: Map<String, Value>,
    /// The prefix of the keys in messages.
    pub(crate) prefix: &'static str,
    /// The class that the file must name, if it names one.
    pub(crate) class: Option<&'static str>,
}

/// Returns the configuration of the text part: the file's own keys, or `text_config`.
pub(crate) fn text_config(file: &Map<String, Value>) -> Result<TextConfig, Problem> {
    let model_type = file.get("model_type").and_then(Value::as_str);
    let Some(nested) = NESTED
        .iter()
        .find(|nested| Some(nested.model_type) == model_type)
    else {
        return Ok(TextConfig {
            values: file.clone(),
            prefix: "",
            class: None,
        });
    };

    let Some(Value::Object(text)) = file.get("text_config") else {
        return Err(Problem::MissingKey("text_config".to_owned()));
    };
    let mut values = text.clone();
    for key in SHARED {
        let outer = file.get(key).filter(|value| !value.is_null());
        let inner = values.get(key).filter(|value| !value.is_null());
        if let (Some(outer), None) = (outer, inner) {
            values.insert(key.to_owned(), outer.clone());
        }
    }

    let missing = values.get("model_type").is_none_or(Value::is_null);
    if missing {
        values.insert("model_type".to_owned(), nested.text.into());
    }

    // Some files name the class of the text part in `text_config`, and others the outer class.
    values.remove("architectures");
    if let Some(classes) = file.get("architectures") {
        values.insert("architectures".to_owned(), classes.clone());
    }
    Ok(TextConfig {
        values,
        prefix: "text_config.",
        class: Some(nested.class),
    })
}

/// Adds the defaults of a family to the keys of a file. A key that is `null` stays, except for the
/// rotary embedding, which two keys may have.
pub(crate) fn with_defaults(
    family: &FolderFamily,
    mut values: Map<String, Value>,
) -> Map<String, Value> {
    let defaults: Map<String, Value> =
        serde_json::from_str(family.defaults).expect("a test parses the defaults of each family");
    let has_rope = ROPE_OBJECTS
        .iter()
        .any(|key| values.get(*key).is_some_and(|value| !value.is_null()));
    for (key, value) in defaults {
        if key != ROPE_OBJECTS[0] {
            values.entry(key).or_insert(value);
        } else if !has_rope {
            values.insert(key, value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_distinct_and_their_defaults_are_objects() {
        for (i, family) in FAMILIES.iter().enumerate() {
            let earlier = &FAMILIES[..i];
            assert!(
                earlier
                    .iter()
                    .all(|other| other.model_type != family.model_type),
                "{} twice",
                family.model_type
            );
            with_defaults(family, Map::new());
            for (key, fate, why) in family.keys {
                let quiet = matches!(fate, Used | Harmless);
                assert_eq!(quiet, why.is_empty(), "{}: {key}", family.model_type);
            }
        }
        for nested in &NESTED {
            assert!(
                FAMILIES
                    .iter()
                    .any(|family| family.model_type == nested.text)
            );
        }
    }
}
