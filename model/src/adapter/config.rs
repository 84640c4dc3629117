//! The file `adapter_config.json`: PEFT's
//! [`LoraConfig`](https://huggingface.co/docs/peft/package_reference/lora).
//!
//! Every key is read, known to change nothing here, or rejected by name. PEFT adds keys from
//! version to version. A key that is not known yet is accepted if it is switched off: null, false
//! or empty.

use serde_json::{Map, Value};

use crate::adapter::fault::AdapterFault;
use crate::adapter::missing::AdapterEntry;
use crate::adapter::names::{MAX_RANK, PROJECTIONS};
use crate::adapter::patterns::{RankPatterns, names};

/// The settings of an adapter.
#[derive(Debug)]
pub(crate) struct LoraConfig {
    rank: u32,
    pub(crate) alpha: f64,
    pub(crate) rslora: bool,
    ranks: RankPatterns,
    alphas: RankPatterns,
    /// The target modules, by their names or the ends of their names. `None` if a regular
    /// expression or a keyword selects them.
    pub(crate) targets: Option<Vec<String>>,
    pub(crate) base: Option<String>,
    pub(crate) named: AdapterEntry,
}

/// Keys that change nothing for a decoder. The tensors also tell which modules have an adapter, and
/// modules that [lack](crate::adapter::missing) tensors are reported. All other keys concern
/// training or libraries.
const HARMLESS: &[&str] = &[
    "auto_mapping",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
];

/// Keys that must be switched off, with the feature that they switch on and the supported
/// alternative.
const REFUSED: &[(&str, &str, &str)] = &[
    ("use_dora", "DoRA", "LoRA without magnitudes"),
    ("use_qalora", "QALoRA", "LoRA of whole rows"),
    (
        "fan_in_fan_out",
        "a transposed weight",
        "weights as [out, in]",
    ),
    ("lora_bias", "a bias of B", "adapters without bias"),
    (
        "modules_to_save",
        "a module that is trained whole",
        "A and B of projections",
    ),
    (
        "trainable_token_indices",
        "trained tokens",
        "A and B of projections",
    ),
    (
        "target_parameters",
        "an adapter of parameters",
        "adapters of modules",
    ),
    (
        "layer_replication",
        "replicated layers",
        "the model's own layers",
    ),
    (
        "alora_invocation_tokens",
        "an adapter that begins at certain tokens",
        "adapters of all tokens",
    ),
    ("arrow_config", "routing among adapters", "one adapter"),
    (
        "megatron_config",
        "Megatron's parallel layers",
        "whole projections",
    ),
];

/// Initializations that leave the base model as it is.
const INITS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

impl LoraConfig {
    /// Parses the text of the file.
    pub(crate) fn read(text: &[u8]) -> Result<LoraConfig, AdapterFault> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| AdapterFault::Json(error.to_string()))?;
        let Value::Object(keys) = value else {
            return Err(AdapterFault::NoObject);
        };

        // A key that is not known could change the result, so all keys are checked.
        for (key, value) in &keys {
            check(key, value)?;
        }

        let targets = targets(keys.get("target_modules").unwrap_or(&Value::Null))?;
        let pattern = |key| RankPatterns::read(key, keys.get(key).unwrap_or(&Value::Null));
        Ok(LoraConfig {
            rank: rank("r", required(&keys, "r")?)?,
            alpha: alpha(required(&keys, "lora_alpha")?)?,
            rslora: keys.get("use_rslora") == Some(&Value::Bool(true)),
            ranks: pattern("rank_pattern")?,
            alphas: pattern("alpha_pattern")?,
            named: AdapterEntry::read(&keys, targets.as_deref()),
            targets,
            base: text_of("base_model_name_or_path", &keys)?,
        })
    }

    /// Returns the rank of a module.
    pub(crate) fn rank(&self, module: &str) -> Result<u32, AdapterFault> {
        match self.ranks.of("rank_pattern", module)? {
            None => Ok(self.rank),
            Some(number) => rank("rank_pattern", &Value::from(number)),
        }
    }

    /// Returns the scale of `B A x` for a module: `alpha / rank`, or `alpha / sqrt(rank)` for
    /// rank-stabilized LoRA (Kalajdzievski, 2023, <https://arxiv.org/abs/2312.03732>).
    pub(crate) fn scale(&self, module: &str) -> Result<f64, AdapterFault> {
        let rank = f64::from(self.rank(module)?);
        let alpha = self
            .alphas
            .of("alpha_pattern", module)?
            .unwrap_or(self.alpha);
        Ok(alpha / if self.rslora { rank.sqrt() } else { rank })
    }

    /// Returns true if the list of targets contains the module, or if there is no list.
    pub(crate) fn is_target(&self, module: &str) -> bool {
        self.targets
            .as_ref()
            .is_none_or(|targets| targets.iter().any(|target| names(target, module)))
    }
}

