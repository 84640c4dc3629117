//! The last norm, the LM head and the losses.
//!
//! In training, the head runs forward and backward chunk by chunk, because the logits of all tokens
//! would take too much memory.

use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::cross_entropy::TokenLossesArgs;

use super::operations::{HeadChunk, RmsNorm, StepOperations};
use crate::step::element::StepElement;
use crate::step::sizes::TrainingSizes;

/// Computes the losses and the gradient of the residual stream after the last layer.
pub(crate) fn forward_and_backward<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
) -> Result<(), Error> {
    let head = &step.buffers().head;
    let dh = &step.buffers().gradients.dh;
    step.norm(queue, &norm(step), &head.x)?;
    step.begin_head(queue)?;
    for chunk in chunks(step) {
        losses_of(step, queue, &chunk)?;
        step.logits_backward(queue, &chunk)?;
    }

    // The backward of a norm adds to the gradient of the residual stream.
    queue.fill(dh, S::Element::ZERO)?;
    step.norm_backward(queue, &norm(step), &head.dx)
}

/// Computes the losses without gradients.
pub(crate) fn losses<S: StepOperations>(step: &S, queue: &mut impl Queue) -> Result<(), Error> {
    step.norm(queue, &norm(step), &step.buffers().head.x)?;
    for chunk in chunks(step) {
        losses_of(step, queue, &chunk)?;
    }
    Ok(())
}

/// Computes the logits of a chunk and their losses.
fn losses_of<S: StepOperations>(
    step: &S,
    queue: &mut impl Queue,
    chunk: &HeadChunk<S::Element>,
) -> Result<(), Error> {
    step.logits(queue, chunk)?;
    let args = TokenLossesArgs::<Host> {
        logits: &chunk.logits,
        labels: &chunk.labels,
        lse: &chunk.lse,
        losses: &chunk.losses,
        vocab: step.state().sizes.vocab,
    };
    step.state().losses(queue, args)
}

/// Returns the norm before the head.
fn norm<S: StepOperations>(step: &S) -> RmsNorm<'_, S::Element> {
    RmsNorm {
        x: step.buffers().kept.last(),
        gains: &step.weights().norm,
        inv: &step.buffers().head.inv,
    }
}

/// Returns the chunks of the micro-batch. The last may be shorter.
fn chunks<S: StepOperations>(step: &S) -> impl Iterator<Item = HeadChunk<S::Element>> {
    let tokens = step.state().sizes.tokens;
    let most = step.state().head_chunk;
    let firsts = (0..tokens).step_by(most as usize);
    firsts.map(move |first| chunk(step, first, most.min(tokens - first)))
}

/// Returns the views of a chunk that begins at token `first`.
fn chunk<S: StepOperations>(step: &S, first: u32, tokens: u32) -> HeadChunk<S::Element> {
    let head = &step.buffers().head;
    let TrainingSizes { hidden, vocab, .. } = step.state().sizes;
    let rows = |len: u32| (first * len) as usize..((first + tokens) * len) as usize;
    HeadChunk {
        tokens,
        x: head.x.view_range(rows(hidden)),
        dx: head.dx.view_range(rows(hidden)),
        labels: step.state().slots.batch.labels.view_range(rows(1)),
        // Each chunk overwrites the logits of the previous one.
        logits: head.logits.view_range(0..tokens as usize * vocab as usize),
        lse: head.lse.view_range(rows(1)),
        losses: head.losses.view_range(rows(1)),
    }
}
