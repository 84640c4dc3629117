//! The choice between the `f32` and `bf16` implementations of a step, and the phases of a step.

use warpwright_driver::{Buffer, Context, Error as DriverError, Queue, View};
use warpwright_kernels::train::nested::NestedDequantize;

use super::adapters::Arrangement;
use super::buffers::{F32Buffers, Layers};
use super::common::{CommonState, Purpose};
use super::half;
use super::kernels::{F32Kernels, THREADS};
use super::pass::F32Step;
use super::settings::{Precision, Settings};
use super::sizes::TrainingSizes;
use super::weights::{Matrix, Unnesting, upload};
use crate::reference::Adapters;
use crate::{Error, Weights};

/// The work of one launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchUnit {
    /// A micro-batch that is not the last of its step.
    Micro,
    /// The last micro-batch of a step, and the update.
    Last,
    /// The losses of a micro-batch, without gradients.
    Evaluation,
}

impl Precision {
    /// Checks that a training run in this precision is supported on the device.
    ///
    /// # Errors
    /// Returns [`Error::Precision`] with the missing requirement, or [`Error::Setting`] if a size
    /// is 0 or above 2^24.
    pub fn check(self, context: &Context, settings: &Settings) -> Result<(), Error> {
        let sizes = TrainingSizes::new(&settings.config, settings.lora.rank, settings.tokens)?;
        match self {
            Precision::F32 => Ok(()),
            Precision::Bf16 => match half::unsupported(context, &sizes) {
                Some(needed) => Err(Error::Precision { needed }),
                None => Ok(()),
            },
        }
    }
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

/// A step in one of the precisions.
pub(super) enum StepPass {
    F32(Box<F32Step>),
    Bf16(Box<half::Bf16Step>),
}

impl StepPass {
    /// Allocates the buffers and loads the kernels of a step in the precision of `settings`.
    pub(super) fn new(
        context: &Context,
        settings: &Settings,
        sizes: TrainingSizes,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
        layers: &Layers<'_>,
    ) -> Result<StepPass, Error> {
        settings.precision.check(context, settings)?;
        Ok(match settings.precision {
            Precision::F32 => StepPass::F32(Box::new(simple(
                context, settings, sizes, weights, adapters, layers,
            )?)),
            Precision::Bf16 => {
                let step =
                    half::Bf16Step::new(context, settings, sizes, weights, adapters, layers)?;
                StepPass::Bf16(Box::new(step))
            }
        })
    }

    /// Returns the parts that do not depend on the precision.
    pub(super) fn common(&self) -> &CommonState {
        match self {
            StepPass::F32(step) => &step.common,
            StepPass::Bf16(step) => &step.common,
        }
    }

    /// Returns the losses of the last micro-batch, `[tokens]`.
    pub(super) fn losses(&self) -> &View<f32> {
        match self {
            StepPass::F32(step) => &step.buffers.head.losses,
            StepPass::Bf16(step) => &step.buffers.head.losses,
        }
    }

    /// Returns the logits of the last chunk of an evaluation, `[chunk, vocab]`.
    pub(super) fn logits(&self) -> &View<f32> {
        match self {
            StepPass::F32(step) => &step.buffers.head.logits,
            StepPass::Bf16(step) => step.buffers.head.logits(),
        }
    }

    /// Launches `work` on a queue.
    pub(super) fn run(&self, queue: &mut impl Queue, work: LaunchUnit) -> Result<(), DriverError> {
        match work {
            LaunchUnit::Evaluation => self.evaluate(queue),
            LaunchUnit::Micro => {
                for part in [StepPhase::Forward, StepPhase::Head, StepPhase::Backward] {
                    self.part(queue, part)?;
                }
                self.common().end_micro_batch(queue, self.losses())
            }
            LaunchUnit::Last => {
                for part in StepPhase::ALL {
                    self.part(queue, part)?;
                }
                Ok(())
            }
        }
    }

    /// Launches one phase of the last micro-batch of a step.
    pub(super) fn part(&self, queue: &mut impl Queue, part: StepPhase) -> Result<(), DriverError> {
        match (part, self) {
            (StepPhase::Forward, StepPass::F32(step)) => step.forward(queue, Purpose::Training),
            (StepPhase::Forward, StepPass::Bf16(step)) => step.forward(queue, Purpose::Training),
            (StepPhase::Head, StepPass::F32(step)) => step.head(queue),
            (StepPhase::Head, StepPass::Bf16(step)) => step.head(queue),
            (StepPhase::Backward, StepPass::F32(step)) => step.backward(queue),
            (StepPhase::Backward, StepPass::Bf16(step)) => step.backward(queue),
            (StepPhase::Update, _) => {
                self.common().end_micro_batch(queue, self.losses())?;
                self.common().update(queue)
            }
        }
    }

    /// Computes the losses of the next micro-batch without dropout, and leaves counters and
    /// gradients unchanged.
    fn evaluate(&self, queue: &mut impl Queue) -> Result<(), DriverError> {
        match self {
            StepPass::F32(step) => {
                step.forward(queue, Purpose::Evaluation)?;
                step.losses(queue)
            }
            StepPass::Bf16(step) => {
                step.forward(queue, Purpose::Evaluation)?;
                step.losses(queue)
            }
        }
    }
}

/// Allocates the buffers and loads the kernels of a step in `f32`.
fn simple(
    context: &Context,
    settings: &Settings,
    sizes: TrainingSizes,
    weights: &Weights<Vec<f32>, Matrix>,
    adapters: &Adapters,
    layers: &Layers<'_>,
) -> Result<F32Step, Error> {
    let common = CommonState::new(context, settings, sizes, Arrangement::Plain, adapters)?;
    let zeroed = |label: &str, len| Ok(Buffer::zeroed(context, len)?.labelled(label));
    Ok(F32Step {
        kernels: F32Kernels::load(context, sizes.head_dim, settings.pairing)?,
        weights: upload(context, &settings.config, weights)?,
        unnesting: Unnesting::new(context, NestedDequantize { threads: THREADS }, weights)?,
        buffers: F32Buffers::new(&sizes, layers, common.head_chunk, &zeroed)?,
        common,
    })
}
