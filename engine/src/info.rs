//! What a model is, without loading it.

use std::collections::BTreeMap;

use crate::model::{Outline, Weight};

/// Tensors of one role and shape, over all blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// The tensor's name without its block: `attn_q.weight`.
    pub name: String,
    /// Lengths, the contiguous dimension first.
    pub dims: Vec<u64>,
    /// How many tensors are in which number format.
    pub formats: BTreeMap<&'static str, usize>,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The tensors by role, in the order of the forward pass.
pub fn classes(model: &Outline) -> Vec<Class> {
    let mut classes: Vec<Class> = vec![];
    for tensor in model.weights.iter() {
        let name = role(&tensor.name);
        let at = classes.iter().position(|c| c.name == name).unwrap_or_else(|| {
            let dims = tensor.dims.clone();
            classes.push(Class { name: name.to_owned(), dims, formats: BTreeMap::new(), bytes: 0 });
            classes.len() - 1
        });
        *classes[at].formats.entry(tensor.format.name()).or_default() += 1;
        classes[at].bytes += bytes(tensor);
    }
    classes
}

/// `attn_q.weight` of `blk.3.attn_q.weight`.
fn role(name: &str) -> &str {
    name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, role)| role)
}

fn bytes(tensor: &Weight) -> u64 {
    tensor.range.len() as u64
}

/// Bytes of all weights: what [`Decoder::new`](crate::Decoder::new) copies.
pub fn weight_bytes(model: &Outline) -> u64 {
    model.weights.iter().map(bytes).sum()
}

/// Bytes of weights that a token reads: all but the embedding, of which it is one row unless it is the LM
/// head as well.
pub fn token_bytes(model: &Outline) -> u64 {
    let w = &model.weights;
    let all = weight_bytes(model);
    let row = bytes(&w.embed) / u64::from(model.config.vocab);
    if w.head.is_some() { all - bytes(&w.embed) + row } else { all + row }
}

/// Bytes of keys and values that a token reads for each position before it, in f16.
pub fn kv_bytes(model: &Outline) -> u64 {
    let c = &model.config;
    u64::from(c.layers) * u64::from(c.kv_len()) * 2 * 2
}
