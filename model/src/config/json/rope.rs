//! Rotary position embedding in `config.json`: `rope_theta`, and `rope_scaling`, or
//! `rope_parameters` for both in newer files. The formulas come from `modeling_rope_utils.py` of
//! transformers.

use serde_json::{Map, Value};

use crate::config::rope::{Rope, RopeFactors, Scaling, Yarn};
use crate::folder::json::NamedObject;
use crate::problem::Problem;

/// The keys of each kind of scaling, in addition to the keys that all kinds have.
#[rustfmt::skip] // one kind a line
const KINDS: [(&str, &[&str]); 4] = [
    ("default", &[]),
    ("linear", &["factor"]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]),
    ("yarn", &["factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "truncate"]),
];

/// The keys of every kind.
const COMMON: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];

/// Reads a rotary embedding and the divisors of its frequencies.
pub(crate) fn read(
    config: NamedObject<'_>,
    head_dim: u32,
    context: u32,
) -> Result<(Rope, Option<RopeFactors>), Problem> {
    let empty = Map::new();
    let (name, values) = scaling(config)?;
    let prefix = format!("{name}.");
    let keys = NamedObject {
        values: values.unwrap_or(&empty),
        prefix: &prefix,
    };
    let kind = match keys.text("rope_type")? {
        None => keys.text("type")?.unwrap_or("default"),
        Some(kind) => kind,
    };
    let Some((_, known)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        let supported = KINDS.map(|(kind, _)| kind).join(", ");
        return Err(Problem::RopeType {
            key: keys.key("rope_type"),
            found: kind.to_owned(),
            supported,
        });
    };

    if let Some(stray) = keys
        .values
        .keys()
        .find(|key| !COMMON.contains(&key.as_str()) && !known.contains(&key.as_str()))
    {
        let why = "it is not known for this kind of scaling, so the model could run wrongly";
        let found = keys
            .get(stray)
            .map_or("null".to_owned(), crate::folder::json::shown);
        return Err(Problem::RefusedKey {
            key: keys.key(stray),
            found,
            why,
        });
    }

    for of in [config, keys] {
        if of
            .positive("partial_rotary_factor")?
            .is_some_and(|share| share != 1.0)
        {
            return of.wrong(
                "partial_rotary_factor",
                "1: these families rotate whole heads",
            );
        }
    }

    let theta = keys
        .positive("rope_theta")?
        .or(config.positive("rope_theta")?);
    let plain = Rope::plain(head_dim, theta.unwrap_or(10_000.0));
    match kind {
        "linear" => Ok((
            Rope {
                scaling: Scaling::Linear(factor(keys)?),
                ..plain
            },
            None,
        )),
        "llama3" => Ok((plain, Some(RopeFactors::Fixed(llama3(keys, &plain)?)))),
        "yarn" => Ok((yarn(keys, plain, context)?, None)),
        _ => Ok((plain, None)),
    }
}

/// An object's name, and the object, if it is there.
type Parameters<'a> = (&'static str, Option<&'a Map<String, Value>>);

/// The object with the parameters. Files in which both names say something must say the same.
fn scaling<'a>(config: NamedObject<'a>) -> Result<Parameters<'a>, Problem> {
    let [new, old] = ["rope_parameters", "rope_scaling"];
    let object = |name: &str| match config.get(name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => config.wrong(name, "an object"),
    };
    match (object(new)?, object(old)?) {
        (Some(parameters), Some(scaling)) if parameters != scaling => {
            config.wrong(old, "the same as rope_parameters, or none")
        }
        (Some(parameters), _) => Ok((new, Some(parameters))),
        (None, scaling) => Ok((old, scaling)),
    }
}

fn factor(keys: NamedObject<'_>) -> Result<f64, Problem> {
    let factor = required(keys, "factor")?;
    if factor < 1.0 || factor.is_nan() {
        return keys.wrong("factor", "a number from 1 up");
    }
    Ok(factor)
}

fn required(keys: NamedObject<'_>, name: &str) -> Result<f64, Problem> {
    keys.positive(name)?.ok_or_else(|| keys.missing(name))
}

/// `_compute_llama3_parameters`: long waves are divided by the factor, short ones by 1, and those
/// between by a mean.
fn llama3(keys: NamedObject<'_>, rope: &Rope) -> Result<Vec<f32>, Problem> {
    let factor = factor(keys)?;
    let [low, high] = [
        required(keys, "low_freq_factor")?,
        required(keys, "high_freq_factor")?,
    ];
    let original = f64::from(keys.required("original_max_position_embeddings")?);
    if high <= low {
        return keys.wrong(
            "high_freq_factor",
            format!("a number above low_freq_factor ({low})"),
        );
    }

    let divisor = |revolutions: f64| {
        let wave = 1.0 / revolutions;
        match wave {
            wave if wave < original / high => 1.0,
            wave if wave > original / low => factor,
            wave => {
                let kept = (original / wave - low) / (high - low);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        }
    };
    Ok(rope
        .revolutions(None)
        .into_iter()
        .map(|revolutions| divisor(revolutions) as f32)
        .collect())
}

/// Reads the settings of YaRN (`_compute_yarn_parameters` in transformers). If the file has no
/// magnitude for cosine and sine, the formula of the paper applies.
fn yarn(keys: NamedObject<'_>, rope: Rope, context: u32) -> Result<Rope, Problem> {
    if keys.bool("truncate")? == Some(false) {
        return keys.wrong(
            "truncate",
            "true: bounds between two pairs are not supported",
        );
    }

    let factor = factor(keys)?;
    let scaling = Scaling::Yarn(Yarn {
        factor,
        original_context: keys
            .size("original_max_position_embeddings")?
            .unwrap_or(context),
        beta_fast: keys.positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.positive("beta_slow")?.unwrap_or(1.0),
    });
    let magnitude = keys
        .positive("attention_factor")?
        .unwrap_or(scaling.magnitude());
    Ok(Rope {
        scaling,
        magnitude,
        ..rope
    })
}
