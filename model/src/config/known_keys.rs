//! The meaning of every metadata key for the forward pass, as a table: used, harmless, harmless
//! with some values, or rejected.
//!
//! A model with an unknown key that changes the forward pass would run and give wrong results
//! without an error. Therefore each key under the architecture's prefix must have a row, and others
//! are rejected by name. Outside the prefix, only keys that are known to matter are rejected. The
//! rest describes the file or belongs to other programs: `general.*`, `quantize.*`,
//! `mradermacher.*` and similar keys. The names, and the values that mean "absent", come from
//! `llama-arch.cpp` and `llama-model.cpp` of llama.cpp.

use crate::architecture::family::{
    Architecture, FamilyExperts, FamilySharedExpert, FileFactors, LocalRope, Windows,
};
use crate::architecture::layers::score_len;
use crate::config::hyperparameters::Hyperparameters;
use crate::gguf::file::Directory;
use crate::gguf::value::Value;
use crate::layer::feed_forward::{ExpertWeighting, GateActivation};
use crate::problem::Problem;

/// The meaning of a key's presence.
enum MetadataKeyFate {
    /// Something reads it.
    Used,
    /// It changes nothing here.
    Harmless,
    /// These values change nothing; others are refused.
    Only(Neutral),
    /// No value of it is supported.
    Refused,
}

