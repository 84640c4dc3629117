//! Facts about a model that need no weights: sizes, formats and memory traffic.

use std::collections::{BTreeMap, BTreeSet};

use crate::adapter::data::Formats;
use crate::architecture::outline::{Outline, Weight};
use crate::architecture::roles::Block;
use crate::format::weight_format::WeightFormat;
use crate::layer::description::Layer;

/// The tensors of one role and shape, over all blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightClass {
    /// The name of the tensors without the block, such as `attn_q.weight`.
    pub name: String,
    /// The dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    /// The number of tensors in each number format.
    pub formats: BTreeMap<&'static str, usize>,
    /// The total bytes.
    pub bytes: u64,
}

/// Returns the tensors by role, in the order of the forward pass.
pub fn classes(model: &Outline) -> Vec<WeightClass> {
    let mut classes: Vec<WeightClass> = vec![];
    let mut counted = BTreeSet::new();
    for tensor in model.weights.iter() {
        let name = role(&tensor.name);
        let at = classes
            .iter()
            .position(|c| c.name == name)
            .unwrap_or_else(|| {
                let dims = tensor.fused.as_ref().unwrap_or(&tensor.dims).clone();
                classes.push(WeightClass {
                    name: name.to_owned(),
                    dims,
                    formats: BTreeMap::new(),
                    bytes: 0,
                });
                classes.len() - 1
            });

        // A tied LM head is the embedding again. It counts once.
        let first = counted.insert(&tensor.name);
        *classes[at].formats.entry(format(tensor)).or_default() += usize::from(first);
        classes[at].bytes += bytes(tensor);
    }

    classes
}

/// The tensors of one number format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FormatTotal {
    /// The number of tensors.
    pub tensors: usize,
    /// The number of weights.
    pub numbers: u64,
    /// The total bytes.
    pub bytes: u64,
}

/// Returns the tensors by number format, each counted once. The sum of the weights is the size by
/// which models are named, such as 8B.
pub fn format_totals(model: &Outline) -> BTreeMap<&'static str, FormatTotal> {
    let mut totals = BTreeMap::<_, FormatTotal>::new();
    let mut counted = BTreeSet::new();
    for tensor in model.weights.iter() {
        let total = totals.entry(format(tensor)).or_default();
        total.tensors += usize::from(counted.insert(&tensor.name));
        total.numbers += numbers(tensor);
        total.bytes += bytes(tensor);
    }
    totals
}

/// Returns the number of weights that one token uses: all of a dense model, and of a mixture of
/// experts the chosen ones, the router and the shared expert.
pub fn token_numbers(model: &Outline) -> u64 {
    let all: u64 = model.weights.iter().map(numbers).sum();
    let unused = layers(model).flat_map(|(layer, block)| {
        block.expert_matrices().map(|weight| {
            let all = numbers(weight);
            all - share_of_token(layer, weight, all)
        })
    });
    all - unused.sum::<u64>()
}

/// Returns the role of a tensor: `attn_q.weight` for `blk.3.attn_q.weight`, and
/// `mlp.up_proj.weight` for `model.layers.3.mlp.up_proj.weight`.
fn role(name: &str) -> &str {
    let in_layer = ["blk.", "model.layers."]
        .iter()
        .find_map(|layers| name.strip_prefix(layers));
    in_layer
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_, role)| role)
}

/// Returns the format that kernels read, and the format that it was unpacked from.
fn format(tensor: &Weight) -> &'static str {
    match (tensor.nf4, tensor.format) {
        (Some(_), WeightFormat::F32) => "F32 of NF4",
        (Some(_), WeightFormat::F16) => "F16 of NF4",
        (Some(_), _) => "BF16 of NF4",
        (None, format) => format.name(),
    }
}

fn bytes(tensor: &Weight) -> u64 {
    tensor.range.len() as u64
}

/// Returns the number of layer matrices in each number format.
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

/// Returns the number of weights in the layer matrices that a prompt token is multiplied by. They
/// are all matrices of dense layers. Of a mixture of experts, they are the router, the chosen
/// experts and the shared expert.
pub fn layer_weights(model: &Outline) -> u64 {
    let layers = layers(model);
    layers
        .map(|(layer, block)| {
            let attention = [&block.q, &block.k, &block.v].into_iter().map(numbers);
            attention.sum::<u64>() + weights_after_attention(layer, block)
        })
        .sum()
}

