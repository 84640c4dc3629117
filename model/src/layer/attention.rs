//! The attention of a layer.

use crate::config::rope::Rope;
use crate::layer::rope_pairing::RopePairing;

/// The biases of the projections of queries, keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QkvBias {
    /// The projections have no biases.
    None,
    /// Each of the three projections adds a bias.
    Each,
}

/// The norms of queries and keys before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadNorms {
    /// The heads are not normed.
    None,
    /// Each head of queries and keys passes an RMSNorm.
    QueriesAndKeys,
    /// All queries of a token together pass an RMSNorm, and so do all its keys.
    Projections,
}

/// The factor of attention scores.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreScale {
    /// One divided by the square root of this length.
    RootOf(u32),
    /// A factor of the file.
    Factor(f32),
}

impl ScoreScale {
    /// Returns `x` times the factor.
    fn times(self, x: f32) -> f32 {
        match self {
            ScoreScale::RootOf(len) => x / (len as f32).sqrt(),
            ScoreScale::Factor(factor) => x * factor,
        }
    }
}

/// Softmax attention to the keys and values of earlier positions. Several query heads may share a
/// KV head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// The number of query heads, a multiple of `kv_heads`.
    pub heads: u32,
    /// The number of key and value heads.
    pub kv_heads: u32,
    /// The number of elements per head.
    pub head_dim: u32,
    /// The biases of the projections.
    pub bias: QkvBias,
    /// The norms of the heads.
    pub head_norms: HeadNorms,
    /// The dimensions of a head that form a rotary pair.
    pub pairing: RopePairing,
    /// The index of the rotary embedding in [`Config::ropes`](crate::Config::ropes).
    pub rope: u32,
    /// The number of latest positions that a token attends to, including its own, or `None` if it
    /// attends to all of them.
    pub window: Option<u32>,
    /// The factor of the scores. In most models it is the root of `head_dim`.
    pub score_scale: ScoreScale,
    /// The bound of the scores, which are `cap * tanh(score / cap)`, or `None` without a bound.
    pub score_cap: Option<f32>,
    /// Whether each head has an attention sink: a score of the layer that takes part in the softmax,
    /// but has no value.
    pub sinks: bool,
    /// Whether the output projection adds a bias.
    pub output_bias: bool,
}

impl Attention {
    /// Returns the number of rows of the query matrix, which is the number of columns of the output
    /// matrix.
    pub fn q_len(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Returns the number of rows of the key matrix and of the value matrix.
    pub fn kv_len(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Returns the number of rows of the query, key and value matrices together.
    pub fn qkv_len(&self) -> u32 {
        self.q_len() + 2 * self.kv_len()
    }

    /// Returns the number of elements that a norm of queries or keys processes together, of `len`
    /// elements in all heads.
    pub fn normed_at_once(&self, len: u32) -> u32 {
        match self.head_norms {
            HeadNorms::None | HeadNorms::QueriesAndKeys => self.head_dim,
            HeadNorms::Projections => len,
        }
    }

    /// Returns the number of query heads that share a KV head.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads
    }

    /// Returns the number of positions that a token reads if there are `positions` up to its own.
    pub fn attended(&self, positions: u32) -> u32 {
        self.window
            .map_or(positions, |window| positions.min(window))
    }

    /// Returns the bytes of the keys and values of one position, in f16.
    pub fn kv_bytes_per_position(&self) -> u64 {
        u64::from(self.kv_len()) * 2 * 2
    }

    /// Returns the bytes of keys and values that a token reads if there are `positions` up to its
    /// own, in f16.
    pub fn kv_bytes_read(&self, positions: u32) -> u64 {
        self.kv_bytes_per_position() * u64::from(self.attended(positions))
    }

    /// Returns the factor of the scores before the softmax, for heads that are rotated by `rope`.
    ///
    /// If whole heads are rotated, the magnitude of cosine and sine scales each query and each key,
    /// and so the scores by its square. The factor includes it.
    pub(crate) fn score_scale(&self, rope: &Rope) -> f32 {
        let magnitude = if self.rotates_whole_heads(rope) {
            rope.magnitude
        } else {
            1.0
        };
        self.score_scale.times((magnitude * magnitude) as f32)
    }

    /// Returns the factor by which `rope` multiplies cosine and sine, if the scores do not include
    /// it.
    pub(crate) fn angle_magnitude(&self, rope: &Rope) -> f32 {
        if self.rotates_whole_heads(rope) {
            1.0
        } else {
            rope.magnitude as f32
        }
    }

    fn rotates_whole_heads(&self, rope: &Rope) -> bool {
        rope.dim == self.head_dim
    }
}
