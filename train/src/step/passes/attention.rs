//! The attention block of a layer.
//!
//! ```text
//! x1 = norm(h)
//! q  = rope(head_norm(project Q of x1)), k likewise, v = project V of x1
//! o  = attention(q, k, v)
//! h1 = h + project O of o
//! ```

use warpwright_driver::Error;
use warpwright_driver::stream::Queue;

use super::adapter;
use super::operations::{AttentionGradients, OutputGradient, PassPurpose, RmsNorm, StepOperations};
use crate::Projection::{K, O, Q, V};

/// Computes the block of layer `l`, and adds the residual stream.
pub(crate) fn forward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    purpose: PassPurpose,
    l: usize,
) -> Result<(), Error> {
    let kept = &step.buffers().kept;
    let layer = kept.layer(l);
    let x1 = &kept.inputs(l).x1;
    let h = &kept.streams[l];
    step.norm(queue, &norm(step, l), x1)?;
    for (p, heads) in [(Q, &layer.q), (K, &layer.k)] {
        let y = step.unrotated(p, heads);
        step.project(queue, purpose, p.of_layer(l), x1, None, y)?;
        step.rotate(queue, p.of_layer(l), heads)?;
    }

    step.project(queue, purpose, V.of_layer(l), x1, None, &layer.v)?;
    step.attention(queue, layer)?;
    step.project(queue, purpose, O.of_layer(l), &layer.o, Some(h), &layer.h1)
}

/// Computes the projection inputs again that the gradients of adapters read.
pub(crate) fn recompute_inputs<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    l: usize,
) -> Result<(), Error> {
    // The gradient of `A` is the only reader of the input, so projections without adapters do not
    // need it.
    if [Q, K, V]
        .iter()
        .all(|p| step.adapter(p.of_layer(l)).is_none())
    {
        return Ok(());
    }
    step.norm(queue, &norm(step, l), &step.buffers().kept.inputs(l).x1)
}

/// Computes the gradient of the residual stream before the block, `dh`, from the gradient after
/// it, and adds the gradients of adapters to the sums of the step.
pub(crate) fn backward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    l: usize,
) -> Result<(), Error> {
    let gradients = &step.buffers().gradients;
    let kept = &step.buffers().kept;
    let o = &kept.layer(l).o;
    let x1 = &kept.inputs(l).x1;
    step.project_backward(queue, O.of_layer(l), o, &gradients.dh, &gradients.d_o)?;
    let AttentionGradients { dq, dk, dv } = step.attention_backward(queue, l)?;
    let outputs =
        [(Q, dq), (K, dk), (V, dv)].map(|(projection, dy)| OutputGradient { projection, dy });
    if l == 0 && !S::EMBEDDING_GRADIENT {
        for OutputGradient { projection, dy } in outputs {
            adapter::gradients(step, queue, projection.of_layer(l), x1, dy)?;
        }
        return Ok(());
    }

    step.project_input_backward(queue, l, x1, &outputs)?;
    step.norm_backward(queue, &norm(step, l), &gradients.dx)
}

/// Returns the norm before the block.
fn norm<S: StepOperations>(step: &S, l: usize) -> RmsNorm<'_, S::Element> {
    let kept = &step.buffers().kept;
    RmsNorm {
        x: &kept.streams[l],
        gains: &step.weights().layers[l].attention_norm,
        inv: &kept.layer(l).inv1,
    }
}
