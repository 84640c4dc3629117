//! The configuration of a forward pass: its layers, and what they share.

use crate::architecture::family::{Architecture, EmbeddingScaling};
use crate::config::rope::Rope;
use crate::layer::attention::Attention;
use crate::layer::description::{Layer, Mixer, NormKind};
use crate::layer::feed_forward::Experts;

/// The configuration of a forward pass: a description of each layer, and what they share.
///
/// [`Hyperparameters::config`](crate::config::Hyperparameters::config) makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The model family.
    pub architecture: &'static Architecture,
    /// The layers, in order.
    pub layers: Vec<Layer>,
    /// The kind of the last norm.
    pub norm: NormKind,
    /// The factor of the embeddings.
    pub embedding_scale: EmbeddingScaling,
    /// The different rotary position embeddings. Each attention uses one of them.
    pub ropes: Vec<Rope>,
    /// The length of the residual stream.
    pub hidden: u32,
    /// The epsilon of each norm.
    pub epsilon: f32,
    /// The bound of the logits, which are `cap * tanh(logit / cap)`, or `None` without a bound.
    pub logit_cap: Option<f32>,
    /// The factor of the logits. The weights of the last norm include it when they are read.
    pub logit_factor: f64,
    /// The number of positions for which the model was made.
    pub context: u32,
    /// The number of tokens in the vocabulary.
    pub vocab: u32,
}

impl Config {
    /// Returns the number of layers.
    pub fn layer_count(&self) -> u32 {
        self.layers.len() as u32
    }

    /// Returns the attention of each layer that has one, in order.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => attention,
        })
    }

    /// Returns the largest value over the attention of all layers. Buffers that the layers share
    /// have such a size.
    pub fn most_of_attention(&self, value: impl Fn(&Attention) -> u32) -> u32 {
        self.attentions().map(value).max().unwrap_or(0)
    }

    /// Returns the largest number of query heads in a layer.
    pub fn heads(&self) -> u32 {
        self.most_of_attention(|attention| attention.heads)
    }

    /// Returns the largest number of key and value heads in a layer.
    pub fn kv_heads(&self) -> u32 {
        self.most_of_attention(|attention| attention.kv_heads)
    }

    /// Returns the largest number of elements per head in a layer.
    pub fn head_dim(&self) -> u32 {
        self.most_of_attention(|attention| attention.head_dim)
    }

    /// Returns the largest number of rows of a query matrix.
    pub fn q_len(&self) -> u32 {
        self.most_of_attention(Attention::q_len)
    }

    /// Returns the largest number of rows of a key matrix.
    pub fn kv_len(&self) -> u32 {
        self.most_of_attention(Attention::kv_len)
    }

    /// Returns the largest number of rows of a gate matrix: of a dense feed-forward, of one expert,
    /// or of a shared expert.
    pub fn feed_forward(&self) -> u32 {
        let widths = self.layers.iter().map(|layer| {
            let shared = layer.feed_forward.shared_expert();
            let shared = shared.map_or(0, |shared| shared.width);
            layer.feed_forward.width().max(shared)
        });
        widths.max().unwrap_or(0)
    }

    /// Returns the mixture of experts of each layer that has one, in order.
    pub fn experts(&self) -> impl Iterator<Item = &Experts> {
        let layers = self.layers.iter();
        layers.filter_map(|layer| layer.feed_forward.experts())
    }

    /// Returns true if some layer norms the outputs of its mixer and its feed-forward.
    pub fn has_norms_after(&self) -> bool {
        self.layers.iter().any(Layer::has_norms_after)
    }

    /// Returns the rotary position embedding of an attention.
    pub fn rope(&self, attention: &Attention) -> &Rope {
        &self.ropes[attention.rope as usize]
    }

    /// Returns the number of cosines and sines of one position, for all rotary embeddings.
    pub fn rotated_len(&self) -> u32 {
        self.ropes.iter().map(|rope| rope.dim).sum()
    }

    /// Returns the length of a row of cosines and sines that has room for whole heads.
    pub fn angles_len(&self) -> u32 {
        self.ropes.len() as u32 * self.head_dim()
    }

    /// Returns the factor of an attention's scores before the softmax.
    pub fn score_scale(&self, attention: &Attention) -> f32 {
        attention.score_scale(self.rope(attention))
    }

    /// Returns the factor by which an attention's rotary embedding multiplies cosine and sine, if
    /// the scores do not include it.
    pub fn angle_magnitude(&self, attention: &Attention) -> f32 {
        attention.angle_magnitude(self.rope(attention))
    }
}