/// Returns the number of weights that a token is multiplied by in a layer after the keys and
/// values: those of the output projection and of the feed-forward.
fn weights_after_attention(layer: &Layer, block: &Block<Weight>) -> u64 {
    let [_, _, _, dense @ ..] = block.projections();
    let dense = dense.into_iter().flatten().map(numbers);
    let routers = [&block.router, &block.shared_router].into_iter().flatten();
    let experts = block.expert_matrices();
    dense.sum::<u64>()
        + routers.map(numbers).sum::<u64>()
        + experts
            .map(|weight| share_of_token(layer, weight, numbers(weight)))
            .sum::<u64>()
}

/// Returns the share of one token in `whole`, which is a number of weights or of bytes: the share
/// of the chosen experts if the weight has the matrices of all experts, and otherwise all.
pub fn share_of_token(layer: &Layer, weight: &Weight, whole: u64) -> u64 {
    match layer.feed_forward.experts() {
        Some(experts) if weight.dims.len() == 3 => {
            whole / u64::from(experts.count) * u64::from(experts.chosen)
        }
        _ => whole,
    }
}

/// Returns the mean share of `tokens` tokens in `whole`, if each token chooses its experts at
/// random: the share of the experts that they read together if the weight has the matrices of all
/// experts, and otherwise all.
pub fn share_of_tokens(layer: &Layer, weight: &Weight, whole: u64, tokens: u32) -> u64 {
    match layer.feed_forward.experts() {
        Some(experts) if weight.dims.len() == 3 => {
            (whole as f64 * experts.share_read(tokens)) as u64
        }
        _ => whole,
    }
}

/// Returns the number of multiplications of a prompt's tokens by layer weights, if it is prefilled
/// in chunks of `chunk` tokens.
///
/// In the last layer, only the last token of a chunk needs more than queries, keys and values, so
/// the other tokens skip the rest.
pub fn chunked_multiplications(model: &Outline, tokens: u32, chunk: u32) -> u64 {
    let spared = u64::from(tokens - tokens.div_ceil(chunk));
    let rest = layers(model).last();
    let rest = rest.map_or(0, |(layer, block)| weights_after_attention(layer, block));
    layer_weights(model) * u64::from(tokens) - rest * spared
}

/// Returns the bytes of the layer matrices that `tokens` tokens read together. Of experts, they are
/// the mean if each token chooses at random.
pub fn layer_bytes(model: &Outline, tokens: u32) -> u64 {
    let read = layers(model).flat_map(|(layer, block)| {
        matrices_of(block).map(move |matrix| {
            let bytes = matrix.format.row_bytes(numbers(matrix) as usize) as u64;
            share_of_tokens(layer, matrix, bytes, tokens)
        })
    });
    read.sum()
}

/// Returns the number of weights in the LM head. A token is multiplied by them only if another
/// token is generated after it.
pub fn head_weights(model: &Outline) -> u64 {
    numbers(model.weights.head())
}

/// Returns the matrices of all layers except the routers of experts.
fn matrices(model: &Outline) -> impl Iterator<Item = &Weight> {
    model.weights.blocks.iter().flat_map(matrices_of)
}

/// Returns the matrices of a layer except the routers of experts.
fn matrices_of(block: &Block<Weight>) -> impl Iterator<Item = &Weight> {
    let dense = block.projections().into_iter().flatten();
    dense.chain(block.expert_matrices())
}

/// Returns each layer with its weights.
fn layers(model: &Outline) -> impl Iterator<Item = (&Layer, &Block<Weight>)> {
    model.config.layers.iter().zip(&model.weights.blocks)
}

fn numbers(weight: &Weight) -> u64 {
    weight.dims.iter().product()
}

/// Returns the bytes of keys and values that a token reads if it attends to `attended` positions,
/// in f16. Layers with a sliding window read at most their window.
pub fn kv_bytes_read(model: &Outline, attended: u32) -> u64 {
    let layers = model.config.layers.iter();
    layers.map(|layer| layer.kv_bytes_read(attended)).sum()
}

/// Returns the bytes of keys and values per position over all layers, in f16. A token in a model
/// without sliding windows reads this much for each position before it.
pub fn kv_bytes(model: &Outline) -> u64 {
    let layers = model.config.layers.iter();
    layers.map(Layer::kv_bytes_per_position).sum()
}
