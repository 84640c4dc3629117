//! Rotary position embedding in `config.json`: `rope_theta`, and `rope_scaling`, or
//! `rope_parameters` for both in newer files. The formulas come from `modeling_rope_utils.py` of
//! transformers.

use serde_json::{Map, Value};

use crate::config::json::families::{QueryFactor, ROPE_OBJECTS, RotatedShare};
use crate::config::rope::{Rope, RopeFactors, Scaling, Yarn, YarnBounds};
use crate::folder::json::NamedObject;
use crate::problem::Problem;

/// The keys of each kind of scaling, in addition to the keys that all kinds have.
#[rustfmt::skip] // one kind a line
const KINDS: [(&str, &[&str]); 5] = [
    ("default", &[]),
    ("linear", &["factor"]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]),
    ("yarn", &["factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "truncate", "mscale", "mscale_all_dim", BETA, "max_position_embeddings"]),
    ("longrope", &["short_factor", "long_factor", "factor", "original_max_position_embeddings", "attention_factor"]),
];

/// The key of the factor of queries that depends on their position.
const BETA: &str = "llama_4_scaling_beta";

/// The keys of every kind.
const COMMON: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];

/// The rotary embedding of a folder.
pub(crate) struct FolderRope {
    pub(crate) rope: Rope,
    /// The divisors of its frequencies.
    pub(crate) factors: Option<RopeFactors>,
    /// The base of layers with a window, if the file has another one for them.
    pub(crate) local_base: Option<f64>,
    /// The number of positions at most, if there is a factor of queries beyond them.
    pub(crate) positions: Option<u32>,
}

/// The properties of a model on which its rotary embedding depends.
#[derive(Clone, Copy)]
pub(crate) struct RotatedModel {
    pub(crate) rotated: RotatedShare,
    pub(crate) query_factor: QueryFactor,
    pub(crate) head_dim: u32,
    /// The number of positions.
    pub(crate) context: u32,
}

/// The keys of `rope_parameters` in files with an object for each kind of layer.
const FULL: &str = "full_attention";
const LOCAL: &str = "sliding_attention";

/// Reads a rotary embedding and the divisors of its frequencies.
pub(crate) fn read(config: NamedObject<'_>, model: RotatedModel) -> Result<FolderRope, Problem> {
    let RotatedModel {
        rotated,
        query_factor,
        head_dim,
        context,
    } = model;
    let empty = Map::new();
    let (name, mut values) = scaling(config)?;
    let mut prefix = format!("{name}.");
    let mut local_base = config.positive("rope_local_base_freq")?;
    if let Some(full) = values.and_then(|values| values.get(FULL)) {
        let keys = NamedObject {
            values: values.unwrap_or(&empty),
            prefix: &prefix,
        };
        local_base = of_local_layers(keys)?.or(local_base);
        let Value::Object(full) = full else {
            return keys.wrong(FULL, "an object");
        };
        values = Some(full);
        prefix = format!("{prefix}{FULL}.");
    }

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

    let dim = rotated_dim([keys, config], rotated, head_dim)?;
    let theta = keys
        .positive("rope_theta")?
        .or(config.positive("rope_theta")?);
    let plain = Rope::plain(dim, theta.unwrap_or(10_000.0));
    let (rope, factors) = match kind {
        "linear" => (
            Rope {
                scaling: Scaling::Linear(factor(keys)?),
                ..plain
            },
            None,
        ),
        "llama3" => (plain, Some(RopeFactors::Fixed(llama3(keys, &plain)?))),
        "yarn" => (yarn(keys, plain, context)?, None),
        "longrope" => {
            let (rope, factors) = longrope(config, keys, plain, context)?;
            (rope, Some(factors))
        }
        _ => (plain, None),
    };
    Ok(FolderRope {
        rope,
        factors,
        local_base,
        positions: positions(keys, query_factor, context)?,
    })
}

/// Returns the number of positions in which the factor of queries is 1, if it depends on the position.
fn positions(
    keys: NamedObject<'_>,
    query_factor: QueryFactor,
    context: u32,
) -> Result<Option<u32>, Problem> {
    if keys.get(BETA).and_then(Value::as_f64) == Some(0.0) {
        return Ok(None);
    }
    match (keys.positive(BETA)?, query_factor) {
        (None, _) => Ok(None),
        (Some(_), QueryFactor::None) => keys.wrong(
            BETA,
            "0: queries are not scaled by their position in this family",
        ),
        (Some(_), QueryFactor::BeyondOriginal) => {
            let original = keys.required("original_max_position_embeddings")?;
            Ok(Some(original).filter(|original| *original < context))
        }
    }
}

