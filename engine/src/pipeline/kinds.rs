//! The kinds of layers that the pipeline has kernels for.
//!
//! Chunks and batches read the same packed weights and have kernels for the same kinds.

use warpwright_model::Layer;
use warpwright_model::layer::{Attention, Dense, FeedForward, HeadNorms, Mixer, NormPositions};

use super::unsupported::Unsupported;

/// The description of a layer whose kinds the pipeline has kernels for.
///
/// A kind that the pipeline learns is another variant of a field, so the compiler names the places
/// that must launch its kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PipelineLayer {
    pub(crate) norms: NormPositions,
    pub(crate) attention: Attention,
    pub(crate) dense: Dense,
}

impl PipelineLayer {
    /// Returns the description of a layer, or the reason why the pipeline has no kernels for it.
    pub(crate) fn new(layer: &Layer) -> Result<PipelineLayer, Unsupported> {
        let attention = match &layer.mixer {
            Mixer::Attention(attention) => *attention,
        };
        let dense = match &layer.feed_forward {
            FeedForward::Dense(dense) => *dense,
        };
        Ok(PipelineLayer {
            norms: layer.norms,
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
            HeadNorms::QueriesAndKeys => Appending::Rotation,
        }
    }
}
