//! `adapter_config.json`: PEFT's [`LoraConfig`](https://huggingface.co/docs/peft/package_reference/lora).
//!
//! Each key is used, known to change nothing here, or refused by name. PEFT adds keys from version to version; one that
//! is not known yet may be there if it is switched off: null, false or empty.

use serde_json::{Map, Value};
use warpwright_kernels::pipeline::lora::MAX_RANK;

use crate::adapter::fault::Fault;
use crate::adapter::missing::Named;
use crate::adapter::names::PROJECTIONS;
use crate::adapter::patterns::{Patterns, names};

/// What an adapter's matrices mean.
#[derive(Debug)]
pub(crate) struct LoraConfig {
    rank: u32,
    pub(crate) alpha: f64,
    pub(crate) rslora: bool,
    ranks: Patterns,
    alphas: Patterns,
    /// The modules, by their names or the ends of them; `None` if a regular expression or a word stands for them.
    pub(crate) targets: Option<Vec<String>>,
    pub(crate) base: Option<String>,
    pub(crate) named: Named,
}

/// Keys that change nothing for a decoder: which modules have an adapter is also told by the tensors, those that
/// [lack](crate::adapter::missing) some are named, and the rest is about training or about libraries.
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

/// Keys that must be switched off: their name, what they switch on, and what is supported instead.
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

/// Ways to begin that leave the base model as it is.
const INITS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

impl LoraConfig {
    /// Parses the file's text.
    pub(crate) fn read(text: &[u8]) -> Result<LoraConfig, Fault> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| Fault::Json(error.to_string()))?;
        let Value::Object(keys) = value else {
            return Err(Fault::NoObject);
        };
        keys.iter().try_for_each(|(key, value)| check(key, value))?;
        let targets = targets(keys.get("target_modules").unwrap_or(&Value::Null))?;
        let pattern = |key| Patterns::read(key, keys.get(key).unwrap_or(&Value::Null));
        Ok(LoraConfig {
            rank: rank("r", required(&keys, "r")?)?,
            alpha: alpha(required(&keys, "lora_alpha")?)?,
            rslora: keys.get("use_rslora") == Some(&Value::Bool(true)),
            ranks: pattern("rank_pattern")?,
            alphas: pattern("alpha_pattern")?,
            named: Named::read(&keys, targets.as_deref()),
            targets,
            base: text_of("base_model_name_or_path", &keys)?,
        })
    }

    /// The rank of a module.
    pub(crate) fn rank(&self, module: &str) -> Result<u32, Fault> {
        match self.ranks.of("rank_pattern", module)? {
            None => Ok(self.rank),
            Some(number) => rank("rank_pattern", &Value::from(number)),
        }
    }

    /// What multiplies `B A x`: `alpha / rank`, or `alpha / sqrt(rank)` of rank-stabilized LoRA (Kalajdzievski, 2023,
    /// arXiv:2312.03732).
    pub(crate) fn scale(&self, module: &str) -> Result<f64, Fault> {
        let rank = f64::from(self.rank(module)?);
        let alpha = self
            .alphas
            .of("alpha_pattern", module)?
            .unwrap_or(self.alpha);
        Ok(alpha / if self.rslora { rank.sqrt() } else { rank })
    }

    /// Whether the list of targets has this module, if there is a list.
    pub(crate) fn is_target(&self, module: &str) -> bool {
        self.targets
            .as_ref()
            .is_none_or(|targets| targets.iter().any(|target| names(target, module)))
    }
}

/// Checks keys that are not read; those that are pass.
fn check(key: &str, value: &Value) -> Result<(), Fault> {
    let is = |wanted: &[&str]| value.as_str().is_some_and(|found| wanted.contains(&found));
    let must = |holds, wanted: &str| match holds {
        true => Ok(()),
        false => Err(Fault::Value {
            key: key.into(),
            found: value.to_string(),
            wanted: wanted.into(),
        }),
    };
    let unsupported = |feature, instead| {
        Err(Fault::Unsupported {
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
        _ if HARMLESS.contains(&key) || is_off(value) => Ok(()),
        _ => match REFUSED.iter().find(|(refused, ..)| *refused == key) {
            Some(&(_, feature, instead)) => unsupported(feature, instead),
            None => Err(Fault::UnknownKey {
                key: key.into(),
                found: value.to_string(),
            }),
        },
    }
}

/// Null, false, or empty.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(keys) => keys.is_empty(),
        _ => false,
    }
}

fn required<'a>(keys: &'a Map<String, Value>, key: &'static str) -> Result<&'a Value, Fault> {
    keys.get(key).ok_or(Fault::MissingKey(key))
}

fn rank(key: &str, value: &Value) -> Result<u32, Fault> {
    let whole = value
        .as_f64()
        .filter(|rank| rank.fract() == 0.0 && (1.0..=f64::from(MAX_RANK)).contains(rank));
    let wrong = || Fault::Value {
        key: key.into(),
        found: value.to_string(),
        wanted: format!("a whole number from 1 to {MAX_RANK}"),
    };
    whole.map(|rank| rank as u32).ok_or_else(wrong)
}

fn alpha(value: &Value) -> Result<f64, Fault> {
    let wrong = || Fault::Value {
        key: "lora_alpha".into(),
        found: value.to_string(),
        wanted: "a number from 1.2e-38 to 3.4e38, which f32 holds".into(),
    };
    // The device has it in f32, and so has llama.cpp, for which 0 is no scale.
    let fits = |alpha: &f64| *alpha > 0.0 && (*alpha as f32).is_normal();
    value.as_f64().filter(fits).ok_or_else(wrong)
}

/// The names in a list. A text is a regular expression or a word such as `all-linear`.
fn targets(value: &Value) -> Result<Option<Vec<String>>, Fault> {
    let wrong = |found: &Value| Fault::Value {
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
        let known = target
            .rsplit('.')
            .next()
            .is_some_and(|last| PROJECTIONS.contains(&last));
        if known {
            Ok(target.to_owned())
        } else {
            Err(Fault::Target {
                target: target.to_owned(),
            })
        }
    };
    list.iter().map(target).collect::<Result<_, _>>().map(Some)
}

fn text_of(key: &str, keys: &Map<String, Value>) -> Result<Option<String>, Fault> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Fault::Value {
            key: key.into(),
            found: other.to_string(),
            wanted: "a text or null".into(),
        }),
    }
}