/// Returns the rotary base of layers with a window, from `rope_parameters` with an object for each
/// kind of layer.
fn of_local_layers(keys: NamedObject<'_>) -> Result<Option<f64>, Problem> {
    let known = |key: &String| key == FULL || key == LOCAL;
    if let Some(stray) = keys.values.keys().find(|key| !known(key)) {
        return keys.wrong(stray, format!("only {FULL} and {LOCAL} in this object"));
    }

    let values = match keys.get(LOCAL) {
        None => return Ok(None),
        Some(Value::Object(values)) => values,
        Some(_) => return keys.wrong(LOCAL, "an object"),
    };
    let prefix = format!("{}.", keys.key(LOCAL));
    let local = NamedObject {
        values,
        prefix: &prefix,
    };
    if let Some(stray) = values.keys().find(|key| !COMMON.contains(&key.as_str())) {
        return local.wrong(stray, "no scaling in layers with a window");
    }

    for name in ["rope_type", "type"] {
        if local.text(name)?.is_some_and(|kind| kind != "default") {
            return local.wrong(name, "\"default\" in layers with a window");
        }
    }

    if local
        .positive("partial_rotary_factor")?
        .is_some_and(|share| share != 1.0)
    {
        return local.wrong(
            "partial_rotary_factor",
            "1: these families rotate whole heads",
        );
    }

    local.positive("rope_theta")
}

/// Returns the number of elements of a head that are rotated.
fn rotated_dim(
    keys: [NamedObject<'_>; 2],
    rotated: RotatedShare,
    head_dim: u32,
) -> Result<u32, Problem> {
    let default = match rotated {
        RotatedShare::Whole => 1.0,
        RotatedShare::Stored(share) => share,
    };
    let mut found = None;
    for of in keys {
        let name = "partial_rotary_factor";
        let Some(share) = of.positive(name)? else {
            continue;
        };
        if rotated == RotatedShare::Whole && share != 1.0 {
            return of.wrong(name, "1: these families rotate whole heads");
        }
        // transformers drops the fraction of the product.
        let dim = (f64::from(head_dim) * share) as u32;
        if share > 1.0 || dim == 0 || !dim.is_multiple_of(2) {
            return of.wrong(
                name,
                format!("a share of {head_dim} that is an even number from 2 to {head_dim}"),
            );
        }
        found = found.or(Some(dim));
    }

    let default = (f64::from(head_dim) * default) as u32;
    Ok(found.unwrap_or(default.next_multiple_of(2)))
}

/// Reads the divisors of short and of long contexts (`_compute_longrope_parameters` in
/// transformers).
fn longrope(
    config: NamedObject<'_>,
    keys: NamedObject<'_>,
    rope: Rope,
    context: u32,
) -> Result<(Rope, RopeFactors), Problem> {
    let name = "original_max_position_embeddings";
    // The key outside of the object comes first.
    let original = match config.size(name)? {
        Some(original) => original,
        None => keys.size(name)?.unwrap_or(context),
    };
    let factor = match keys.positive("factor")? {
        Some(factor) => factor,
        None => f64::from(context) / f64::from(original),
    };
    let magnitude = match keys.positive("attention_factor")? {
        Some(magnitude) => magnitude,
        None if factor <= 1.0 => 1.0,
        None => (1.0 + factor.ln() / f64::from(original).ln()).sqrt(),
    };
    if !magnitude.is_finite() {
        return keys.wrong(name, "a number above 1, whose logarithm divides");
    }

    let count = rope.dim as usize / 2;
    let divisors = |name: &str| {
        let list = keys.get(name).and_then(Value::as_array);
        let numbers = list.map(|list| list.iter().map(Value::as_f64).collect::<Vec<_>>());
        let positive = |x: &Option<f64>| x.is_some_and(|x| x.is_finite() && x > 0.0);
        match numbers {
            Some(numbers) if numbers.len() == count && numbers.iter().all(positive) => {
                Ok(numbers.into_iter().flatten().map(|x| x as f32).collect())
            }
            _ => keys.wrong(name, format!("a list of {count} numbers above zero")),
        }
    };
    let factors = RopeFactors::ByContext {
        original,
        short: divisors("short_factor")?,
        long: divisors("long_factor")?,
    };
    Ok((Rope { magnitude, ..rope }, factors))
}

/// An object's name, and the object, if it is there.
type Parameters<'a> = (&'static str, Option<&'a Map<String, Value>>);

/// The object with the parameters. Files in which both names say something must say the same.
fn scaling<'a>(config: NamedObject<'a>) -> Result<Parameters<'a>, Problem> {
    let [new, old] = ROPE_OBJECTS;
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
/// magnitude for cosine and sine, the formula of the paper applies, or the ratio of two such formulas
/// if the file has a factor of each.
fn yarn(keys: NamedObject<'_>, rope: Rope, context: u32) -> Result<Rope, Problem> {
    let bounds = match keys.bool("truncate")? {
        Some(false) => YarnBounds::Exact,
        Some(true) | None => YarnBounds::Whole,
    };
    let factor = factor(keys)?;
    let scaling = Scaling::Yarn(Yarn {
        bounds,
        factor,
        original_context: keys
            .size("original_max_position_embeddings")?
            .unwrap_or(context),
        beta_fast: keys.positive("beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.positive("beta_slow")?.unwrap_or(1.0),
    });
    let stored = keys.positive("attention_factor")?;
    let scales = [keys.positive("mscale")?, keys.positive("mscale_all_dim")?];
    let magnitude = match (stored, scales) {
        (Some(stored), _) => stored,
        (None, [Some(above), Some(below)]) => {
            let scaled = |scale: f64| 1.0 + scale * (scaling.magnitude() - 1.0);
            scaled(above) / scaled(below)
        }
        (None, _) => scaling.magnitude(),
    };
    Ok(Rope {
        scaling,
        magnitude,
        ..rope
    })
}