/// Checks a key that is not read here. Keys that are read pass.
fn check(key: &str, value: &Value) -> Result<(), AdapterFault> {
    let is = |wanted: &[&str]| value.as_str().is_some_and(|found| wanted.contains(&found));
    let must = |holds: bool, wanted: &str| {
        if holds {
            return Ok(());
        }
        Err(AdapterFault::Value {
            key: key.into(),
            found: value.to_string(),
            wanted: wanted.into(),
        })
    };
    let unsupported = |feature, instead| {
        Err(AdapterFault::Unsupported {
            key: key.into(),
            found: value.to_string(),
            feature,
            instead,
        })
    };
    match key {
        "r"
        | "lora_alpha"
        | "rank_pattern"
        | "alpha_pattern"
        | "target_modules"
        | "base_model_name_or_path" => Ok(()),
        "peft_type" => must(is(&["LORA"]), "\"LORA\""),
        "task_type" => must(
            value.is_null() || is(&["CAUSAL_LM"]),
            "\"CAUSAL_LM\" or null",
        ),
        "bias" => must(value.is_null() || is(&["none"]), "\"none\""),
        "use_rslora" => must(value.is_null() || value.is_boolean(), "true or false"),
        "init_lora_weights" if value.is_null() || value.is_boolean() || is(&INITS) => Ok(()),
        "init_lora_weights" => unsupported(
            "a start that changes the base model",
            "true, false, gaussian",
        ),
        // A feature that is off changes nothing, even if it is unknown.
        _ if HARMLESS.contains(&key) || is_off(value) => Ok(()),
        _ => match REFUSED.iter().find(|(refused, ..)| *refused == key) {
            Some(&(_, feature, instead)) => unsupported(feature, instead),
            None => Err(AdapterFault::UnknownKey {
                key: key.into(),
                found: value.to_string(),
            }),
        },
    }
}

/// Returns true if a value switches its key off: null, false, or empty.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        _ => false,
    }
}

fn required<'a>(
    keys: &'a Map<String, Value>,
    key: &'static str,
) -> Result<&'a Value, AdapterFault> {
    keys.get(key).ok_or(AdapterFault::MissingKey(key))
}

fn rank(key: &str, value: &Value) -> Result<u32, AdapterFault> {
    let whole = value
        .as_f64()
        .filter(|rank| rank.fract() == 0.0 && (1.0..=f64::from(MAX_RANK)).contains(rank));
    let wrong = || AdapterFault::Value {
        key: key.into(),
        found: value.to_string(),
        wanted: format!("a whole number from 1 to {MAX_RANK}"),
    };
    whole.map(|rank| rank as u32).ok_or_else(wrong)
}

fn alpha(value: &Value) -> Result<f64, AdapterFault> {
    let wrong = || AdapterFault::Value {
        key: "lora_alpha".into(),
        found: value.to_string(),
        wanted: "a number from 1.2e-38 to 3.4e38, which f32 holds".into(),
    };
    // The kernels and llama.cpp store alpha in f32, and llama.cpp treats 0 as a missing scale.
    let fits = |alpha: &f64| *alpha > 0.0 && (*alpha as f32).is_normal();
    value.as_f64().filter(fits).ok_or_else(wrong)
}

/// Returns the names in a list. A string is a regular expression or a keyword such as `all-linear`,
/// and yields `None`.
fn targets(value: &Value) -> Result<Option<Vec<String>>, AdapterFault> {
    let wrong = |found: &Value| AdapterFault::Value {
        key: "target_modules".into(),
        found: found.to_string(),
        wanted: "a list of names, or a text".into(),
    };
    let list = match value {
        Value::Null | Value::String(_) => return Ok(None),
        Value::Array(list) => list,
        other => return Err(wrong(other)),
    };
    let target = |value: &Value| {
        let target = value.as_str().ok_or_else(|| wrong(value))?;
        // A target may be a full path, of which the last component names the projection.
        let known = target
            .rsplit('.')
            .next()
            .is_some_and(|last| PROJECTIONS.contains(&last));
        if known {
            Ok(target.to_owned())
        } else {
            Err(AdapterFault::Target {
                target: target.to_owned(),
            })
        }
    };
    list.iter().map(target).collect::<Result<_, _>>().map(Some)
}

fn text_of(key: &str, keys: &Map<String, Value>) -> Result<Option<String>, AdapterFault> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(AdapterFault::Value {
            key: key.into(),
            found: other.to_string(),
            wanted: "a text or null".into(),
        }),
    }
}
