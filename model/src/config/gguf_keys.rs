//! Reads a model's hyperparameters from a GGUF's metadata, and holds them against each other.

use crate::architecture::family::{
    AbsentWindow, Architecture, ExpertKind, ExpertWidth, FamilyBiases, FamilyExperts,
    FamilySharedExpert, FileFactors, LocalRope, REFUSED, Windows,
};
use crate::config::forward::Config;
use crate::config::hyperparameters::{ExpertLayers, Factors, Hyperparameters, Local, SoftCaps};
use crate::config::known_keys as known;
use crate::config::local_layers::LayerPeriod;
use crate::config::rope::{Rope, Scaling};
use crate::gguf::file::Directory;
use crate::gguf::keys::{MAX_SIZE, MetadataKeys};
use crate::gguf::value::Value;
use crate::layer::attention::QkvBias;
use crate::layer::description::NormKind;
use crate::layer::feed_forward::{Experts, SharedExpert};
use crate::problem::Problem;

impl Config {
    /// Reads and checks the hyperparameters in the metadata of a file.
    ///
    /// # Errors
    /// Returns the first key that is missing, has another type, or has an unsupported value.
    pub fn read(directory: &Directory) -> Result<Config, Problem> {
        known::check_file(directory)?;
        let name = MetadataKeys {
            directory,
            prefix: "general",
        }
        .text("architecture")?;
        let name = name.ok_or(Problem::MissingKey("general.architecture".into()))?;
        if let Some((found, why)) = REFUSED.into_iter().find(|(refused, _)| *refused == name) {
            return Err(Problem::RefusedKey {
                key: "general.architecture".to_owned(),
                found: format!("{found:?}"),
                why,
            });
        }
        let Some(architecture) = Architecture::ALL
            .into_iter()
            .find(|known| known.name == name)
        else {
            let supported = Architecture::ALL.map(|known| known.name).join(", ");
            return Err(Problem::Architecture {
                found: name.to_owned(),
                supported,
            });
        };

        let keys = MetadataKeys {
            directory,
            prefix: architecture.name,
        };
        let hidden = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.size_or("attention.head_count_kv", Ok(heads))?;
        keys.expect("attention.head_count", heads, heads % kv_heads == 0, || {
            format!("a multiple of attention.head_count_kv ({kv_heads})")
        })?;
        let head_dim = head_dim(&keys, hidden, heads)?;
        let context = keys.size("context_length")?;
        let rope = Rope::read(&keys, head_dim, context, architecture.yarn_bounds)?;
        let layers = keys.size("block_count")?;
        let LayerKinds {
            window,
            rope,
            local,
        } = layer_kinds(&keys, architecture, rope, layers)?;
        let experts = experts(&keys, architecture, layers)?;
        let model = Hyperparameters {
            architecture,
            layers,
            hidden,
            feed_forward: feed_forward(&keys, layers, experts.as_ref())?,
            experts,
            heads,
            kv_heads,
            head_dim,
            bias: bias(directory, architecture),
            rope,
            window,
            local,
            factors: factors(&keys, architecture)?,
            caps: caps(&keys, architecture)?,
            epsilon: epsilon(&keys, architecture)?,
            context,
            vocab: vocab(&keys)?,
        };
        known::check_architecture(directory, &model)?;
        model.check()?;
        Ok(model.config())
    }
}

/// The window, the rotary embedding, and the layers that have another one.
struct LayerKinds {
    window: Option<u32>,
    rope: Rope,
    local: Option<Local>,
}

/// Reads the window, and which layers have it or are rotated.
///
/// A window counts the token's own position: transformers and llama.cpp mask positions whose
/// distance is the window or more.
fn layer_kinds(
    keys: &MetadataKeys<'_>,
    architecture: &Architecture,
    rope: Rope,
    layers: u32,
) -> Result<LayerKinds, Problem> {
    let name = "attention.sliding_window";
    let absent = keys.get(name).and_then(Value::integer) == Some(0) || keys.get(name).is_none();
    let alike = |window| LayerKinds {
        window,
        rope,
        local: None,
    };
    match architecture.windows {
        Windows::None => Ok(alike(None)),
        Windows::Every if absent => Ok(alike(None)),
        Windows::Every => Ok(alike(Some(keys.size(name)?))),
        Windows::Unrotated { period } => {
            let layers = LayerPeriod {
                period,
                rope,
                base: None,
            };
            let (rope, local) = layers.with_rope(LocalRope::Only);
            Ok(LayerKinds {
                window: None,
                rope,
                local: Some(local),
            })
        }
        Windows::Local {
            absent: AbsentWindow::AllAlike,
            ..
        } if absent => Ok(alike(None)),
        Windows::Local {
            period,
            rope: local,
            ..
        } => {
            if let LocalRope::Base(_) = local {
                check_two_bases(keys, &rope)?;
            }

            let window = keys.size(name)?;
            let layers = LayerPeriod {
                period: period_of(keys, period, layers)?,
                rope,
                base: keys.positive("rope.freq_base_swa")?,
            };
            let (rope, local) = layers.with_rope(local);
            Ok(LayerKinds {
                window: Some(window),
                rope,
                local: Some(local),
            })
        }
    }
}

