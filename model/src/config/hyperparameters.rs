//! The numbers of a model's files, from which its family makes the layers.

use crate::architecture::family::Architecture;
use crate::config::rope::Rope;
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
    /// The number of rows of the gate and up matrices.
    pub feed_forward: u32,
    /// The number of query heads, a multiple of `kv_heads`.
    pub heads: u32,
    /// The number of key and value heads.
    pub kv_heads: u32,
    /// The number of elements per head.
    pub head_dim: u32,
    /// The rotary position embedding.
    pub rope: Rope,
    /// The number of latest positions that a layer with a window attends to, including the token's
    /// own.
    pub window: Option<u32>,
    /// The layers with a window, if only some layers have one.
    pub local: Option<Local>,
    /// The epsilon of each RMSNorm.
    pub epsilon: f32,
    /// The number of positions for which the model was made.
    pub context: u32,
    /// The number of tokens in the vocabulary.
    pub vocab: u32,
}

/// The layout of a model in which only some layers have a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Local {
    /// The period of layers without a window: those whose number, counted from 1, is a multiple of
    /// it.
    pub period: u32,
    /// The rotary position embedding of the layers with a window.
    pub rope: Rope,
}

/// The most heads of queries.
const MAX_HEADS: u32 = 1 << 16;

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
        match sizes.into_iter().find(|(_, _, holds, _)| !holds) {
            Some((what, found, _, supported)) => Err(Problem::Size {
                what,
                found,
                supported,
            }),
            None => Ok(()),
        }
    }
}
