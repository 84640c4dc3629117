//! A layer, and the kinds of its two parts.

use crate::layer::attention::Attention;
use crate::layer::feed_forward::Dense;

/// One decoder layer.
///
/// With `x` the residual stream, every forward pass computes `x += mixer(x)` and then `x +=
/// feed_forward(x)`, each with the norms of [`norms`](field@Layer::norms).
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The positions of the norms around the mixer and the feed-forward.
    pub norms: NormPositions,
    /// The part that reads earlier positions.
    pub mixer: Mixer,
    /// The part that computes each position separately.
    pub feed_forward: FeedForward,
}

/// The positions of the RMSNorms around the mixer and the feed-forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormPositions {
    /// The input of each is normed.
    Before,
    /// The input of each is normed, and also its output before it is added to the residual stream.
    BeforeAndAfter,
}

/// The part of a layer that reads earlier positions.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
}

/// The part of a layer that computes each position separately.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    /// One network for all tokens.
    Dense(Dense),
}

impl Layer {
    /// Returns true if the outputs of the mixer and of the feed-forward are normed.
    pub fn has_norms_after(&self) -> bool {
        self.norms == NormPositions::BeforeAndAfter
    }

    /// Returns the bytes that the layer keeps for each position, in f16.
    pub fn kv_bytes_per_position(&self) -> u64 {
        match &self.mixer {
            Mixer::Attention(attention) => attention.kv_bytes_per_position(),
        }
    }

    /// Returns the bytes that a token reads of what the layer keeps, in f16, if there are
    /// `positions` up to its own.
    pub fn kv_bytes_read(&self, positions: u32) -> u64 {
        match &self.mixer {
            Mixer::Attention(attention) => attention.kv_bytes_read(positions),
        }
    }
}