/// Values that change nothing.
enum Neutral {
    Numbers(&'static [f64]),
    Bool(bool),
    Strings(&'static [&'static str]),
    /// No value at all, in an array.
    Empty,
    /// The scale of scores that a model has by itself, or 0.
    ScoreScale,
    /// A window over all positions, or 0; any, in a family with windows.
    Window,
    /// Harmless if it has the value that layers with a window use anyway, or any value in a family
    /// without windows. `None` if the key is read.
    OfWindows(fn(&Hyperparameters) -> Option<f64>),
    /// The activation function of the family, by its names.
    Activation,
    /// These numbers, or any number in a family that reads the key.
    Unless(fn(&Architecture) -> bool, &'static [f64]),
    /// True in a family whose weights of chosen experts add up to 1, false in other families with
    /// experts, and any value in families without experts.
    ExpertNorm,
    /// True, or any value in a family that does not take it for a switch of the rotation.
    RopeSwitch,
}

/// A key, or all that begin as it does before a `*`; the first row that fits counts.
struct KnownKeyRow {
    key: &'static str,
    fate: MetadataKeyFate,
    /// The reason why other values are rejected, and the remedy.
    why: &'static str,
}

const fn used(key: &'static str) -> KnownKeyRow {
    KnownKeyRow {
        key,
        fate: MetadataKeyFate::Used,
        why: "",
    }
}

const fn harmless(key: &'static str) -> KnownKeyRow {
    KnownKeyRow {
        key,
        fate: MetadataKeyFate::Harmless,
        why: "",
    }
}

const fn only(key: &'static str, neutral: Neutral, why: &'static str) -> KnownKeyRow {
    KnownKeyRow {
        key,
        fate: MetadataKeyFate::Only(neutral),
        why,
    }
}

const fn zero(key: &'static str, why: &'static str) -> KnownKeyRow {
    only(key, Neutral::Numbers(&[0.0]), why)
}

const fn zero_or_one(key: &'static str, why: &'static str) -> KnownKeyRow {
    only(key, Neutral::Numbers(&[0.0, 1.0]), why)
}

const fn refused(key: &'static str, why: &'static str) -> KnownKeyRow {
    KnownKeyRow {
        key,
        fate: MetadataKeyFate::Refused,
        why,
    }
}

const ADAPTER: &str =
    "an adapter is no model; merge it into its base model with llama.cpp's llama-export-lora";
const EXPERTS: &str = "mixtures of experts are not supported in this family";
const EMBEDDING: &str =
    "this is an embedding or ranking model, which writes no text; open the chat or base model";
const LATENT: &str = "multi-head latent attention is not supported";

/// The keys outside the architecture's prefix. The keys that change the tokens of a text are in
/// [`TOKENIZER`].
const FILE: &[KnownKeyRow] = &[
    used("general.architecture"),
    used("general.alignment"),
    only(
        "general.type",
        Neutral::Strings(&["model"]),
        "only a model runs; merge an adapter into its base model with llama.cpp's llama-export-lora, \
         and for a projector (mmproj) open the model that it belongs to",
    ),
    harmless("general.*"),
    // Opening the file has read the other files of a split model.
    used("split.count"),
    only(
        "tokenizer.ggml.suppress_tokens",
        Neutral::Empty,
        "suppressed tokens are not supported",
    ),
    refused("adapter.*", ADAPTER),
    refused("xielu.*", "the activation xIELU is not supported; SiLU is"),
    harmless("*"),
];

/// Keys that change which tokens a text has; read where a text is encoded.
const TOKENIZER: &[KnownKeyRow] = &[
    only(
        "tokenizer.ggml.add_eos_token",
        Neutral::Bool(false),
        "an end-of-text token after the prompt is not supported",
    ),
    only(
        "tokenizer.ggml.add_sep_token",
        Neutral::Bool(false),
        "a separator token after the prompt is not supported",
    ),
    only(
        "tokenizer.ggml.normalizer.lowercase",
        Neutral::Bool(false),
        "lower-casing is not supported",
    ),
    only(
        "tokenizer.ggml.normalizer.strip_accents",
        Neutral::Bool(false),
        "stripping of accents is not supported",
    ),
    harmless("*"),
];

/// Keys under the architecture's prefix, without it.
#[rustfmt::skip] // one key a line
const ARCHITECTURE: &[KnownKeyRow] = &[
    used("vocab_size"),
    used("context_length"),
    used("embedding_length"),
    used("block_count"),
    used("feed_forward_length"),
    used("attention.head_count"),
    used("attention.head_count_kv"),
    used("attention.key_length"),
    used("attention.value_length"),
    used("attention.layer_norm_rms_epsilon"),
    used("rope.dimension_count"),
    used("rope.freq_base"),
    used("rope.scale_linear"),
    used("rope.scaling.type"),
    used("rope.scaling.factor"),
    used("rope.scaling.attn_factor"),
    used("rope.scaling.original_context_length"),
    used("rope.scaling.yarn_ext_factor"),
    used("rope.scaling.yarn_attn_factor"),
    used("rope.scaling.yarn_log_multiplier"),
    used("rope.scaling.yarn_beta_fast"),
    used("rope.scaling.yarn_beta_slow"),
    only("rope.scaling.finetuned", Neutral::RopeSwitch, "models of this family without rotary embedding are not supported"),
    zero_or_one("rope.scaling.alpha", "NTK-aware rope scaling by alpha is not supported; none, linear and yarn are"),
    zero("rope.dimension_sections", "rotary sections for images and video (M-RoPE) are not supported"),
    only("attention.causal", Neutral::Bool(true), "attention to later positions is not supported: such a model does not write text token by token"),
    only("attention.scale", Neutral::ScoreScale, "scores of another scale than 1 / sqrt(attention.key_length) are not supported"),
    zero_or_one("attention.output_scale", "a scaled output of attention is not supported"),
    zero_or_one("attention.value_scale", "scaled values of attention are not supported"),
    zero("attention.clamp_kqv", "clamped queries, keys and values are not supported"),
    zero("attention.max_alibi_bias", "position biases (ALiBi) are not supported; rotary embedding is"),
    only("attention.sliding_window", Neutral::Window, "attention to a sliding window is not supported in this family"),
    only("attention.sliding_window_pattern", Neutral::OfWindows(|c| (!has_local_windows(c)).then_some(0.0)), "this family has a window in every layer or in none"),
    only("attention.key_length_swa", Neutral::OfWindows(|c| Some(c.head_dim.into())), "heads of another length in layers with a window are not supported"),
    only("attention.value_length_swa", Neutral::OfWindows(|c| Some(c.head_dim.into())), "heads of another length in layers with a window are not supported"),
    only("rope.dimension_count_swa", Neutral::OfWindows(|c| Some(c.rope.dim.into())), "another rotation in layers with a window is not supported"),
    only("rope.freq_base_swa", Neutral::OfWindows(|c| (!has_local_base(c)).then_some(c.rope.base)), "another rotary base in layers with a window is not supported in this family"),
    zero("attention.shared_kv_layers", "layers that share keys and values are not supported"),
    zero("attention.temperature_length", "scores scaled by position are not supported"),
    zero("attention.temperature_scale", "scores scaled by position are not supported"),
    zero("attention.q_lora_rank", LATENT),
    zero("attention.kv_lora_rank", LATENT),
    zero("attention.key_length_mla", LATENT),
    zero("attention.value_length_mla", LATENT),
    // Of LayerNorm and GroupNorm; these architectures have RMSNorm.
    harmless("attention.layer_norm_epsilon"),
    harmless("attention.group_norm_epsilon"),
    zero("attention.group_norm_groups", "GroupNorm is not supported; RMSNorm is"),
    only("attn_logit_softcapping", Neutral::Unless(|family| family.soft_caps, &[0.0]), "soft-capped scores are not supported in this family"),
    only("final_logit_softcapping", Neutral::Unless(|family| family.soft_caps, &[0.0]), "soft-capped logits are not supported in this family"),
    zero("router_logit_softcapping", EXPERTS),
    only("logit_scale", Neutral::Unless(|family| family.factors != FileFactors::None, &[0.0, 1.0]), "scaled logits are not supported in this family"),
    only("embedding_scale", Neutral::Unless(|family| family.factors == FileFactors::All, &[0.0, 1.0]), "scaled embeddings are not supported in this family"),
    only("residual_scale", Neutral::Unless(|family| family.factors == FileFactors::All, &[0.0, 1.0]), "scaled residuals are not supported in this family"),
    zero("rescale_every_n_layers", "residuals that are scaled in some layers are not supported"),
    zero("embedding_length_per_layer_input", "embeddings of each layer are not supported"),
    only("use_parallel_residual", Neutral::Bool(false), "parallel attention and feed-forward are not supported"),
    only("swin_norm", Neutral::Bool(false), "norms after attention and feed-forward are not supported"),
    only("hidden_activation", Neutral::Activation, "another activation than the family's own is not supported"),
    only("tensor_data_layout", Neutral::Strings(&["reference", "Meta AI original pth"]), "another order of rows than llama.cpp's is not supported"),
    only("pooling_type", Neutral::Numbers(&[-1.0, 0.0]), EMBEDDING),
    only("classifier.pooling_type", Neutral::Numbers(&[-1.0, 0.0]), EMBEDDING),
    refused("classifier.output_labels", EMBEDDING),
    zero("nextn_predict_layers", "layers that predict further tokens are not supported; a file converted without them is"),
    only("expert_count", Neutral::Unless(has_experts, &[0.0]), EXPERTS),
    only("expert_used_count", Neutral::Unless(has_experts, &[0.0]), EXPERTS),
    only("expert_shared_count", Neutral::Unless(has_shared_expert, &[0.0]), "an expert that every token passes is not supported in this family"),
    only("expert_shared_feed_forward_length", Neutral::Unless(|family| has_shared_expert(family) || !has_experts(family), &[0.0]), "an expert that every token passes is not supported in this family"),
    zero_or_one("expert_group_count", "groups of experts are not supported"),
    zero_or_one("expert_group_used_count", "groups of experts are not supported"),
    used("expert_feed_forward_length"),
    used("expert_weights_scale"),
    only("expert_weights_norm", Neutral::ExpertNorm, "another rule for the weights of the chosen experts is not supported in this family"),
    only("expert_gating_func", Neutral::Unless(|family| !has_experts(family), &[0.0, 1.0]), "another function of router logits than the softmax (1) is not supported"),
    only("leading_dense_block_count", Neutral::Unless(|family| !has_experts(family), &[0.0]), "dense layers before those with experts are not supported in this family"),
    only("moe_every_n_layers", Neutral::Unless(|family| !has_experts(family), &[0.0, 1.0]), "dense layers between those with experts are not supported in this family"),
    only("interleave_moe_layer_step", Neutral::Unless(|family| !has_experts(family), &[0.0, 1.0]), "dense layers between those with experts are not supported in this family"),
    // Without groups, which the rows above refuse, nothing reads this.
    harmless("expert_group_scale"),
    zero("decoder_block_count", "encoders with decoders are not supported; decoders alone are"),
    harmless("decoder_start_token_id"),
    // Of an encoder of images, whose tensors are refused where the file has them.
    harmless("vision.*"),
    harmless("mm.*"),
];

/// Checks the keys of any file, before its architecture is looked at.
pub(crate) fn check_file(directory: &Directory) -> Result<(), Problem> {
    for (key, value) in &directory.metadata {
        if let Some(row) = row(FILE, key) {
            row.check(key, value, None)?;
        }
    }
    Ok(())
}

/// Checks the keys under the architecture's prefix.
pub(crate) fn check_architecture(
    directory: &Directory,
    config: &Hyperparameters,
) -> Result<(), Problem> {
    let architecture = config.architecture.name;
    for (key, value) in &directory.metadata {
        let Some(name) = key
            .strip_prefix(architecture)
            .and_then(|rest| rest.strip_prefix('.'))
        else {
            continue;
        };
        let Some(row) = row(ARCHITECTURE, name) else {
            return Err(Problem::UnknownKey {
                key: key.clone(),
                found: value.to_string(),
                architecture,
            });
        };
        row.check(key, value, Some(config))?;
    }
    Ok(())
}

/// Checks the keys of the tokenizer.
pub(crate) fn check_tokenizer(directory: &Directory) -> Result<(), Problem> {
    for (key, value) in &directory.metadata {
        if let Some(row) = row(TOKENIZER, key) {
            row.check(key, value, None)?;
        }
    }
    Ok(())
}

/// Returns true if files of the family can have experts.
fn has_experts(family: &Architecture) -> bool {
    family.experts != FamilyExperts::None
}

/// Returns true if files of the family can have an expert that every token passes.
fn has_shared_expert(family: &Architecture) -> bool {
    let kind = family.experts.kind();
    kind.is_some_and(|kind| kind.shared != FamilySharedExpert::None)
}

/// Returns true if some layers of the model have a window and others have none.
fn has_local_windows(model: &Hyperparameters) -> bool {
    model.local.is_some() && model.window.is_some()
}

/// Returns true if layers with a window have their own rotary base, which a key may set.
fn has_local_base(model: &Hyperparameters) -> bool {
    let local = matches!(
        model.architecture.windows,
        Windows::Local {
            rope: LocalRope::Base(_),
            ..
        }
    );
    local && has_local_windows(model)
}

fn row(table: &'static [KnownKeyRow], key: &str) -> Option<&'static KnownKeyRow> {
    table.iter().find(|row| match row.key.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => row.key == key,
    })
}

impl KnownKeyRow {
    fn check(
        &self,
        key: &str,
        value: &Value,
        config: Option<&Hyperparameters>,
    ) -> Result<(), Problem> {
        let key = key.to_owned();
        let neutral = match &self.fate {
            MetadataKeyFate::Used | MetadataKeyFate::Harmless => return Ok(()),
            MetadataKeyFate::Refused => return Err(self.refusal(key, value)),
            MetadataKeyFate::Only(neutral) => neutral,
        };
        match neutral.holds(value, config) {
            Some(true) => Ok(()),
            Some(false) => Err(self.refusal(key, value)),
            None => Err(Problem::Key {
                key,
                found: value.described(),
                expected: neutral.kind().to_owned(),
            }),
        }
    }

