//! Projections that the settings name and the tensors lack, or the other way round.
//!
//! PEFT creates a pair of matrices for each module that the settings name, and warns about modules
//! for which the file has none. Such a module keeps its initial values: a product of 0, or random
//! numbers, which cannot be intended.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::adapter::names::{PROJECTIONS, module};
use crate::adapter::patterns::names;

/// The modules that the settings name, among those that can have an adapter.
#[derive(Debug)]
pub(crate) struct AdapterEntry {
    /// The names of the modules or the ends of their names. `None` if they are not known.
    targets: Option<Vec<String>>,
    /// The layers of the modules, or `None` for all layers.
    layers: Option<Vec<u64>>,
    /// The excluded modules, by the ends of their names.
    excluded: Vec<String>,
    /// Whether a missing pair would have random values.
    pub(crate) random: bool,
}

impl AdapterEntry {
    /// Reads the entries of the settings. A regular expression is not evaluated, so it names and
    /// excludes nothing.
    pub(crate) fn read(keys: &Map<String, Value>, targets: Option<&[String]>) -> AdapterEntry {
        let key = |key| keys.get(key).unwrap_or(&Value::Null);

        // The keyword selects all linear layers but the LM head, which are the projections.
        let linear = key("target_modules")
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("all-linear"));
        let all = if linear {
            Some(PROJECTIONS.map(str::to_owned).to_vec())
        } else {
            None
        };
        let unknown = !key("exclude_modules").is_null() && list(key("exclude_modules")).is_none();

        // If layers have another name, none of the projections is in a layer.
        let elsewhere = match key("layers_pattern") {
            Value::String(pattern) => !pattern.is_empty() && pattern != "layers",
            Value::Array(patterns) => !patterns.is_empty() && !patterns.contains(&"layers".into()),
            _ => false,
        };
        let layers = match key("layers_to_transform") {
            Value::Number(layer) => layer.as_u64().map(|layer| vec![layer]),
            Value::Array(layers) if !layers.is_empty() => {
                Some(layers.iter().filter_map(Value::as_u64).collect())
            }
            _ => None,
        };
        let unknown = unknown || elsewhere && layers.is_some();
        AdapterEntry {
            targets: targets.map(<[String]>::to_vec).or(all).filter(|_| !unknown),
            layers,
            excluded: list(key("exclude_modules")).unwrap_or_default(),
            random: keys
                .get("init_lora_weights")
                .is_some_and(|init| matches!(init, Value::Null | Value::Bool(false))),
        }
    }

    /// Returns the modules of these layers that the settings name and for which `is_there` returns
    /// false.
    pub(crate) fn missing(
        &self,
        layers: Range<usize>,
        is_there: impl Fn(usize, usize) -> bool,
    ) -> Vec<String> {
        let all = layers
            .flat_map(|layer| (0..PROJECTIONS.len()).map(move |projection| (layer, projection)));
        let missing = all.filter(|&(layer, projection)| {
            self.has(layer, &module(layer, projection)) && !is_there(layer, projection)
        });
        missing
            .map(|(layer, projection)| module(layer, projection))
            .collect()
    }

    /// Returns true if PEFT would create no pair for a module, and so ignore its tensors.
    pub(crate) fn leaves_out(&self, layer: usize, module: &str) -> bool {
        let excluded = self.excluded.iter().any(|excluded| names(excluded, module));
        excluded || self.targets.is_some() && !self.has(layer, module)
    }

    fn has(&self, layer: usize, module: &str) -> bool {
        let mut targets = self
            .targets
            .iter()
            .flatten()
            .filter(|target| names(target, module))
            .peekable();
        let in_layers = self
            .layers
            .as_ref()
            .is_none_or(|layers| layers.contains(&(layer as u64)));

        // A target that is the whole name of a module contains its layer already, so the list of
        // layers does not matter.
        let whole = targets.clone().any(|target| target == module);
        targets.peek().is_some()
            && (in_layers || whole)
            && !self.excluded.iter().any(|excluded| names(excluded, module))
    }
}

fn list(value: &Value) -> Option<Vec<String>> {
    value.as_array().map(|list| {
        list.iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The modules of two layers that these settings name, as PEFT's `check_target_module_exists`
    /// finds them.
    #[test]
    fn names_the_modules_that_peft_makes_pairs_for() {
        let (q0, q1) = (
            "model.layers.0.self_attn.q_proj",
            "model.layers.1.self_attn.q_proj",
        );
        let q = ["q_proj".to_owned()];
        let whole = [q1.to_owned()];
        let cases: [(&[String], Value, &[&str]); 9] = [
            (&q, json!({}), &[q0, q1]),
            (&q, json!({"layers_to_transform": [1]}), &[q1]),
            (
                &q,
                json!({"layers_to_transform": 0, "layers_pattern": "layers"}),
                &[q0],
            ),
            (
                &q,
                json!({"layers_to_transform": [], "exclude_modules": []}),
                &[q0, q1],
            ),
            (
                &q,
                json!({"layers_to_transform": [0], "layers_pattern": ["h"]}),
                &[],
            ),
            (&whole, json!({"layers_to_transform": [0]}), &[q1]),
            (
                &q,
                json!({"exclude_modules": ["layers.0.self_attn.q_proj"]}),
                &[q1],
            ),
            (&q, json!({"exclude_modules": ["proj"]}), &[q0, q1]),
            (&q, json!({"exclude_modules": ".*0.*"}), &[]),
        ];
        for (targets, keys, expected) in cases {
            let named = AdapterEntry::read(keys.as_object().unwrap(), Some(targets));
            assert_eq!(named.missing(0..2, |_, _| false), expected, "{keys}");
            let kept = [q0, q1]
                .into_iter()
                .enumerate()
                .filter(|(layer, q)| !named.leaves_out(*layer, q));
            let unknown = named.targets.is_none();
            assert!(
                unknown || kept.map(|(_, q)| q).eq(expected.iter().copied()),
                "{keys}"
            );
        }

        let all = json!({"target_modules": "all-linear"});
        let named = AdapterEntry::read(all.as_object().unwrap(), None);
        assert_eq!(named.missing(0..2, |layer, _| layer == 0).len(), 7);
        assert_eq!(
            AdapterEntry::read(&Map::new(), None).missing(0..2, |_, _| false),
            [""; 0]
        );
    }
}
