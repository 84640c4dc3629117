//! Reads a model's hyperparameters from a GGUF's metadata, and holds them against each other.

use crate::architecture::family::{Architecture, Windows};
use crate::config::forward::Config;
use crate::config::hyperparameters::{Hyperparameters, Local};
use crate::config::known_keys as known;
use crate::config::rope::{Rope, Scaling};
use crate::gguf::file::Directory;
use crate::gguf::keys::{MAX_SIZE, MetadataKeys};
use crate::gguf::value::Value;
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
        let rope = Rope::read(&keys, head_dim, context)?;
        let (window, local) = windows(&keys, architecture, &rope)?;
        let model = Hyperparameters {
            architecture,
            layers: keys.size("block_count")?,
            hidden,
            feed_forward: keys.size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            rope,
            window,
            local,
            epsilon: epsilon(&keys)?,
            context,
            vocab: vocab(&keys)?,
        };
        known::check_architecture(directory, &model)?;
        model.check()?;
        Ok(model.config())
    }
}

/// The window, and which layers have it.
///
/// A window counts the token's own position: transformers and llama.cpp mask positions whose
/// distance is the window or more.
fn windows(
    keys: &MetadataKeys<'_>,
    architecture: &Architecture,
    rope: &Rope,
) -> Result<(Option<u32>, Option<Local>), Problem> {
    let name = "attention.sliding_window";
    match architecture.windows {
        Windows::None => Ok((None, None)),
        Windows::Every => {
            let absent =
                keys.get(name).and_then(Value::integer) == Some(0) || keys.get(name).is_none();
            Ok((if absent { None } else { Some(keys.size(name)?) }, None))
        }
        Windows::Local { period, rope_base } => {
            // The default of this key belongs to other families, and would apply to the other
            // layers.
            let base = "rope.freq_base";
            keys.get(base)
                .ok_or_else(|| Problem::MissingKey(keys.key(base)))?;
            let period = keys.size_or("attention.sliding_window_pattern", Ok(period))?;
            let base = keys.positive("rope.freq_base_swa")?.unwrap_or(rope_base);
            let scaling = Scaling::Linear(1.0);
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

            let local = Local {
                period,
                rope: Rope {
                    base,
                    scaling,
                    ..*rope
                },
            };
            Ok((Some(keys.size(name)?), Some(local)))
        }
    }
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

fn epsilon(keys: &MetadataKeys<'_>) -> Result<f32, Problem> {
    let name = "attention.layer_norm_rms_epsilon";
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
