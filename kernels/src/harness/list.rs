//! The list of all shipped variants.

use super::case::Variant;
use crate::{batch, matmul, measure, pipeline, prompt, sample, simple, train};
use std::sync::LazyLock;

/// Every shipped variant: the kernels of a forward pass in order, then packing and measuring, then
/// training.
///
/// A model may need other variants, for its own formats, head lengths and plans, because kernels
/// are generated when a model is loaded. The list combines each format with each kernel, and each
/// plan with at least one format.
pub static ALL: LazyLock<Vec<&'static dyn Variant>> = LazyLock::new(|| {
    // A family has several lists if a forward pass alternates between it and others.
    let lists = [
        simple::variants::embeddings(),
        pipeline::variants::embeddings(),
        simple::variants::scaled_embeddings(),
        pipeline::variants::scaled_embeddings(),
        simple::variants::layer(),
        pipeline::variants::layer(),
        simple::variants::activation_and_argmax(),
        pipeline::variants::advance(),
        sample::variants::all(),
        pipeline::variants::pack(),
        matmul::variants::matmuls(),
        prompt::variants::all(),
        batch::variants::all(),
        matmul::variants::norms(),
        simple::variants::norms_and_caps(),
        simple::variants::experts(),
        measure::variants::all(),
        train::variants::all(),
    ];
    lists.into_iter().flat_map(|list| list.0).collect()
});
