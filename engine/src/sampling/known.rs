//! The meaning of each key of `generation_config.json` for this crate.
//!
//! A key is supported, never changes the output, or would change it if it were supported. The table
//! has the keys of `GenerationConfig` of the `transformers` library, up to version 5.23, and those
//! that other programs add. A key that is harmless at its usual value is reported only if it has
//! another value. Unknown keys are reported.

use serde_json::{Map, Value};
use warpwright_model::folder::shown;

/// The treatment of a key.
enum SamplingKeyFate {
    /// The key is supported.
    Used,
    /// The key never changes a token.
    Harmless,
    /// The key is harmless for the values that the function accepts.
    Only(fn(&Value) -> bool),
}

use SamplingKeyFate::{Harmless, Only, Used};

fn zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn off(value: &Value) -> bool {
    *value == Value::Bool(false)
}

fn empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

/// Accepts no value but `null`, which is filtered out earlier.
fn none(_: &Value) -> bool {
    false
}

#[rustfmt::skip] // one key a line
const KEYS: &[(&str, SamplingKeyFate)] = &[
    ("do_sample", Used),
    ("temperature", Used),
    ("top_k", Used),
    ("top_p", Used),
    ("min_p", Used),
    ("typical_p", Used),
    ("repetition_penalty", Used),
    ("eos_token_id", Used),
    // The search and the distribution.
    ("num_beams", Only(one)),
    ("num_beam_groups", Only(one)),
    ("diversity_penalty", Only(zero)),
    ("penalty_alpha", Only(zero)),
    ("dola_layers", Only(none)),
    ("constraints", Only(empty)),
    ("force_words_ids", Only(empty)),
    ("top_h", Only(none)),
    ("epsilon_cutoff", Only(zero)),
    ("eta_cutoff", Only(zero)),
    ("encoder_repetition_penalty", Only(one)),
    ("no_repeat_ngram_size", Only(zero)),
    ("encoder_no_repeat_ngram_size", Only(zero)),
    ("bad_words_ids", Only(empty)),
    ("forced_bos_token_id", Only(none)),
    ("forced_eos_token_id", Only(none)),
    ("forced_decoder_ids", Only(empty)),
    ("exponential_decay_length_penalty", Only(none)),
    ("suppress_tokens", Only(empty)),
    ("begin_suppress_tokens", Only(empty)),
    ("sequence_bias", Only(empty)),
    ("token_healing", Only(off)),
    ("guidance_scale", Only(one)),
    ("watermarking_config", Only(none)),
    // The end of a text.
    ("min_length", Only(zero)),
    ("min_new_tokens", Only(zero)),
    ("stop_strings", Only(empty)),
    // The length of a text, which the caller decides.
    ("max_length", Harmless),
    ("max_new_tokens", Harmless),
    ("max_time", Harmless),
    ("num_return_sequences", Harmless),
    // Settings of beam search, which `num_beams` reports.
    ("early_stopping", Harmless),
    ("length_penalty", Harmless),
    // Tokens that only batches and encoder-decoder models need.
    ("bos_token_id", Harmless),
    ("pad_token_id", Harmless),
    ("decoder_start_token_id", Harmless),
    // These leave the probabilities as they are, or replace a logit that is not finite, which is an
    // error here.
    ("renormalize_logits", Harmless),
    ("remove_invalid_values", Harmless),
    // Speed, and additional outputs.
    ("use_cache", Harmless),
    ("use_mtp", Harmless),
    ("cache_implementation", Harmless),
    ("cache_config", Harmless),
    ("max_cache_len", Harmless),
    ("return_legacy_cache", Harmless),
    ("low_memory", Harmless),
    ("prefill_chunk_size", Harmless),
    ("compile_config", Harmless),
    ("disable_compile", Harmless),
    ("continuous_batching_config", Harmless),
    ("output_attentions", Harmless),
    ("output_hidden_states", Harmless),
    ("output_scores", Harmless),
    ("output_logits", Harmless),
    ("return_dict_in_generate", Harmless),
    ("is_assistant", Harmless),
    ("num_assistant_tokens", Harmless),
    ("num_assistant_tokens_schedule", Harmless),
    ("assistant_confidence_threshold", Harmless),
    ("prompt_lookup_num_tokens", Harmless),
    ("max_matching_ngram_size", Harmless),
    ("assistant_early_exit", Harmless),
    ("assistant_lookbehind", Harmless),
    ("target_lookbehind", Harmless),
    ("assistant_ensemble_weight", Harmless),
    ("speculation_type", Harmless),
    ("generation_kwargs", Only(empty)),
    // The origin of the file.
    ("_from_model_config", Harmless),
    ("_commit_hash", Harmless),
    ("_original_object_hash", Harmless),
    ("transformers_version", Harmless),
    ("transformers.js_config", Harmless),
];

/// Returns the unsupported keys that may change the output, with their values, in the order of the
/// file.
pub(super) fn unread(values: &Map<String, Value>) -> Vec<(String, String)> {
    values
        .iter()
        .filter(|(key, value)| !value.is_null() && may_change(key, value))
        .map(|(key, value)| (key.clone(), shown(value)))
        .collect()
}

fn may_change(key: &str, value: &Value) -> bool {
    match KEYS.iter().find(|(name, _)| *name == key) {
        Some((_, Used | Harmless)) => false,
        Some((_, Only(neutral))) => !neutral(value),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_stand_once() {
        let mut names: Vec<_> = KEYS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn what_changes_a_text_and_is_not_read_is_told() {
        let neutral = json!({
            "temperature": 0.5, "num_beams": 1, "no_repeat_ngram_size": 0, "epsilon_cutoff": 0.0, "guidance_scale": null,
            "bad_words_ids": [], "max_new_tokens": 2048, "transformers_version": "5.23.0", "token_healing": false,
        });
        assert_eq!(unread(neutral.as_object().unwrap()), []);
        let told = json!({
            "num_beams": 4, "eta_cutoff": 2e-3, "no_repeat_ngram_size": 3, "encoder_repetition_penalty": 1.5,
            "suppress_tokens": [7], "top_h": 0.4, "stop_strings": "END", "chat_format": "chatml",
        });
        let names = unread(told.as_object().unwrap())
            .into_iter()
            .map(|(name, _)| name);
        let mut wanted: Vec<_> = told.as_object().unwrap().keys().cloned().collect();
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        assert_eq!(
            unread(json!({ "num_beams": 4 }).as_object().unwrap()),
            [("num_beams".into(), "4".into())]
        );
    }
}
