//! The kinds of layers that the pipeline has kernels for.
//!
//! Chunks and batches read the same packed weights and have kernels for the same kinds.

use warpwright_model::Layer;
use warpwright_model::layer::{
    Attention, Dense, FeedForward, GateActivation, HeadNorms, Mixer, NormKind, NormPositions,
};

use super::unsupported::Unsupported;

/// The description of a layer whose kinds the pipeline has kernels for.
///
/// A kind that the pipeline learns is another variant of a field, so the compiler names the places
/// that must launch its kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PipelineLayer {
    pub(crate) norms: PipelineNorms,
    pub(crate) attention: Attention,
    pub(crate) dense: Dense,
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
    /// Returns the description of a layer, or the reason why the pipeline has no kernels for it.
    pub(crate) fn new(layer: &Layer) -> Result<PipelineLayer, Unsupported> {
        let attention = match &layer.mixer {
            Mixer::Attention(attention) => *attention,
        };
        if attention.sinks {
            return Err(Unsupported::Sinks);
        }
        if attention.output_bias {
            return Err(Unsupported::OutputBias);
        }
        match layer.feed_forward.activation() {
            GateActivation::Silu | GateActivation::GeluTanh => {}
            GateActivation::ClampedSwiglu => return Err(Unsupported::ClampedSwiglu),
        }
        let dense = match &layer.feed_forward {
            FeedForward::Dense(dense) => *dense,
            FeedForward::Experts(_) => return Err(Unsupported::Experts),
        };
        match layer.norm {
            NormKind::Rms => {}
            NormKind::Layer => return Err(Unsupported::LayerNorm),
        }
        let norms = match layer.norms {
            NormPositions::Before => PipelineNorms::Before,
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
            dense,
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
