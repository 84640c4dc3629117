//! The order of layers in a pass, and the units of work that a trainer launches.

use warpwright_driver::Error;
use warpwright_driver::stream::Queue;

use super::operations::{PassPurpose, StepOperations};
use super::{attention, feed_forward, head};

/// The work of one launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchUnit {
    /// A micro-batch that is not the last of its step.
    Micro,
    /// The last micro-batch of a step, and the update.
    Last,
    /// The losses of a micro-batch, without gradients.
    Evaluation,
}

/// A phase of a training step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepPhase {
    /// From the batch to the residual stream after the last layer.
    Forward,
    /// The logits, the losses, and their gradients back to the residual stream.
    Head,
    /// Back through the layers.
    Backward,
    /// The end of a micro-batch and of a step: counters, the norm of all gradients, and AdamW.
    Update,
}

impl StepPhase {
    /// All phases, in the order in which they run.
    pub const ALL: [StepPhase; 4] = [
        StepPhase::Forward,
        StepPhase::Head,
        StepPhase::Backward,
        StepPhase::Update,
    ];
}

/// Queues the work of a launch.
pub(crate) fn launch_unit<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    work: LaunchUnit,
) -> Result<(), Error> {
    match work {
        LaunchUnit::Micro => {
            for part in [StepPhase::Forward, StepPhase::Head, StepPhase::Backward] {
                phase(step, queue, part)?;
            }
            end_micro_batch(step, queue)
        }
        LaunchUnit::Last => {
            for part in StepPhase::ALL {
                phase(step, queue, part)?;
            }
            Ok(())
        }
        LaunchUnit::Evaluation => {
            forward(step, queue, PassPurpose::Evaluation)?;
            head::losses(step, queue)
        }
    }
}

/// Queues one phase of the last micro-batch of a step.
pub(crate) fn phase<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    phase: StepPhase,
) -> Result<(), Error> {
    match phase {
        StepPhase::Forward => forward(step, queue, PassPurpose::Training),
        StepPhase::Head => head::forward_and_backward(step, queue),
        StepPhase::Backward => backward(step, queue),
        StepPhase::Update => {
            end_micro_batch(step, queue)?;
            step.state().update(queue)
        }
    }
}

/// Runs the forward pass from the batch to the residual stream after the last layer.
fn forward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    purpose: PassPurpose,
) -> Result<(), Error> {
    step.state().fetch(queue)?;
    step.embed(queue)?;
    for l in 0..step.buffers().kept.layers() {
        attention::forward(step, queue, purpose, l)?;
        feed_forward::forward(step, queue, purpose, l)?;
    }
    Ok(())
}

/// Runs the backward pass of all layers.
///
/// The gradient buffer `dh` holds the gradient of the residual stream after the last layer. At the
/// end it holds the gradient before the first, if the precision computes it.
fn backward<S: StepOperations>(step: &S, queue: &mut impl Queue) -> Result<(), Error> {
    let kept = &step.buffers().kept;
    for l in (0..kept.layers()).rev() {
        // Layers that share buffers have overwritten the activations of layer `l` meanwhile.
        if kept.is_overwritten(l) {
            attention::forward(step, queue, PassPurpose::Training, l)?;
            feed_forward::recompute(step, queue, l)?;
        }

        if kept.inputs_are_overwritten(l) {
            attention::recompute_inputs(step, queue, l)?;
            feed_forward::recompute_inputs(step, queue, l)?;
        }

        feed_forward::backward(step, queue, l)?;
        attention::backward(step, queue, l)?;
    }
    Ok(())
}

/// Counts a micro-batch and adds its losses to the loss of the step.
fn end_micro_batch<S: StepOperations>(step: &S, queue: &mut impl Queue) -> Result<(), Error> {
    step.state()
        .end_micro_batch(queue, &step.buffers().head.losses)
}