    fn refusal(&self, key: String, value: &Value) -> Problem {
        Problem::RefusedKey {
            key,
            found: value.to_string(),
            why: self.why,
        }
    }
}

impl Neutral {
    /// Whether a value changes nothing; none if it has another type.
    fn holds(&self, value: &Value, config: Option<&Hyperparameters>) -> Option<bool> {
        match (self, value) {
            (Neutral::Numbers(neutral), Value::Array(array)) => Some(
                array
                    .values()
                    .all(|value| value.number().is_some_and(|n| neutral.contains(&n))),
            ),
            (Neutral::Numbers(neutral), value) => value.number().map(|n| neutral.contains(&n)),
            (Neutral::Bool(neutral), Value::Bool(found)) => Some(found == neutral),
            (Neutral::Strings(neutral), Value::String(found)) => {
                Some(neutral.contains(&found.as_str()))
            }
            (Neutral::Empty, Value::Array(array)) => Some(array.is_empty()),
            (Neutral::ScoreScale, Value::Float(scale)) => {
                if config.is_some_and(|c| c.architecture.factors == FileFactors::All) {
                    return Some(true);
                }

                let own = config.map_or(0.0, |c| 1.0 / f64::from((score_len(c) as f32).sqrt()));
                Some(*scale == 0.0 || (scale / own - 1.0).abs() < 1e-6)
            }
            (Neutral::Window, value) => value.integer().map(|window| {
                let read = |config: &Hyperparameters| config.architecture.windows != Windows::None;
                window == 0 || config.is_some_and(|c| read(c) || window >= c.context.into())
            }),
            (Neutral::OfWindows(own), value) => {
                let windows = config.filter(|config| config.architecture.windows != Windows::None);
                match windows.and_then(own) {
                    None => Some(true),
                    Some(own) => value.number().map(|found| found == own),
                }
            }
            (Neutral::Activation, Value::String(found)) => {
                let names: &[&str] = match config?.architecture.activation {
                    GateActivation::Silu => &["silu", "swish"],
                    GateActivation::GeluTanh => &["gelu_pytorch_tanh"],
                    // Configuration files call it SiLU, and llama.cpp writes no key.
                    GateActivation::ClampedSwiglu => &["silu"],
                };
                Some(names.contains(&found.as_str()))
            }
            (Neutral::Unless(read, neutral), value) => {
                let read = config.is_some_and(|c| read(c.architecture));
                value.number().map(|found| read || neutral.contains(&found))
            }
            (Neutral::ExpertNorm, Value::Bool(found)) => {
                let kind = config.and_then(|c| c.architecture.experts.kind());
                let norms = |weighting| match weighting {
                    ExpertWeighting::Softmax => false,
                    ExpertWeighting::SoftmaxOfChosen => true,
                };
                Some(kind.is_none_or(|kind| norms(kind.weighting) == *found))
            }
            (Neutral::RopeSwitch, Value::Bool(found)) => {
                let switch = config.is_some_and(|c| c.architecture.factors == FileFactors::All);
                Some(*found || !switch)
            }
            _ => None,
        }
    }

    /// The type of such values.
    fn kind(&self) -> &'static str {
        match self {
            Neutral::Numbers(_) => "a number",
            Neutral::Bool(_) => "a bool",
            Neutral::Strings(_) => "a string",
            Neutral::Empty => "an array",
            Neutral::ScoreScale => "a floating-point number",
            Neutral::OfWindows(_) => "a number",
            Neutral::Activation => "a string",
            Neutral::Unless(..) => "a number",
            Neutral::ExpertNorm => "a bool",
            Neutral::RopeSwitch => "a bool",
            Neutral::Window => "a whole number",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row can be reached, and says why it refuses.
    #[test]
    fn rows_are_distinct_and_give_reasons() {
        for table in [FILE, TOKENIZER, ARCHITECTURE] {
            for (i, this) in table.iter().enumerate() {
                let example = this.key.replace('*', "x");
                assert!(
                    std::ptr::eq(row(table, &example).unwrap(), this),
                    "{} comes too late",
                    this.key
                );
                let quiet = matches!(this.fate, MetadataKeyFate::Used | MetadataKeyFate::Harmless);
                assert_eq!(quiet, this.why.is_empty(), "row {i}, {}", this.key);
            }
        }
    }
}
