//! The layers with a window and the layers without a rotation, in `config.json`.
//!
//! Files say so in several ways: a list with the kind of each layer (`layer_types`,
//! `no_rope_layers`), or the distance between the layers that differ (`sliding_window_pattern`,
//! `no_rope_layer_interval`). transformers prefers the list.

use serde_json::Value;

use crate::architecture::family::{AbsentWindow, LocalRope, Windows};
use crate::config::hyperparameters::Local;
use crate::config::local_layers::LayerPeriod;
use crate::config::rope::Rope;
use crate::folder::json::NamedObject;
use crate::problem::Problem;

/// The window, the rotary embedding, and the layers that have another one.
pub(crate) struct LayerKinds {
    pub(crate) window: Option<u32>,
    pub(crate) rope: Rope,
    pub(crate) local: Option<Local>,
}

/// The rotary embedding of a file, and the base of layers with a window.
pub(crate) struct StoredRope {
    pub(crate) rope: Rope,
    pub(crate) local_base: Option<f64>,
}

/// Reads the window, and which layers have it or are rotated.
pub(crate) fn read(
    keys: NamedObject<'_>,
    windows: Windows,
    stored: StoredRope,
    layers: u32,
) -> Result<LayerKinds, Problem> {
    let StoredRope { rope, local_base } = stored;
    let alike = |window| LayerKinds {
        window,
        rope,
        local: None,
    };
    match windows {
        Windows::None => Ok(alike(None)),
        Windows::Every => Ok(alike(keys.size("sliding_window")?)),
        Windows::Unrotated { period } => {
            let default = keys.size("no_rope_layer_interval")?.unwrap_or(period);
            let named = "no_rope_layers";
            let period = match listed(keys, named, layers, &Value::from(1), &Value::from(0))? {
                Some(period) => period,
                None => default,
            };
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
            period,
            rope: local,
            absent,
        } => {
            let Some(window) = keys.size("sliding_window")? else {
                return match absent {
                    AbsentWindow::Rejected => Err(keys.missing("sliding_window")),
                    AbsentWindow::AllAlike => {
                        check_all_full(keys)?;
                        Ok(alike(None))
                    }
                };
            };
            let of_window = Value::from("sliding_attention");
            let full = Value::from("full_attention");
            let period = match listed(keys, "layer_types", layers, &of_window, &full)? {
                Some(period) => period,
                None => pattern(keys)?.unwrap_or(period),
            };
            let layers = LayerPeriod {
                period,
                rope,
                base: local_base,
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

/// Checks a file without a window.
fn check_all_full(keys: NamedObject<'_>) -> Result<(), Problem> {
    let full = |layer: &Value| layer == "full_attention";
    match keys.get("layer_types") {
        None => Ok(()),
        Some(Value::Array(layers)) if layers.iter().all(full) => Ok(()),
        Some(_) => keys.wrong(
            "layer_types",
            "\"full_attention\" for every layer, because there is no sliding_window",
        ),
    }
}

/// Returns the distance between the layers of the second kind, from a list with one of two kinds for
/// each layer. Returns `None` if the key is absent.
fn listed(
    keys: NamedObject<'_>,
    name: &str,
    layers: u32,
    common: &Value,
    other: &Value,
) -> Result<Option<u32>, Problem> {
    let Some(value) = keys.get(name) else {
        return Ok(None);
    };

    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    let first = list.iter().position(|kind| kind == other);
    let period = first.map_or(layers + 1, |index| index as u32 + 1);
    let kinds = (1..=layers).map(|number| {
        if number.is_multiple_of(period) {
            other
        } else {
            common
        }
    });
    if list.iter().eq(kinds) {
        return Ok(Some(period));
    }

    keys.wrong(
        name,
        format!(
            "a list of {layers} layers with {common} for each but every N-th, and {other} for that"
        ),
    )
}

/// Returns the distance between layers without a window: a number, or letters such as `LLLG`.
fn pattern(keys: NamedObject<'_>) -> Result<Option<u32>, Problem> {
    for name in ["sliding_window_pattern", "_sliding_window_pattern"] {
        if let Some(Value::String(letters)) = keys.get(name) {
            let local = letters.strip_suffix('G').unwrap_or("");
            if local.is_empty() || local.bytes().any(|letter| letter != b'L') {
                return keys.wrong(name, "letters L, and then one G");
            }
            return Ok(Some(letters.len() as u32));
        }

        if let Some(period) = keys.size(name)? {
            return Ok(Some(period));
        }
    }
    Ok(None)
}
