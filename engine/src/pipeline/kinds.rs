//! The kinds of layers that the pipeline has kernels for.
//!
//! Chunks and batches read the same packed weights and have kernels for the same kinds.

use warpwright_model::Layer;
use warpwright_model::layer::{
    Attention, Dense, DenseForm, Experts, FeedForward, GateActivation, HeadNorms, Mixer, NormKind,
    NormPositions,
};

use super::gemv_kind::GemvKind;
use super::unsupported::Unsupported;

/// The description of a layer whose kinds the pipeline has kernels for.
///
/// A kind that the pipeline learns is another variant of a field, so the compiler names the places
/// that must launch its kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PipelineLayer {
    pub(crate) norms: PipelineNorms,
    pub(crate) attention: Attention,
    pub(crate) feed_forward: PipelineFeedForward,
}

/// The kinds of feed-forward networks that the pipeline has kernels for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PipelineFeedForward {
    Dense(Dense),
    /// A mixture of experts without a shared one.
    Experts(Experts),
}

impl PipelineFeedForward {
    /// Returns the number of rows of a gate matrix: of the dense network, or of one expert.
    pub(crate) fn width(&self) -> u32 {
        match self {
            PipelineFeedForward::Dense(dense) => dense.width,
            PipelineFeedForward::Experts(experts) => experts.width,
        }
    }

    /// Returns the activation function of the gates.
    pub(crate) fn activation(&self) -> GateActivation {
        match self {
            PipelineFeedForward::Dense(dense) => dense.activation,
            PipelineFeedForward::Experts(experts) => experts.activation,
        }
    }
}

/// The positions of RMSNorms around the mixer and the feed-forward that the pipeline has kernels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipelineNorms {
    /// The input of each is normed.
    Before,
    /// The input of each is normed, and also its output before it is added to the residual stream.
    BeforeAndAfter,
}

impl PipelineLayer {
    /// Returns the bytes that a GEMV reads of its tiles. Of experts, it reads the chosen ones.
    pub(crate) fn read_bytes(&self, product: GemvKind, tiles: u64) -> u64 {
        match (product, &self.feed_forward) {
            (GemvKind::GateUp | GemvKind::Down, PipelineFeedForward::Experts(experts)) => {
                tiles / u64::from(experts.count) * u64::from(experts.chosen)
            }
            _ => tiles,
        }
    }

    /// Returns the dense feed-forward, or the reason why the kernels for several tokens do not support
    /// the layer.
    pub(crate) fn dense(&self) -> Result<Dense, Unsupported> {
        if self.attention.sinks {
            return Err(Unsupported::Sinks);
        }
        if self.attention.output_bias {
            return Err(Unsupported::OutputBias);
        }
        match self.feed_forward {
            PipelineFeedForward::Dense(dense) => Ok(dense),
            PipelineFeedForward::Experts(_) => Err(Unsupported::Experts),
        }
    }

    /// Returns the description of a layer, or the reason why the pipeline has no kernels for it.
    pub(crate) fn new(layer: &Layer) -> Result<PipelineLayer, Unsupported> {
        let attention = match &layer.mixer {
            Mixer::Attention(attention) => *attention,
        };
        let feed_forward = match &layer.feed_forward {
            FeedForward::Dense(dense) => match (dense.form, dense.activation) {
                (DenseForm::PlainBiased, _) => return Err(Unsupported::PlainFeedForward),
                (DenseForm::Gated, GateActivation::Silu | GateActivation::GeluTanh) => {
                    PipelineFeedForward::Dense(*dense)
                }
                (DenseForm::Gated, GateActivation::ClampedSwiglu) => {
                    return Err(Unsupported::ClampedSwiglu);
                }
            },
            FeedForward::Experts(experts) if experts.shared.is_some() => {
                return Err(Unsupported::SharedExpert);
            }
            FeedForward::Experts(experts) => PipelineFeedForward::Experts(*experts),
        };
        match layer.norm {
            NormKind::Rms => {}
            NormKind::Layer | NormKind::LayerBiased => return Err(Unsupported::LayerNorm),
        }
        let norms = match layer.norms {
            NormPositions::Before => PipelineNorms::Before,
            NormPositions::BeforeAndAfter if layer.feed_forward.experts().is_some() => {
                return Err(Unsupported::NormedExperts);
            }
            NormPositions::BeforeAndAfter if attention.output_bias => {
                return Err(Unsupported::OutputBias);
            }
            NormPositions::BeforeAndAfter => PipelineNorms::BeforeAndAfter,
            NormPositions::After => return Err(Unsupported::OutputNorms),
            NormPositions::Shared => return Err(Unsupported::ParallelBlock),
        };
        match attention.head_norms {
            HeadNorms::None | HeadNorms::QueriesAndKeys => {}
            HeadNorms::Projections => return Err(Unsupported::ProjectionNorms),
        }
        if attention.score_cap.is_some() {
            return Err(Unsupported::SoftCaps);
        }

        Ok(PipelineLayer {
            norms,
            attention,
            feed_forward,
        })
    }
}

/// The kernel that rotates queries and keys, and appends keys and values to the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appending {
    /// The product of queries, keys and values.
    Product,
    /// A separate kernel, which norms the heads first. A head norm needs a whole head, and a tile of
    /// a product may have a part of one.
    Rotation,
}

impl Appending {
    pub(crate) fn of(attention: &Attention) -> Appending {
        match attention.head_norms {
            HeadNorms::None => Appending::Product,
            HeadNorms::QueriesAndKeys | HeadNorms::Projections => Appending::Rotation,
        }
    }
}
