//! The scratch buffers of a step in `bf16`.

use warpwright_driver::memory::{Buffer, bf16};

use super::limits::padded;
use super::workspaces::capacity;
use crate::step::buffers::{Allocator, BufferShapes, RowAllocator};
use crate::step::sizes::TrainingSizes;
use crate::{Error, Projection};

/// Scratch buffers, which all layers share. `A` is the type of a `bf16` buffer and `S` of an `f32`
/// buffer.
///
/// Shapes list the length of a token's row only. Some buffers are needed with dropout only, because
/// fused kernels replace the ones that use them. Without dropout, their rows have 8 elements.
pub(crate) struct Bf16Scratch<A = Buffer<bf16>, S = Buffer<f32>> {
    /// One of the two workspaces of unpacked matrices. The other is `dl`.
    pub(super) w: A,
    /// `[chunk, vocab]`: the gradients of the logits, times the number of labelled tokens. While
    /// the layers run, this buffer holds unpacked matrices (see `unpacked.rs`).
    pub(super) dl: A,
    /// The adapters, rounded to `bf16`.
    pub(super) adapters: A,
    /// Queries before RoPE, for models without head norms.
    pub(super) raw_queries: A,
    /// Keys before RoPE, for models without head norms.
    pub(super) raw_keys: A,
    /// The input of a projection after dropout, or a gradient of it. Needed with dropout only.
    pub(super) masked: A,
    /// The sum of a masked gradient and a residual. Needed with dropout only.
    pub(super) masked_sum: A,
    /// The padded `rank`: the gradient of `u` of each projection. Projections have separate
    /// buffers, so the gradients of one adapter can still run while the next `du` is computed.
    pub(super) du: [A; 7],
    /// `hidden`: a partial sum of the gradient of a norm's output. Needed with dropout only.
    pub(super) partial_dx: A,
    /// `feed_forward`: the gradient of the down projection's input. Needed with dropout only.
    pub(super) da: A,
    /// `heads * head_dim`: the gradient of the queries after RoPE.
    pub(super) dq_rotated: S,
    /// The gradients of the outputs of the Q, K and V projections.
    pub(super) dq: A,
    pub(super) dk: A,
    pub(super) dv: A,
}

impl<A, S> Bf16Scratch<A, S> {
    /// Allocates all buffers. `adapters` is the number of elements in all adapters.
    pub(crate) fn new(
        allocator: &impl Allocator<Activations = A, Sums = S>,
        shapes: &BufferShapes<'_>,
        adapters: usize,
    ) -> Result<Bf16Scratch<A, S>, Error> {
        let sizes = shapes.sizes;
        let TrainingSizes {
            vocab,
            hidden,
            feed_forward,
            ..
        } = *sizes;
        let queries = sizes.queries();
        let keys = sizes.keys();
        let all = RowAllocator { allocator, sizes };
        let rank = padded(shapes.lora.rank) as u32;
        let du = |p: Projection| all.activations(&format!("du of {}", p.name()), rank);
        let [q, k, v, o, gate, up, down] = Projection::ALL.map(du);
        let unpacked = capacity(sizes);
        let logits = shapes.head_chunk as usize * vocab as usize;
        let with_dropout = |len: u32| if shapes.lora.dropout > 0.0 { len } else { 8 };
        let input = with_dropout(hidden.max(feed_forward).max(queries));
        Ok(Bf16Scratch {
            w: allocator.activations("unpacked matrices", unpacked[0])?,
            dl: allocator.activations("gradients of logits", logits.max(unpacked[1]))?,
            adapters: allocator.activations("the adapters, rounded", adapters)?,
            raw_queries: all.activations("queries, raw", queries)?,
            raw_keys: all.activations("keys, raw", keys)?,
            masked: all.activations("masked", input)?,
            masked_sum: all.activations("masked, summed", input)?,
            du: [q?, k?, v?, o?, gate?, up?, down?],
            partial_dx: all.activations("dx, in part", with_dropout(hidden))?,
            da: all.activations("da", with_dropout(feed_forward))?,
            dq_rotated: all.sums("dq, rotated", queries)?,
            dq: all.activations("dq", queries)?,
            dk: all.activations("dk", keys)?,
            dv: all.activations("dv", keys)?,
        })
    }
}
