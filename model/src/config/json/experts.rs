//! The mixture of experts in `config.json`.

use serde_json::Value;

use crate::architecture::family::Architecture;
use crate::config::hyperparameters::ExpertLayers;
use crate::config::json::families::{
    ExpertKeys, ExpertLayerKeys, SharedExpertKey, StoredWeighting,
};
use crate::folder::json::NamedObject;
use crate::layer::feed_forward::{ExpertWeighting, Experts, SharedExpert};
use crate::problem::Problem;

/// The most experts that a token passes, as a key of all families.
const CHOSEN: &str = "num_experts_per_tok";

/// Reads the mixture of experts of a model with this number of layers.
pub(crate) fn read(
    keys: NamedObject<'_>,
    names: &ExpertKeys,
    architecture: &Architecture,
    layers: u32,
) -> Result<ExpertLayers, Problem> {
    let count = count(keys, names)?;
    let chosen = keys.required(CHOSEN)?;
    if chosen > count {
        return keys.wrong(CHOSEN, format!("at most {} ({count})", names.count[0]));
    }

    Ok(ExpertLayers {
        experts: Experts {
            count,
            chosen,
            width: keys.required(names.width)?,
            activation: architecture.activation,
            weighting: weighting(keys, names.weighting)?,
            weight_scale: 1.0,
            shared: shared(keys, names.shared)?,
            biases: architecture.sinks_and_biases,
        },
        dense: dense(keys, names.layers, layers)?,
    })
}

/// Reads the number of experts, which one of two keys has.
fn count(keys: NamedObject<'_>, names: &ExpertKeys) -> Result<u32, Problem> {
    let [first, second] = names.count;
    match (keys.size(first)?, keys.size(second)?) {
        (Some(a), Some(b)) if a != b => keys.wrong(second, format!("{a}, the value of {first}")),
        (Some(count), _) | (None, Some(count)) => Ok(count),
        (None, None) => Ok(names.default_count),
    }
}

fn weighting(keys: NamedObject<'_>, stored: StoredWeighting) -> Result<ExpertWeighting, Problem> {
    let of_chosen = match stored {
        StoredWeighting::OfChosen => true,
        StoredWeighting::ByKey => keys.bool("norm_topk_prob")?.unwrap_or(false),
    };
    Ok(if of_chosen {
        ExpertWeighting::SoftmaxOfChosen
    } else {
        ExpertWeighting::Softmax
    })
}

fn shared(
    keys: NamedObject<'_>,
    key: Option<SharedExpertKey>,
) -> Result<Option<SharedExpert>, Problem> {
    let Some(SharedExpertKey { width, gated }) = key else {
        return Ok(None);
    };
    if keys.get(width).and_then(Value::as_u64) == Some(0) {
        return Ok(None);
    }

    let width = keys.size(width)?;
    Ok(width.map(|width| SharedExpert { width, gated }))
}

/// Returns the layers without experts, in order.
fn dense(keys: NamedObject<'_>, which: ExpertLayerKeys, layers: u32) -> Result<Vec<u32>, Problem> {
    match which {
        ExpertLayerKeys::All => Ok(vec![]),
        ExpertLayerKeys::Sparse => {
            let step = keys.size("decoder_sparse_step")?.unwrap_or(1);
            let named = mlp_only(keys, layers)?;
            let is_dense = |layer: &u32| !(layer + 1).is_multiple_of(step) || named.contains(layer);
            Ok((0..layers).filter(is_dense).collect())
        }
    }
}

/// Returns the layers that `mlp_only_layers` names.
fn mlp_only(keys: NamedObject<'_>, layers: u32) -> Result<Vec<u32>, Problem> {
    let name = "mlp_only_layers";
    let Some(value) = keys.get(name) else {
        return Ok(vec![]);
    };
    let layer = |value: &Value| {
        let layer = value.as_u64().and_then(|n| u32::try_from(n).ok());
        layer.filter(|layer| *layer < layers)
    };
    let named = value
        .as_array()
        .and_then(|values| values.iter().map(layer).collect::<Option<Vec<u32>>>());
    match named {
        Some(named) => Ok(named),
        None => keys.wrong(name, format!("a list of layers below {layers}")),
    }
}