/// Checks the rotary embedding of a family whose layers with a window have another base.
fn check_two_bases(keys: &MetadataKeys<'_>, rope: &Rope) -> Result<(), Problem> {
    // The default of this key belongs to other families, and would apply to the other layers.
    let base = "rope.freq_base";
    keys.get(base)
        .ok_or_else(|| Problem::MissingKey(keys.key(base)))?;
    let why = "in a family whose layers have two rotary bases";
    if let Scaling::Yarn(_) = rope.scaling {
        return keys.wrong("rope.scaling.type", "yarn", format!("none or linear {why}"));
    }

    if rope.magnitude != 1.0 {
        return keys.wrong(
            "rope.scaling.attn_factor",
            rope.magnitude,
            format!("1 {why}"),
        );
    }

    Ok(())
}

/// Returns the distance between layers without a window: a number, or a list that says of each layer
/// whether it has a window.
fn period_of(keys: &MetadataKeys<'_>, default: u32, layers: u32) -> Result<u32, Problem> {
    let name = "attention.sliding_window_pattern";
    let Some(Value::Array(list)) = keys.get(name) else {
        return keys.size_or(name, Ok(default));
    };

    let found: Vec<Value> = list.values().collect();
    let full = found.iter().position(|value| *value == Value::Bool(false));
    let period = full.map_or(layers + 1, |index| index as u32 + 1);
    let wanted = (1..=layers).map(|number| Value::Bool(!number.is_multiple_of(period)));
    if found.iter().cloned().eq(wanted) {
        return Ok(period);
    }

    let expected = format!("true for each of {layers} layers but each N-th");
    keys.wrong(name, Value::Array(list.clone()), expected)
}

/// Reads the width of dense layers. A model without dense layers does not need it.
fn feed_forward(
    keys: &MetadataKeys<'_>,
    layers: u32,
    experts: Option<&ExpertLayers>,
) -> Result<u32, Problem> {
    let has_dense = experts.is_none_or(|experts| (0..layers).any(|i| experts.is_dense(i)));
    if has_dense {
        keys.size("feed_forward_length")
    } else {
        Ok(0)
    }
}

/// Reads the mixture of experts, which some families always have and others may have.
fn experts(
    keys: &MetadataKeys<'_>,
    architecture: &Architecture,
    layers: u32,
) -> Result<Option<ExpertLayers>, Problem> {
    let counted = !matches!(
        keys.get("expert_count").map(Value::integer),
        None | Some(Some(0))
    );
    let kind = match architecture.experts {
        FamilyExperts::Always(kind) => kind,
        FamilyExperts::IfCounted(kind) if counted => kind,
        FamilyExperts::IfCounted(_) | FamilyExperts::None => return Ok(None),
    };

    let count = keys.size("expert_count")?;
    let chosen = keys.size("expert_used_count")?;
    keys.expect("expert_used_count", chosen, chosen <= count, || {
        format!("at most expert_count ({count})")
    })?;
    let scale = keys.nonnegative("expert_weights_scale")?;
    Ok(Some(ExpertLayers {
        experts: Experts {
            count,
            chosen,
            width: expert_width(keys, kind, chosen)?,
            activation: architecture.activation,
            weighting: kind.weighting,
            // 0 counts as absent, as in llama.cpp.
            weight_scale: scale.filter(|scale| *scale != 0.0).unwrap_or(1.0) as f32,
            shared: shared_expert(keys, kind)?,
            biases: architecture.sinks_and_biases,
        },
        dense: (0..layers).filter(|i| is_dense(keys, *i)).collect(),
    }))
}

/// Returns true if a layer of a model with experts has a dense feed-forward. If a layer has the
/// tensors of neither, reading it reports that those of the experts are missing.
fn is_dense(keys: &MetadataKeys<'_>, layer: u32) -> bool {
    let has = |tensor| {
        let name = format!("blk.{layer}.{tensor}.weight");
        keys.directory.tensors.contains_key(&name)
    };
    has("ffn_gate") && !has("ffn_gate_inp")
}

fn expert_width(keys: &MetadataKeys<'_>, kind: ExpertKind, chosen: u32) -> Result<u32, Problem> {
    let own = "expert_feed_forward_length";
    let all = "feed_forward_length";
    let absent = |name| matches!(keys.get(name).map(Value::integer), None | Some(Some(0)));
    if kind.width == ExpertWidth::Own && !absent(own) {
        return keys.size(own);
    }

    let width = keys.size(all)?;
    match kind.width {
        ExpertWidth::FeedForward => Ok(width),
        ExpertWidth::Own => {
            keys.expect(all, width, width.is_multiple_of(chosen), || {
                format!("a multiple of expert_used_count ({chosen}), in a file without {own}")
            })?;
            Ok(width / chosen)
        }
    }
}

