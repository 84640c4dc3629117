//! A model's hyperparameters, from `config.json`.

use serde_json::Value;

use crate::architecture::family::{Architecture, FamilyBiases, FileFactors, REFUSED};
use crate::config::forward::Config;
use crate::config::hyperparameters::{Factors, Hyperparameters, SoftCaps};
use crate::config::json::families::{FAMILIES, FolderFamily, TextConfig, with_defaults};
use crate::config::json::layer_kinds::{self, LayerKinds, StoredRope};
use crate::config::json::rope::RotatedModel;
use crate::config::json::{experts, known_keys as known, quantization, rope};
use crate::config::rope::RopeFactors;
use crate::folder::json::{NamedObject, shown};
use crate::gguf::keys::MAX_SIZE;
use crate::layer::attention::QkvBias;
use crate::problem::Problem;

/// The settings in a configuration that determine the forward pass.
pub(crate) struct ForwardConfig {
    pub(crate) family: &'static FolderFamily,
    pub(crate) config: Config,
    pub(crate) rope_factors: Option<RopeFactors>,
    /// Whether the embedding serves as head.
    pub(crate) tied: bool,
}

/// Reads and checks all keys.
pub(crate) fn read(text: TextConfig) -> Result<ForwardConfig, Problem> {
    let TextConfig {
        values,
        prefix,
        class,
    } = text;
    let keys = NamedObject {
        values: &values,
        prefix,
    };
    let family = family(keys, class)?;
    let architecture = family.architecture;
    let values = with_defaults(family, values.clone());
    let keys = NamedObject {
        values: &values,
        prefix,
    };
    // A default may be refused too, for example a number of experts.
    known::check(keys, family.keys, architecture.name)?;
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
    let layers = keys.required("num_hidden_layers")?;
    let rope::FolderRope {
        rope,
        factors: rope_factors,
        local_base,
        positions,
    } = rope::read(
        keys,
        RotatedModel {
            rotated: family.rotated,
            query_factor: family.query_factor,
            head_dim,
            context,
        },
    )?;
    let stored = StoredRope { rope, local_base };
    let LayerKinds {
        window,
        rope,
        local,
    } = layer_kinds::read(keys, architecture.windows, stored, layers)?;
    let experts = match &family.experts {
        Some(names) => Some(experts::read(keys, names, architecture, layers)?),
        None => None,
    };
    // A model without dense layers does not need their width.
    let has_dense = experts
        .as_ref()
        .is_none_or(|experts| !experts.dense.is_empty());
    let feed_forward = if has_dense {
        keys.required(family.feed_forward)?
    } else {
        0
    };
    let model = Hyperparameters {
        architecture,
        layers,
        hidden,
        feed_forward,
        experts,
        heads,
        kv_heads,
        head_dim,
        bias: bias(keys, architecture)?,
        rope,
        window,
        local,
        factors: factors(keys, architecture)?,
        caps: caps(keys, architecture)?,
        epsilon: epsilon(keys, family.epsilon)?,
        context: positions.unwrap_or(context),
        vocab: keys.required("vocab_size")?,
    };
    model.check()?;
    Ok(ForwardConfig {
        family,
        config: model.config(),
        rope_factors,
        tied: keys.bool("tie_word_embeddings")?.unwrap_or(false),
    })
}

/// Returns the family of a file. `class` is the class of a model with more parts than the text.
fn family(
    keys: NamedObject<'_>,
    class: Option<&'static str>,
) -> Result<&'static FolderFamily, Problem> {
    let name = keys
        .text("model_type")?
        .ok_or_else(|| keys.missing("model_type"))?;
    if let Some((found, why)) = REFUSED.into_iter().find(|(refused, _)| *refused == name) {
        return Err(Problem::RefusedKey {
            key: keys.key("model_type"),
            found: format!("{found:?}"),
            why,
        });
    }
    let Some(family) = FAMILIES.iter().find(|known| known.model_type == name) else {
        let supported: Vec<&str> = FAMILIES.iter().map(|known| known.model_type).collect();
        let supported = supported.join(", ");
        return Err(Problem::ModelType {
            found: name.to_owned(),
            supported,
        });
    };
    let class = class.unwrap_or(family.class);
    match keys.get("architectures") {
        None => Ok(family),
        Some(Value::Array(classes)) if classes.iter().all(|found| found == class) => Ok(family),
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

fn bias(keys: NamedObject<'_>, architecture: &Architecture) -> Result<QkvBias, Problem> {
    let each = match architecture.biases {
        FamilyBiases::None => false,
        FamilyBiases::Always => true,
        FamilyBiases::IfStored => keys.bool("attention_bias")?.unwrap_or(false),
    };
    Ok(if each { QkvBias::Each } else { QkvBias::None })
}

fn factors(keys: NamedObject<'_>, architecture: &Architecture) -> Result<Factors, Problem> {
    let factor = |name: &str| Ok(keys.positive(name)?.unwrap_or(1.0));
    let scores = keys.positive("query_pre_attn_scalar")?;
    let scores = scores.map(|len| 1.0 / len.sqrt());
    match architecture.factors {
        FileFactors::None => Ok(Factors {
            scores,
            ..Factors::NONE
        }),
        FileFactors::All => Ok(Factors {
            embedding: factor("embedding_multiplier")?,
            residual: factor("residual_multiplier")?,
            scores: keys.positive("attention_multiplier")?,
            logits: 1.0 / factor("logits_scaling")?,
        }),
        FileFactors::Logits => Ok(Factors {
            logits: factor("logit_scale")?,
            ..Factors::NONE
        }),
    }
}

/// Reads the bounds of scores and logits. `null` is none.
fn caps(keys: NamedObject<'_>, architecture: &Architecture) -> Result<SoftCaps, Problem> {
    let cap = |name: &str| match keys.positive(name)? {
        Some(_) if !architecture.soft_caps => {
            keys.wrong(name, "null: soft caps are not supported in this family")
        }
        found => Ok(found.map(|cap| cap as f32)),
    };
    Ok(SoftCaps {
        scores: cap("attn_logit_softcapping")?,
        logits: cap("final_logit_softcapping")?,
    })
}

fn epsilon(keys: NamedObject<'_>, name: &str) -> Result<f32, Problem> {
    let epsilon = keys.positive(name)?.ok_or_else(|| keys.missing(name))?;
    if epsilon < 1.0 {
        Ok(epsilon as f32)
    } else {
        keys.wrong(name, "a number below 1")
    }
}
