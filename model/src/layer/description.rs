//! A layer, and the kinds of its two parts.

use crate::layer::attention::Attention;
use crate::layer::feed_forward::{Dense, Experts, GateActivation, SharedExpert};

/// One decoder layer.
///
/// With `x` the residual stream, every forward pass computes `x += mixer(x)` and then `x +=
/// feed_forward(x)`, each with the norms of [`norms`](field@Layer::norms). If the two share a norm,
/// `feed_forward` reads the same `x` as `mixer`.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The positions of the norms around the mixer and the feed-forward.
    pub norms: NormPositions,
    /// The kind of these norms.
    pub norm: NormKind,
    /// The part that reads earlier positions.
    pub mixer: Mixer,
    /// The part that computes each position separately.
    pub feed_forward: FeedForward,
}

/// The positions of the norms around the mixer and the feed-forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormPositions {
    /// The input of each is normed.
    Before,
    /// The input of each is normed, and also its output before it is added to the residual stream.
    BeforeAndAfter,
    /// The output of each is normed before it is added to the residual stream, and the input is not.
    After,
    /// Both read the same input, which is normed once.
    Shared,
}

/// The kind of a norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NormKind {
    /// RMSNorm (Zhang and Sennrich, 2019, <https://arxiv.org/abs/1910.07467>).
    Rms,
    /// LayerNorm (Ba et al., 2016, <https://arxiv.org/abs/1607.06450>) without a bias. It subtracts
    /// the mean first.
    Layer,
    /// LayerNorm with a bias.
    LayerBiased,
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
    /// Several networks, of which each token passes a few.
    Experts(Experts),
}

impl FeedForward {
    /// Returns the number of rows of a gate matrix: of the dense network, or of one expert.
    pub fn width(&self) -> u32 {
        match self {
            FeedForward::Dense(dense) => dense.width,
            FeedForward::Experts(experts) => experts.width,
        }
    }

    /// Returns the activation function of the gates.
    pub fn activation(&self) -> GateActivation {
        match self {
            FeedForward::Dense(dense) => dense.activation,
            FeedForward::Experts(experts) => experts.activation,
        }
    }

    /// Returns the mixture of experts, or `None` if the feed-forward is dense.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::Experts(experts) => Some(experts),
        }
    }

    /// Returns the expert that every token passes, if there is one.
    pub fn shared_expert(&self) -> Option<&SharedExpert> {
        self.experts()?.shared.as_ref()
    }
}

impl Layer {
    /// Returns true if the outputs of the mixer and of the feed-forward are normed.
    pub fn has_norms_after(&self) -> bool {
        match self.norms {
            NormPositions::BeforeAndAfter | NormPositions::After => true,
            NormPositions::Before | NormPositions::Shared => false,
        }
    }

    /// Returns true if the input of the mixer is normed.
    pub fn has_mixer_norm(&self) -> bool {
        match self.norms {
            NormPositions::Before | NormPositions::BeforeAndAfter | NormPositions::Shared => true,
            NormPositions::After => false,
        }
    }

    /// Returns true if the input of the feed-forward is normed separately.
    pub fn has_feed_forward_norm(&self) -> bool {
        match self.norms {
            NormPositions::Before | NormPositions::BeforeAndAfter => true,
            NormPositions::After | NormPositions::Shared => false,
        }
    }

    /// Returns true if the norm of the mixer's input has a bias.
    pub fn has_mixer_norm_bias(&self) -> bool {
        self.has_mixer_norm() && self.norm == NormKind::LayerBiased
    }

    /// Returns true if the feed-forward's input is normed separately, and the norm has a bias.
    pub fn has_feed_forward_norm_bias(&self) -> bool {
        self.has_feed_forward_norm() && self.norm == NormKind::LayerBiased
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
