//! The pass of a step in either precision, and what is launched of it.

use warpwright_driver::{Buffer, Context, Error as DriverError, Queue, View};

use super::adapters::Arrangement;
use super::buffers::{Buffers, Layers};
use super::common::Common;
use super::half;
use super::kernels::Kernels;
use super::pass::Step;
use super::settings::{Precision, Settings};
use super::sizes::Sizes;
use super::weights::{Matrix, upload};
use crate::reference::Adapters;
use crate::{Error, Weights};

/// What is launched at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A micro-batch.
    Micro,
    /// The last micro-batch of a step, and the update.
    Last,
    /// A micro-batch's losses.
    Evaluation,
}

impl Precision {
    /// Refuses a precision that such a training does not have on this device.
    ///
    /// # Errors
    ///
    /// [`Error::Precision`] says what it takes; sizes that are 0 or above 2^24.
    pub fn check(self, context: &Context, settings: &Settings) -> Result<(), Error> {
        let sizes = Sizes::new(&settings.config, settings.lora.rank, settings.tokens)?;
        match self {
            Precision::F32 => Ok(()),
            Precision::Bf16 => match half::unsupported(context, &sizes) {
                Some(needed) => Err(Error::Precision { needed }),
                None => Ok(()),
            },
        }
    }
}

/// A pass in one precision.
pub(super) enum Pass {
    F32(Step),
    Bf16(half::Step),
}

impl Pass {
    pub(super) fn new(
        context: &Context,
        settings: &Settings,
        sizes: Sizes,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
        layers: &Layers<'_>,
    ) -> Result<Pass, Error> {
        settings.precision.check(context, settings)?;
        Ok(match settings.precision {
            Precision::F32 => Pass::F32(simple(context, settings, sizes, weights, adapters, layers)?),
            Precision::Bf16 => {
                Pass::Bf16(half::Step::new(context, settings, sizes, weights, adapters, layers)?)
            }
        })
    }

    pub(super) fn common(&self) -> &Common {
        match self {
            Pass::F32(step) => &step.common,
            Pass::Bf16(step) => &step.common,
        }
    }

    /// `[tokens]`: the losses of the last micro-batch.
    pub(super) fn losses(&self) -> &View<f32> {
        match self {
            Pass::F32(step) => &step.buffers.head.losses,
            Pass::Bf16(step) => &step.buffers.head.losses,
        }
    }

    pub(super) fn run(&self, queue: &mut impl Queue, work: Work) -> Result<(), DriverError> {
        match (work, self) {
            (Work::Evaluation, Pass::F32(step)) => return step.evaluate(queue),
            (Work::Evaluation, Pass::Bf16(step)) => return step.evaluate(queue),
            (_, Pass::F32(step)) => step.micro_batch(queue)?,
            (_, Pass::Bf16(step)) => step.micro_batch(queue)?,
        }
        if work == Work::Last { self.common().update(queue) } else { Ok(()) }
    }
}

fn simple(
    context: &Context,
    settings: &Settings,
    sizes: Sizes,
    weights: &Weights<Vec<f32>, Matrix>,
    adapters: &Adapters,
    layers: &Layers<'_>,
) -> Result<Step, Error> {
    let common = Common::new(context, settings, sizes, Arrangement::Plain, adapters)?;
    let zeroed = |label: &str, len| Ok(Buffer::zeroed(context, len)?.labelled(label));
    Ok(Step {
        kernels: Kernels::load(context, sizes.head_dim, settings.pairing)?,
        weights: upload(context, &settings.config, weights)?,
        buffers: Buffers::new(&sizes, layers, common.head_chunk, &zeroed)?,
        common,
    })
}
