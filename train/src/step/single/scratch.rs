//! The scratch buffers of a step in `f32`.

use warpwright_driver::memory::Buffer;

use crate::step::buffers::{Allocator, RowAllocator};
use crate::step::sizes::TrainingSizes;
use crate::{Error, Projection};

/// Scratch buffers, which all layers share.
///
/// Shapes list the length of a token's row only.
pub(crate) struct F32Scratch<T = Buffer<f32>> {
    /// An unpacked matrix.
    pub(super) w: T,
    /// The input of a projection after dropout, or a gradient of it. Fits the longest input.
    pub(super) masked: T,
    /// `rank`: the gradient of `u`.
    pub(super) du: T,
    /// `feed_forward`: the gradient of the down projection's input.
    pub(super) da: T,
    pub(super) dq: HeadGradients<T>,
    pub(super) dk: HeadGradients<T>,
    /// `kv_heads * head_dim`: the gradient of the values.
    pub(super) dv: T,
}

/// The gradients of queries or keys.
pub(super) struct HeadGradients<T> {
    /// The gradient after RoPE, and after the rotation back.
    pub(super) rotated: T,
    /// The gradient before the head norm, for models that have one.
    pub(super) raw: T,
}

impl<T> F32Scratch<T> {
    /// Allocates all buffers.
    pub(crate) fn new(
        allocator: &impl Allocator<Activations = T>,
        sizes: &TrainingSizes,
    ) -> Result<F32Scratch<T>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            rank,
            ..
        } = *sizes;
        let queries = sizes.queries();
        let keys = sizes.keys();
        let matrix = |p: Projection| sizes.projection(p).weights();

        // Matrices are unpacked one at a time, so a buffer for the largest fits them all.
        let largest = Projection::ALL.map(matrix).into_iter().max().unwrap_or(0);
        let input = hidden.max(feed_forward).max(queries);
        let all = RowAllocator { allocator, sizes };
        Ok(F32Scratch {
            w: allocator.activations("the unpacked matrix", largest)?,
            masked: all.activations("masked", input)?,
            du: all.activations("du", rank)?,
            da: all.activations("da", feed_forward)?,
            dq: HeadGradients {
                rotated: all.activations("dq", queries)?,
                raw: all.activations("dq, raw", queries)?,
            },
            dk: HeadGradients {
                rotated: all.activations("dk", keys)?,
                raw: all.activations("dk, raw", keys)?,
            },
            dv: all.activations("dv", keys)?,
        })
    }
}
