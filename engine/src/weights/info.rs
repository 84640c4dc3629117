//! What a model is, without loading it.

use std::collections::{BTreeMap, BTreeSet};

use warpwright_kernels::Format;

use crate::adapter::data::Formats;
use crate::adapter::tiles;
use crate::model::config::Config;
use crate::model::outline::{Outline, Weight};
use crate::model::roles::Block;
use crate::weights::packed::packed;

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
    let mut counted = BTreeSet::new();
    for tensor in model.weights.iter() {
        let name = role(&tensor.name);
        let at = classes
            .iter()
            .position(|c| c.name == name)
            .unwrap_or_else(|| {
                let dims = tensor.fused.as_ref().unwrap_or(&tensor.dims).clone();
                classes.push(Class {
                    name: name.to_owned(),
                    dims,
                    formats: BTreeMap::new(),
                    bytes: 0,
                });
                classes.len() - 1
            });
        let first = counted.insert(&tensor.name);
        *classes[at].formats.entry(format(tensor)).or_default() += usize::from(first);
        classes[at].bytes += bytes(tensor);
    }
    classes
}

/// Tensors of one number format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mix {
    /// How many.
    pub tensors: usize,
    /// Their weights.
    pub numbers: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The tensors by number format, each once. The sum of the numbers is what a model's size is named by.
pub fn mix(model: &Outline) -> BTreeMap<&'static str, Mix> {
    let (mut mixes, mut counted) = (BTreeMap::<_, Mix>::new(), BTreeSet::new());
    for tensor in model.weights.iter() {
        let mix = mixes.entry(format(tensor)).or_default();
        mix.tensors += usize::from(counted.insert(&tensor.name));
        mix.numbers += numbers(tensor);
        mix.bytes += bytes(tensor);
    }
    mixes
}

/// `attn_q.weight` of `blk.3.attn_q.weight`, and `mlp.up_proj.weight` of `model.layers.3.mlp.up_proj.weight`.
fn role(name: &str) -> &str {
    let in_layer = ["blk.", "model.layers."]
        .iter()
        .find_map(|layers| name.strip_prefix(layers));
    in_layer
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_, role)| role)
}

/// The format that kernels read, and which it was unpacked from.
fn format(tensor: &Weight) -> &'static str {
    match (tensor.nf4, tensor.format) {
        (Some(_), Format::F32) => "F32 of NF4",
        (Some(_), Format::F16) => "F16 of NF4",
        (Some(_), _) => "BF16 of NF4",
        (None, format) => format.name(),
    }
}

fn bytes(tensor: &Weight) -> u64 {
    tensor.range.len() as u64
}

/// Bytes of all weights on a device: what [`Decoder::new`](crate::Decoder::new) copies. Packing moves bits and adds
/// none, so they are the same for the simple kernels.
pub fn weight_bytes(model: &Outline) -> u64 {
    packed(model)
        .iter()
        .map(|stored| stored.bytes() as u64)
        .sum()
}

/// Bytes of an adapter on a device: its matrices, filled up with zeros, and what they make of a few tokens; 0 without
/// one.
pub fn adapter_bytes(model: &Outline) -> u64 {
    tiles::bytes(model)
}

/// How many matrices of the layers are in which number format.
pub fn layer_formats(model: &Outline) -> Formats {
    let mut formats = Formats::new();
    for matrix in matrices(model) {
        let name = if matrix.nf4.is_some() {
            "NF4"
        } else {
            matrix.format.name()
        };
        *formats.entry(name.to_owned()).or_default() += 1;
    }
    formats
}

/// Weights that a token of a prompt is multiplied with: those of all matrices of the layers.
pub fn layer_weights(model: &Outline) -> u64 {
    matrices(model).map(numbers).sum()
}

/// Multiplications of a prompt's tokens with weights of the layers, if it is prefilled in chunks of so many tokens. Of a
/// chunk's tokens, the last layer multiplies all but the last one with queries, keys and values alone.
pub fn chunked_multiplications(model: &Outline, tokens: u32, chunk: u32) -> u64 {
    let spared = u64::from(tokens - tokens.div_ceil(chunk));
    let rest = model.weights.blocks.last().map_or(0, |block| {
        [&block.o, &block.gate, &block.up, &block.down]
            .into_iter()
            .map(numbers)
            .sum()
    });
    layer_weights(model) * u64::from(tokens) - rest * spared
}

/// Bytes of the weights of all matrices of the layers.
pub fn layer_bytes(model: &Outline) -> u64 {
    matrices(model)
        .map(|matrix| matrix.format.row_bytes(numbers(matrix) as usize) as u64)
        .sum()
}

/// Weights of the LM head, with which a token is multiplied that another one follows.
pub fn head_weights(model: &Outline) -> u64 {
    numbers(model.weights.head())
}

/// The matrices of all layers.
fn matrices(model: &Outline) -> impl Iterator<Item = &Weight> {
    model.weights.blocks.iter().flat_map(Block::projections)
}

fn numbers(weight: &Weight) -> u64 {
    weight.dims.iter().product()
}

/// Bytes of weights that a token reads: all but the embedding, of which it is one row unless it is the LM
/// head as well.
pub fn token_bytes(model: &Outline) -> u64 {
    let embed = packed(model)
        .embed
        .map_or(0, |stored| stored.bytes() as u64);
    weight_bytes(model) - embed + bytes(&model.weights.embed) / u64::from(model.config.vocab)
}

/// Bytes of keys and values that a token reads that attends to this many positions, in f16: fewer than
/// [`kv_bytes`] for each where layers have a window.
pub fn kv_bytes_read(model: &Outline, attended: u32) -> u64 {
    (0..model.config.layers)
        .map(|layer| kv_bytes_of(&model.config, layer, attended))
        .sum()
}

/// The same of one layer.
pub(crate) fn kv_bytes_of(c: &Config, layer: u32, attended: u32) -> u64 {
    let attended = c
        .window_of(layer)
        .map_or(attended, |window| attended.min(window));
    kv_position_bytes(c) * u64::from(attended)
}

/// Bytes of the keys and values of a position of a layer.
pub(crate) fn kv_position_bytes(c: &Config) -> u64 {
    u64::from(c.kv_len()) * 2 * 2
}

/// Bytes of keys and values that a token without windows reads for each position before it, in f16.
pub fn kv_bytes(model: &Outline) -> u64 {
    let c = &model.config;
    u64::from(c.layers) * kv_position_bytes(c)
}
