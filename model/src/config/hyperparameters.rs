//! A model's hyperparameters.

use crate::architecture::family::Architecture;
use crate::config::rope::Rope;
use crate::problem::Problem;

/// The hyperparameters that define the forward pass of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
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

impl Config {
    /// Whether there are kernels for these sizes: the simple ones, which serve every device and
    /// every number format. Nothing else refuses a model for its sizes.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let Config {
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

    /// Returns the number of rows of the query matrix, which is the number of columns of the output
    /// matrix.
    pub fn q_len(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Returns the number of rows of the key matrix and of the value matrix.
    pub fn kv_len(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Returns the factor of the attention scores before the softmax.
    ///
    /// If whole heads are rotated, the magnitude of cosine and sine scales each query and each key,
    /// and so the scores by its square. The factor includes it.
    pub fn score_scale(&self) -> f32 {
        let magnitude = if self.rotates_whole_heads() {
            self.rope.magnitude
        } else {
            1.0
        };
        (magnitude * magnitude) as f32 / self.score_root()
    }

    /// Returns the factor by which RoPE multiplies cosine and sine, if the scores do not include
    /// it.
    pub fn angle_magnitude(&self) -> f32 {
        if self.rotates_whole_heads() {
            1.0
        } else {
            self.rope.magnitude as f32
        }
    }

    fn rotates_whole_heads(&self) -> bool {
        self.rope.dim == self.head_dim
    }

    /// The root of the length that scores are divided by.
    pub(crate) fn score_root(&self) -> f32 {
        let by_hidden = self.architecture.scores_by_hidden == Some(self.layers);
        (if by_hidden {
            self.hidden / self.heads
        } else {
            self.head_dim
        } as f32)
            .sqrt()
    }

    /// Whether a layer is one of those with a window, between layers without.
    fn is_local(&self, layer: u32) -> bool {
        self.local
            .is_some_and(|local| !(layer + 1).is_multiple_of(local.period))
    }

    /// Returns the number of latest positions that a layer attends to, or `None` if it attends to
    /// all of them. A window as long as the context counts as none.
    pub fn window_of(&self, layer: u32) -> Option<u32> {
        let has = self.local.is_none() || self.is_local(layer);
        self.window.filter(|window| has && *window < self.context)
    }

    /// Returns the different rotary embeddings of the layers. Each layer uses one of them.
    pub fn ropes(&self) -> Vec<Rope> {
        [self.rope]
            .into_iter()
            .chain(self.local.map(|local| local.rope))
            .collect()
    }

    /// Returns the index in [`ropes`](Config::ropes) of a layer's rotary embedding.
    pub fn rope_of(&self, layer: u32) -> u32 {
        self.is_local(layer).into()
    }
}
