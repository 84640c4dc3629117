//! The meaning of each key of `config.json`: it is used, has no effect, or is rejected.

use serde_json::Value;

use crate::folder::json::{NamedObject, shown};
use crate::problem::Problem;

#[derive(Debug)]
pub(crate) enum ConfigKeyFate {
    /// Something reads it.
    Used,
    /// It changes neither logits nor tokens.
    Harmless,
    /// These values change nothing; others are refused.
    Only(fn(&Value) -> bool),
    /// No value of it is supported.
    Refused,
}

use ConfigKeyFate::{Harmless, Only, Refused, Used};

/// A key, its fate, and why other values are refused.
pub(crate) type ConfigKeyRow = (&'static str, ConfigKeyFate, &'static str);

const OWN_CODE: &str = "models with code of their own are not supported";
const HEADS: &str = "only models that write text are supported";

/// Returns true for `true`.
pub(crate) fn on(value: &Value) -> bool {
    *value == Value::Bool(true)
}

/// Returns true for `false`.
pub(crate) fn off(value: &Value) -> bool {
    *value == Value::Bool(false)
}

/// Returns true for the number 1.
pub(crate) fn one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

/// Returns true for the activation of Gemma.
pub(crate) fn gelu_tanh(value: &Value) -> bool {
    value == "gelu_pytorch_tanh"
}

/// Returns true for a list of layers that all have attention to all positions.
pub(crate) fn full_attention(value: &Value) -> bool {
    let full = |layer: &Value| layer == "attention" || layer == "full_attention";
    value
        .as_array()
        .is_some_and(|layers| layers.iter().all(full))
}

/// Returns true for the number 0.
pub(crate) fn zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}

fn silu(value: &Value) -> bool {
    ["silu", "swish"].iter().any(|name| value == name)
}

fn full(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|layers| layers.iter().all(|layer| layer == "full_attention"))
}

