//! The feed-forward block of a layer.
//!
//! ```text
//! x2 = norm(h1)
//! a  = silu(project Gate of x2) * (project Up of x2)
//! h  = h1 + project Down of a
//! ```

use warpwright_driver::Error;
use warpwright_driver::stream::Queue;

use super::adapter;
use super::operations::{OutputGradient, PassPurpose, RmsNorm, StepOperations};
use crate::Projection::{Down, Gate, Up};

/// Computes the block of layer `l`, and adds the residual stream.
pub(crate) fn forward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    purpose: PassPurpose,
    l: usize,
) -> Result<(), Error> {
    forward_to_down(step, queue, purpose, l)?;
    let kept = &step.buffers().kept;
    let a = &kept.inputs(l).a;
    let h1 = &kept.layer(l).h1;
    let h = &kept.streams[l + 1];
    step.project(queue, purpose, Down.of_layer(l), a, Some(h1), h)
}

/// Computes the block up to the input of the down projection.
fn forward_to_down<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    purpose: PassPurpose,
    l: usize,
) -> Result<(), Error> {
    let kept = &step.buffers().kept;
    let x2 = &kept.inputs(l).x2;
    let g = &kept.layer(l).g;
    step.norm(queue, &norm(step, l), x2)?;
    step.project(queue, purpose, Gate.of_layer(l), x2, None, g)?;
    step.project_swiglu(queue, purpose, l)
}

/// Computes the activations of layer `l` again, up to those that the backward pass reads.
pub(crate) fn recompute<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    l: usize,
) -> Result<(), Error> {
    forward_to_down(step, queue, PassPurpose::Training, l)?;
    let a = &step.buffers().kept.inputs(l).a;
    adapter::term(step, queue, PassPurpose::Training, Down.of_layer(l), a).map(drop)
}

/// Computes the projection inputs again that the gradients of adapters read.
pub(crate) fn recompute_inputs<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    l: usize,
) -> Result<(), Error> {
    // The gradient of `A` is the only reader of these inputs, so projections without adapters do
    // not need them.
    let has_adapter = |p: crate::Projection| step.adapter(p.of_layer(l)).is_some();
    if has_adapter(Gate) || has_adapter(Up) {
        step.norm(queue, &norm(step, l), &step.buffers().kept.inputs(l).x2)?;
    }
    if has_adapter(Down) {
        step.swiglu(queue, l)?;
    }

    Ok(())
}

/// Computes the gradient of the residual stream before the block, `dh`, from the gradient after
/// it, and adds the gradients of adapters to the sums of the step.
pub(crate) fn backward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    l: usize,
) -> Result<(), Error> {
    let gradients = &step.buffers().gradients;
    let x2 = &step.buffers().kept.inputs(l).x2;
    step.project_swiglu_backward(queue, l)?;
    let outputs =
        [(Gate, &gradients.dg), (Up, &gradients.dup)].map(|(projection, dy)| OutputGradient {
            projection,
            dy: &**dy,
        });
    step.project_input_backward(queue, l, x2, &outputs)?;
    step.norm_backward(queue, &norm(step, l), &gradients.dx)
}

/// Returns the norm before the block.
fn norm<S: StepOperations>(step: &S, l: usize) -> RmsNorm<'_, S::Element> {
    let layer = step.buffers().kept.layer(l);
    RmsNorm {
        x: &layer.h1,
        gains: &step.weights().layers[l].feed_forward_norm,
        inv: &layer.inv2,
    }
}
