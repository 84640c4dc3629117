//! The numbers of a model's files, from which its family makes the layers.

use crate::architecture::family::Architecture;
use crate::config::rope::Rope;
use crate::layer::attention::QkvBias;
use crate::layer::feed_forward::Experts;
use crate::problem::Problem;

/// The numbers of a model's files that define its forward pass.
///
/// [`config`](Hyperparameters::config) makes a description of each layer from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparameters {
    /// The model family.
    pub architecture: &'static Architecture,
    /// The number of transformer blocks.
    pub layers: u32,
    /// The length of the residual stream.
    pub hidden: u32,
    /// The number of rows of the gate and up matrices of dense layers, or 0 in a model without
    /// dense layers.
    pub feed_forward: u32,
    /// The mixture of experts, in models that have one.
    pub experts: Option<ExpertLayers>,
    /// The number of query heads, a multiple of `kv_heads`.
    pub heads: u32,
    /// The number of key and value heads.
    pub kv_heads: u32,
    /// The number of elements per head.
    pub head_dim: u32,
    /// The biases of the projections of queries, keys and values.
    pub bias: QkvBias,
    /// The rotary position embedding.
    pub rope: Rope,
    /// The number of latest positions that a layer with a window attends to, including the token's
    /// own.
    pub window: Option<u32>,
    /// The layers with a window, if only some layers have one.
    pub local: Option<Local>,
    /// The factors of embeddings, residuals, scores and logits.
    pub factors: Factors,
    /// The bounds of scores and logits.
    pub caps: SoftCaps,
    /// The epsilon of each norm.
    pub epsilon: f32,
    /// The number of positions for which the model was made.
    pub context: u32,
    /// The number of tokens in the vocabulary.
    pub vocab: u32,
}

/// The mixture of experts of a model, and its dense layers.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertLayers {
    /// The mixture of experts, which all layers with experts have.
    pub experts: Experts,
    /// The layers without experts, in order. They have a dense feed-forward.
    pub dense: Vec<u32>,
}

impl ExpertLayers {
    /// Returns true if the layer has a dense feed-forward instead of experts.
    pub(crate) fn is_dense(&self, layer: u32) -> bool {
        self.dense.contains(&layer)
    }
}

/// The layout of a model with two kinds of layers: only some have a window, or are rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Local {
    /// The period of layers without a window or a rotation: those whose number, counted from 1, is a
    /// multiple of it.
    pub period: u32,
    /// The rotary position embedding of the other layers.
    pub rope: Rope,
}

/// The factors of embeddings, residuals, scores and logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// The factor of the embeddings.
    pub embedding: f64,
    /// The factor of the outputs of attention and the feed-forward, before they are added to the
    /// residual stream.
    pub residual: f64,
    /// The factor of the scores, or `None` if it follows from the length of a head.
    pub scores: Option<f64>,
    /// The factor of the logits.
    pub logits: f64,
}

impl Factors {
    /// No factor.
    pub const NONE: Factors = Factors {
        embedding: 1.0,
        residual: 1.0,
        scores: None,
        logits: 1.0,
    };
}

/// The bounds of attention scores and logits, which are `cap * tanh(x / cap)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftCaps {
    /// The bound of the scores.
    pub scores: Option<f32>,
    /// The bound of the logits.
    pub logits: Option<f32>,
}

impl SoftCaps {
    /// No bound.
    pub const NONE: SoftCaps = SoftCaps {
        scores: None,
        logits: None,
    };
}

/// The most heads of queries.
const MAX_HEADS: u32 = 1 << 16;
/// The most experts of a layer, as in llama.cpp.
const MAX_EXPERTS: u32 = 512;
/// The most experts that a token passes.
const MAX_CHOSEN: u32 = 32;

impl Hyperparameters {
    /// Whether there are kernels for these sizes: the simple ones, which serve every device and
    /// every number format. Nothing else refuses a model for its sizes.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let Hyperparameters {
            head_dim,
            hidden,
            feed_forward,
            heads,
            ..
        } = *self;
        let sizes = [
            (
                "the length of a head",
                head_dim,
                head_dim % 8 == 0 && head_dim <= 256,
                "a multiple of 8 up to 256",
            ),
            (
                "the hidden length",
                hidden,
                hidden % 4 == 0,
                "a multiple of 4",
            ),
            (
                "the feed-forward length",
                feed_forward,
                feed_forward % 4 == 0,
                "a multiple of 4",
            ),
            (
                "the number of heads",
                heads,
                heads <= MAX_HEADS,
                "at most 65536",
            ),
        ];
        let experts = self.experts.iter().flat_map(|layers| {
            let Experts {
                count,
                chosen,
                width,
                shared,
                ..
            } = layers.experts;
            let shared = shared.map_or(0, |shared| shared.width);
            [
                (
                    "the number of experts",
                    count,
                    (1..=MAX_EXPERTS).contains(&count),
                    "from 1 to 512",
                ),
                (
                    "the number of experts per token",
                    chosen,
                    (1..=MAX_CHOSEN.min(count)).contains(&chosen),
                    "from 1 to 32, and at most the number of experts",
                ),
                (
                    "the feed-forward length of an expert",
                    width,
                    width > 0 && width % 4 == 0,
                    "a multiple of 4",
                ),
                (
                    "the feed-forward length of the shared expert",
                    shared,
                    shared % 4 == 0,
                    "a multiple of 4",
                ),
            ]
        });
        let mut sizes = sizes.into_iter().chain(experts);
        match sizes.find(|(_, _, holds, _)| !holds) {
            Some((what, found, _, supported)) => Err(Problem::Size {
                what,
                found,
                supported,
            }),
            None => Ok(()),
        }
    }
}
