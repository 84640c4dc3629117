//! The choice between the `f32` and `bf16` implementations of a step.

use warpwright_driver::memory::{View, bf16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error as DriverError};

use super::adapters::{AdapterLayout, Arrangement};
use super::buffers::{BufferShapes, ByteCounter, StepBuffers};
use super::half::{Bf16Scratch, Bf16Step, padded, unsupported};
use super::passes::operations::StepOperations;
use super::passes::run::{LaunchUnit, StepPhase, launch_unit, phase};
use super::single::{F32Scratch, F32Step};
use super::sizes::TrainingSizes;
use super::state::StepState;
use super::weights::Matrix;
use crate::reference::Adapters;
use crate::settings::{Precision, Settings};
use crate::{Error, Weights};

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
            Precision::Bf16 => match unsupported(context, &sizes) {
                Some(needed) => Err(Error::Precision { needed }),
                None => Ok(()),
            },
        }
    }

    /// Returns the rank with which `u` and its gradient are stored.
    pub(super) fn stored_rank(self, rank: usize) -> usize {
        match self {
            Precision::F32 => rank,
            Precision::Bf16 => padded(rank),
        }
    }

    /// Returns the layout of the adapters.
    pub(super) fn adapter_layout(self, settings: &Settings) -> AdapterLayout {
        let arrangement = match self {
            Precision::F32 => Arrangement::Plain,
            Precision::Bf16 => Arrangement::Padded {
                rank: padded(settings.lora.rank),
            },
        };
        AdapterLayout::new(&settings.config, &settings.lora, arrangement)
    }

    /// Returns the bytes of all buffers of a step, apart from the weights and the [`StepState`].
    pub(super) fn buffer_bytes(
        self,
        shapes: &BufferShapes<'_>,
        adapters: usize,
    ) -> Result<u64, Error> {
        let counter = match self {
            Precision::F32 => {
                let counter = ByteCounter::of::<f32>();
                StepBuffers::new(&counter, shapes)?;
                F32Scratch::new(&counter, shapes.sizes)?;
                counter
            }
            Precision::Bf16 => {
                let counter = ByteCounter::of::<bf16>();
                StepBuffers::new(&counter, shapes)?;
                Bf16Scratch::new(&counter, shapes, adapters)?;
                counter
            }
        };
        Ok(counter.bytes())
    }
}

/// A step in one of the precisions.
pub(super) enum PreciseStep {
    F32(Box<F32Step>),
    Bf16(Box<Bf16Step>),
}

impl PreciseStep {
    /// Allocates the buffers and loads the kernels of a step in the precision of `settings`.
    pub(super) fn new(
        context: &Context,
        settings: &Settings,
        shapes: &BufferShapes<'_>,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
    ) -> Result<PreciseStep, Error> {
        settings.precision.check(context, settings)?;
        Ok(match settings.precision {
            Precision::F32 => {
                let step = F32Step::new(context, settings, shapes, weights, adapters)?;
                PreciseStep::F32(Box::new(step))
            }
            Precision::Bf16 => {
                let step = Bf16Step::new(context, settings, shapes, weights, adapters)?;
                PreciseStep::Bf16(Box::new(step))
            }
        })
    }

    /// Returns the state that does not depend on the precision.
    pub(super) fn state(&self) -> &StepState {
        match self {
            PreciseStep::F32(step) => step.state(),
            PreciseStep::Bf16(step) => step.state(),
        }
    }

    /// Returns the losses of the last micro-batch, `[tokens]`.
    pub(super) fn losses(&self) -> &View<f32> {
        match self {
            PreciseStep::F32(step) => &step.buffers().head.losses,
            PreciseStep::Bf16(step) => &step.buffers().head.losses,
        }
    }

    /// Returns the logits of the last chunk of an evaluation, `[chunk, vocab]`.
    pub(super) fn logits(&self) -> &View<f32> {
        match self {
            PreciseStep::F32(step) => &step.buffers().head.logits,
            PreciseStep::Bf16(step) => &step.buffers().head.logits,
        }
    }

    /// Queues the work of a launch.
    pub(super) fn run(&self, queue: &mut impl Queue, work: LaunchUnit) -> Result<(), DriverError> {
        match self {
            PreciseStep::F32(step) => launch_unit(&**step, queue, work),
            PreciseStep::Bf16(step) => launch_unit(&**step, queue, work),
        }
    }

    /// Queues one phase of the last micro-batch of a step.
    pub(super) fn run_phase(
        &self,
        queue: &mut impl Queue,
        of: StepPhase,
    ) -> Result<(), DriverError> {
        match self {
            PreciseStep::F32(step) => phase(&**step, queue, of),
            PreciseStep::Bf16(step) => phase(&**step, queue, of),
        }
    }
}