/// The keys of `LlamaConfig`, `Qwen2Config`, `Qwen3Config` and their parent `PretrainedConfig` in
/// transformers, and keys that other programs add.
#[rustfmt::skip] // one key a line
const ROWS: &[ConfigKeyRow] = &[
    ("model_type", Used, ""),
    ("architectures", Used, ""),
    ("hidden_size", Used, ""),
    ("intermediate_size", Used, ""),
    ("num_hidden_layers", Used, ""),
    ("num_attention_heads", Used, ""),
    ("num_key_value_heads", Used, ""),
    ("head_dim", Used, ""),
    ("max_position_embeddings", Used, ""),
    ("rms_norm_eps", Used, ""),
    ("rope_theta", Used, ""),
    ("rope_scaling", Used, ""),
    ("rope_parameters", Used, ""),
    ("partial_rotary_factor", Used, ""),
    ("vocab_size", Used, ""),
    ("tie_word_embeddings", Used, ""),
    ("bos_token_id", Used, ""),
    ("eos_token_id", Used, ""),
    ("hidden_act", Only(silu), "another activation than SiLU is not supported"),
    ("attention_bias", Only(off), "biases of all projections of attention are not supported"),
    ("mlp_bias", Only(off), "biases of the feed-forward are not supported"),
    ("use_sliding_window", Only(off), "attention to a sliding window is not supported in this family"),
    ("layer_types", Only(full), "layers without full attention are not supported"),
    ("use_mrope", Only(off), "rotary sections for images and video (M-RoPE) are not supported"),
    ("is_encoder_decoder", Only(off), "encoders with decoders are not supported; decoders alone are"),
    ("add_cross_attention", Only(off), HEADS),
    ("cross_attention_hidden_size", Refused, HEADS),
    ("pruned_heads", Only(empty), "pruned heads are not supported"),
    ("embedding_multiplier", Only(one), "scaled embeddings are not supported"),
    ("residual_multiplier", Only(one), "scaled residuals are not supported"),
    ("attention_multiplier", Refused, "scaled scores are not supported"),
    ("logits_scaling", Only(one), "scaled logits are not supported"),
    ("num_local_experts", Only(zero), "mixtures of experts are not supported in this family"),
    ("num_experts", Only(zero), "mixtures of experts are not supported in this family"),
    ("quantization_config", Used, ""),
    ("compression_config", Refused, "quantized weights are not read from folders; give the folder of the 16-bit model, or a GGUF file"),
    ("auto_map", Refused, OWN_CODE),
    ("custom_pipelines", Refused, OWN_CODE),
    // Without use_sliding_window, nothing reads these two.
    ("sliding_window", Harmless, ""),
    ("max_window_layers", Harmless, ""),
    // The sums of attention and feed-forward in another order.
    ("pretraining_tp", Harmless, ""),
    ("chunk_size_feed_forward", Harmless, ""),
    // Of training from scratch.
    ("initializer_range", Harmless, ""),
    ("attention_dropout", Harmless, ""),
    ("hidden_dropout", Harmless, ""),
    ("embd_pdrop", Harmless, ""),
    ("resid_pdrop", Harmless, ""),
    // Keys that describe the file, or that only transformers uses.
    ("_name_or_path", Harmless, ""),
    ("_attn_implementation_autoset", Harmless, ""),
    ("_commit_hash", Harmless, ""),
    ("transformers_version", Harmless, ""),
    ("transformers.js_config", Harmless, ""),
    ("torch_dtype", Harmless, ""),
    ("dtype", Harmless, ""),
    ("torchscript", Harmless, ""),
    ("use_bfloat16", Harmless, ""),
    ("use_cache", Harmless, ""),
    ("output_attentions", Harmless, ""),
    ("output_hidden_states", Harmless, ""),
    ("return_dict", Harmless, ""),
    ("is_decoder", Harmless, ""),
    ("tie_encoder_decoder", Harmless, ""),
    ("tokenizer_class", Harmless, ""),
    ("pad_token_id", Harmless, ""),
    ("sep_token_id", Harmless, ""),
    ("decoder_start_token_id", Harmless, ""),
    ("finetuning_task", Harmless, ""),
    ("task_specific_params", Harmless, ""),
    ("problem_type", Harmless, ""),
    ("id2label", Harmless, ""),
    ("label2id", Harmless, ""),
    ("num_labels", Harmless, ""),
    ("prefix", Harmless, ""),
    ("unsloth_fixed", Harmless, ""),
    ("unsloth_version", Harmless, ""),
    // Of sampling: here, logits and the most likely token are given as the model has them.
    ("do_sample", Harmless, ""),
    ("temperature", Harmless, ""),
    ("top_k", Harmless, ""),
    ("top_p", Harmless, ""),
    ("typical_p", Harmless, ""),
    ("max_length", Harmless, ""),
    ("min_length", Harmless, ""),
    ("max_new_tokens", Harmless, ""),
    ("num_beams", Harmless, ""),
    ("num_beam_groups", Harmless, ""),
    ("num_return_sequences", Harmless, ""),
    ("diversity_penalty", Harmless, ""),
    ("early_stopping", Harmless, ""),
    ("length_penalty", Harmless, ""),
    ("repetition_penalty", Harmless, ""),
    ("no_repeat_ngram_size", Harmless, ""),
    ("encoder_no_repeat_ngram_size", Harmless, ""),
    ("exponential_decay_length_penalty", Harmless, ""),
    ("bad_words_ids", Harmless, ""),
    ("begin_suppress_tokens", Harmless, ""),
    ("suppress_tokens", Only(empty), "suppressed tokens are not supported"),
    ("forced_bos_token_id", Refused, "forced tokens are not supported"),
    ("forced_eos_token_id", Refused, "forced tokens are not supported"),
    ("output_scores", Harmless, ""),
    ("return_dict_in_generate", Harmless, ""),
    ("remove_invalid_values", Harmless, ""),
    ("tf_legacy_loss", Harmless, ""),
];

/// Checks every key. A value of `null` counts as absent. The rows of the family come before the
/// rows that all families share.
pub(crate) fn check(
    config: NamedObject<'_>,
    of_family: &'static [ConfigKeyRow],
    family: &'static str,
) -> Result<(), Problem> {
    for (key, value) in config.values {
        if value.is_null() {
            continue;
        }
        let mut rows = of_family.iter().chain(ROWS);
        match rows.find(|(known, ..)| known == key) {
            None => {
                return Err(Problem::UnknownKey {
                    key: config.key(key),
                    found: shown(value),
                    architecture: family,
                });
            }
            Some((_, Used | Harmless, _)) => {}
            Some((_, Only(holds), _)) if holds(value) => {}
            Some((_, Only(_) | Refused, why)) => {
                return Err(Problem::RefusedKey {
                    key: config.key(key),
                    found: shown(value),
                    why,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_distinct_and_give_reasons() {
        for (i, (key, fate, why)) in ROWS.iter().enumerate() {
            assert!(
                ROWS[..i].iter().all(|(other, ..)| other != key),
                "{key} twice"
            );
            assert_eq!(matches!(fate, Used | Harmless), why.is_empty(), "{key}");
        }
    }
}