fn shared_expert(
    keys: &MetadataKeys<'_>,
    kind: ExpertKind,
) -> Result<Option<SharedExpert>, Problem> {
    let own = "expert_shared_feed_forward_length";
    let sized = !matches!(keys.get(own).map(Value::integer), None | Some(Some(0)));
    let width = match kind.shared {
        FamilySharedExpert::None => return Ok(None),
        FamilySharedExpert::IfSized if !sized => return Ok(None),
        FamilySharedExpert::Gated if !sized => keys.size("feed_forward_length")?,
        FamilySharedExpert::IfSized | FamilySharedExpert::Gated => keys.size(own)?,
    };
    Ok(Some(SharedExpert {
        width,
        gated: kind.shared == FamilySharedExpert::Gated,
    }))
}

fn bias(directory: &Directory, architecture: &Architecture) -> QkvBias {
    match architecture.biases {
        FamilyBiases::None => QkvBias::None,
        FamilyBiases::Always => QkvBias::Each,
        // Reading the others reports a missing one.
        FamilyBiases::IfStored if directory.tensors.contains_key("blk.0.attn_q.bias") => {
            QkvBias::Each
        }
        FamilyBiases::IfStored => QkvBias::None,
    }
}

/// Reads the factors of the file. 0 counts as absent, as in llama.cpp.
fn factors(keys: &MetadataKeys<'_>, architecture: &Architecture) -> Result<Factors, Problem> {
    let factor = |name: &str| {
        let found = keys.nonnegative(name)?;
        Ok(found.filter(|factor| *factor != 0.0))
    };
    let required = |name: &str| -> Result<f64, Problem> {
        keys.positive(name)?
            .ok_or_else(|| Problem::MissingKey(keys.key(name)))
    };
    match architecture.factors {
        FileFactors::None => Ok(Factors::NONE),
        FileFactors::All => Ok(Factors {
            embedding: factor("embedding_scale")?.unwrap_or(1.0),
            residual: factor("residual_scale")?.unwrap_or(1.0),
            scores: factor("attention.scale")?,
            logits: 1.0 / required("logit_scale")?,
        }),
        FileFactors::Logits => Ok(Factors {
            logits: required("logit_scale")?,
            ..Factors::NONE
        }),
    }
}

/// Reads the bounds of scores and logits, which a file of a family with bounds must have.
fn caps(keys: &MetadataKeys<'_>, architecture: &Architecture) -> Result<SoftCaps, Problem> {
    if !architecture.soft_caps {
        return Ok(SoftCaps::NONE);
    }

    let cap = |name: &str| -> Result<Option<f32>, Problem> {
        let found = keys.positive(name)?;
        let found = found.ok_or_else(|| Problem::MissingKey(keys.key(name)))?;
        Ok(Some(found as f32))
    };
    Ok(SoftCaps {
        scores: cap("attn_logit_softcapping")?,
        logits: cap("final_logit_softcapping")?,
    })
}

fn head_dim(keys: &MetadataKeys<'_>, hidden: u32, heads: u32) -> Result<u32, Problem> {
    if keys.get("attention.key_length").is_none() && !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of embedding_length ({hidden})");
        return keys.wrong("attention.head_count", heads, expected);
    }

    let head_dim = keys.size_or("attention.key_length", Ok(hidden / heads))?;
    let values = keys.size_or("attention.value_length", Ok(head_dim))?;
    keys.expect("attention.value_length", values, values == head_dim, || {
        format!("the length of a key ({head_dim})")
    })?;
    keys.expect(
        "attention.head_count",
        heads,
        heads <= MAX_SIZE / head_dim,
        || format!("at most {MAX_SIZE} elements in all heads of {head_dim}"),
    )?;
    Ok(head_dim)
}

fn epsilon(keys: &MetadataKeys<'_>, architecture: &Architecture) -> Result<f32, Problem> {
    let name = match architecture.norm {
        NormKind::Rms => "attention.layer_norm_rms_epsilon",
        NormKind::Layer | NormKind::LayerBiased => "attention.layer_norm_epsilon",
    };
    let epsilon = keys
        .positive(name)?
        .ok_or(Problem::MissingKey(keys.key(name)))?;
    if epsilon < 1.0 {
        Ok(epsilon as f32)
    } else {
        keys.wrong(name, epsilon, "a number below 1")
    }
}

/// The vocabulary's size, which two keys may tell.
fn vocab(keys: &MetadataKeys<'_>) -> Result<u32, Problem> {
    let tokens = match keys.directory.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Some(tokens.len() as u32),
        _ => None,
    };
    let vocab = keys.size_or(
        "vocab_size",
        tokens.ok_or(Problem::MissingKey(keys.key("vocab_size"))),
    )?;
    let tokens = tokens.unwrap_or(vocab);
    keys.expect("vocab_size", vocab, vocab == tokens, || {
        format!("the length of tokenizer.ggml.tokens ({tokens})")
    })?;
    Ok(vocab)
}
