//! A model's hyperparameters, from `config.json`.

use serde_json::{Map, Value};

use crate::architecture::family::Architecture;
use crate::config::forward::Config;
use crate::config::hyperparameters::Hyperparameters;
use crate::config::json::{known_keys as known, quantization, rope};
use crate::config::rope::RopeFactors;
use crate::folder::json::{NamedObject, shown};
use crate::gguf::keys::MAX_SIZE;
use crate::problem::Problem;

/// A family: `model_type`, and the class that writes text.
const FAMILIES: [(&Architecture, &str); 3] = [
    (Architecture::LLAMA_IN_HALVES, "LlamaForCausalLM"),
    (Architecture::QWEN2, "Qwen2ForCausalLM"),
    (Architecture::QWEN3, "Qwen3ForCausalLM"),
];

/// The settings in a configuration that determine the forward pass.
pub(crate) struct ForwardConfig {
    pub(crate) config: Config,
    pub(crate) rope_factors: Option<RopeFactors>,
    /// Whether the embedding serves as head.
    pub(crate) tied: bool,
}

/// Reads and checks all keys.
pub(crate) fn read(values: &Map<String, Value>) -> Result<ForwardConfig, Problem> {
    let keys = NamedObject { values, prefix: "" };
    let architecture = family(keys)?;
    known::check(keys, architecture.name)?;
    quantization::check(keys)?;
    let hidden = keys.required("hidden_size")?;
    let heads = keys.required("num_attention_heads")?;
    let kv_heads = keys.size("num_key_value_heads")?.unwrap_or(heads);
    if heads % kv_heads != 0 {
        return keys.wrong(
            "num_attention_heads",
            format!("a multiple of num_key_value_heads ({kv_heads})"),
        );
    }

    let head_dim = head_dim(keys, architecture, hidden, heads)?;
    let context = keys.required("max_position_embeddings")?;
    let (rope, rope_factors) = rope::read(keys, head_dim, context)?;
    let model = Hyperparameters {
        architecture,
        layers: keys.required("num_hidden_layers")?,
        hidden,
        feed_forward: keys.required("intermediate_size")?,
        heads,
        kv_heads,
        head_dim,
        rope,
        window: None,
        local: None,
        epsilon: epsilon(keys)?,
        context,
        vocab: keys.required("vocab_size")?,
    };
    model.check()?;
    Ok(ForwardConfig {
        config: model.config(),
        rope_factors,
        tied: keys.bool("tie_word_embeddings")?.unwrap_or(false),
    })
}

fn family(keys: NamedObject<'_>) -> Result<&'static Architecture, Problem> {
    let name = keys
        .text("model_type")?
        .ok_or_else(|| keys.missing("model_type"))?;
    let Some((architecture, class)) = FAMILIES.into_iter().find(|(known, _)| known.name == name)
    else {
        let supported = FAMILIES.map(|(known, _)| known.name).join(", ");
        return Err(Problem::ModelType {
            found: name.to_owned(),
            supported,
        });
    };
    match keys.get("architectures") {
        None => Ok(architecture),
        Some(Value::Array(classes)) if classes.iter().all(|found| found == class) => {
            Ok(architecture)
        }
        Some(found) => Err(Problem::Key {
            key: "architectures".to_owned(),
            found: shown(found),
            expected: format!("[{class:?}], the class that writes text"),
        }),
    }
}

/// Returns the length of a head. If no key has it, the family has one, or it divides the hidden
/// length.
fn head_dim(
    keys: NamedObject<'_>,
    architecture: &Architecture,
    hidden: u32,
    heads: u32,
) -> Result<u32, Problem> {
    let head_dim = match keys.size("head_dim")? {
        Some(head_dim) => head_dim,
        None => match architecture.default_head_dim() {
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return keys.wrong(
                    "num_attention_heads",
                    format!("a divisor of hidden_size ({hidden})"),
                );
            }
        },
    };
    if head_dim % 2 != 0 {
        return keys.wrong(
            "head_dim",
            "an even number, of whose elements pairs are rotated",
        );
    }

    if heads > MAX_SIZE / head_dim {
        return keys.wrong(
            "num_attention_heads",
            format!("at most {MAX_SIZE} elements in all heads of {head_dim}"),
        );
    }

    Ok(head_dim)
}

fn epsilon(keys: NamedObject<'_>) -> Result<f32, Problem> {
    let name = "rms_norm_eps";
    let epsilon = keys.positive(name)?.ok_or_else(|| keys.missing(name))?;
    if epsilon < 1.0 {
        Ok(epsilon as f32)
    } else {
        keys.wrong(name, "a number below 1")
    }
}
