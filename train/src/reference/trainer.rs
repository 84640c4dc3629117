//! Optimizer steps: the sum of micro-batches, gradient clipping, AdamW, and the state between
//! steps.

use super::adapters::Adapters;
use super::batch::MicroBatch;
use super::model::Model;
use super::ops::Ops;
use crate::{Error, Training};
use warpwright_kernels::train::Storage;
use warpwright_kernels::train::optimizer::adamw::{Parameters, Rates};
use warpwright_kernels::train::optimizer::clip;

/// A model in training.
pub struct Trainer<'a> {
    /// The adapters.
    pub adapters: Adapters,
    /// Their moments.
    pub moments: Moments,
    /// The counters from which the next step continues.
    pub state: State,
    model: &'a Model<'a>,
    training: Training,
}

/// The moments of the adapters' gradients, as in Adam.
#[derive(Clone, PartialEq, Debug)]
pub struct Moments {
    /// The running means of the gradients.
    pub first: Adapters,
    /// The running means of their squares.
    pub second: Adapters,
}

/// The counters that a step continues from, in addition to parameters and moments.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct State {
    /// The number of steps taken.
    pub step: u32,
    /// The bias corrections of the last step, `1 - beta^step`.
    pub corrections: [f64; 2],
}

/// The results of an optimizer step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Record {
    /// The loss before the step: the mean over the labelled tokens of all micro-batches.
    pub loss: f64,
    /// The norm of the gradients before clipping.
    pub norm: f64,
    /// The factor by which clipping scaled the gradients.
    pub clip: f64,
    /// The learning rate.
    pub lr: f64,
    /// Whether the step changed nothing, because the loss or the norm was not finite.
    pub skipped: bool,
}

impl<'a> Trainer<'a> {
    /// Creates a trainer with these adapters and moments of zeros.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the adapters do not fit the model.
    pub fn new(
        model: &'a Model<'a>,
        training: Training,
        adapters: Adapters,
    ) -> Result<Trainer<'a>, Error> {
        training.check()?;
        adapters.check(&model.config, &model.lora)?;
        let zeros = || Adapters::zeros(&model.config, &model.lora);
        let moments = Moments {
            first: zeros(),
            second: zeros(),
        };
        Ok(Trainer {
            adapters,
            moments,
            state: State::default(),
            model,
            training,
        })
    }

    /// Takes one optimizer step over these micro-batches.
    ///
    /// # Errors
    /// Returns the errors of [`Trainer::gradients`].
    pub fn step(&mut self, micros: &[MicroBatch]) -> Result<Record, Error> {
        let (loss, gradients) = self.gradients(micros)?;
        Ok(self.update(loss, &gradients))
    }

    /// Returns the loss and the gradients over all micro-batches.
    ///
    /// # Errors
    /// Returns [`Error::Empty`] if there is no micro-batch, or an error of [`Model::gradients`].
    pub fn gradients(&self, micros: &[MicroBatch]) -> Result<(f64, Adapters), Error> {
        let (first, others) = micros.split_first().ok_or(Error::Empty)?;
        let first = self.model.gradients(&self.adapters, first)?;
        let mut loss = first.loss;
        let mut sum = first.adapters;
        for micro in others {
            let gradients = self.model.gradients(&self.adapters, micro)?;
            loss += gradients.loss;
            sum.add(&gradients.adapters);
        }

        Ok((loss, sum))
    }

    /// Clips the gradients and updates the adapters with them. If the loss or the norm is not
    /// finite, nothing changes.
    pub fn update(&mut self, loss: f64, gradients: &Adapters) -> Record {
        let next = State {
            step: self.state.step + 1,
            corrections: self.training.adamw.next_corrections(self.state.corrections),
        };
        let norm = clip::norm(gradients.tensors());
        let lr = self.training.schedule.rate(next.step);
        let clip = clip::factor(norm, self.training.max_norm);
        let skipped = !(loss.is_finite() && norm.is_finite());
        if !skipped {
            self.state = next;
            self.adamw(
                gradients,
                &Rates {
                    lr,
                    corrections: next.corrections,
                    clip,
                },
            );
        }

        Record {
            loss,
            norm,
            clip,
            lr,
            skipped,
        }
    }

    /// Updates the parameters and moments.
    fn adamw(&mut self, gradients: &Adapters, rates: &Rates) {
        let ops: &dyn Ops = self.model.ops;
        let adamw = &self.training.adamw;
        let moments = self
            .moments
            .first
            .tensors_mut()
            .zip(self.moments.second.tensors_mut());
        let tensors = self
            .adapters
            .tensors_mut()
            .zip(moments)
            .zip(gradients.tensors());
        for ((p, (m, v)), g) in tensors {
            ops.adamw(adamw, Parameters { p, m, v }, g, rates);
        }

        // A device stores parameters and moments in f32, whatever type the matmuls read.
        if self.model.storage != Storage::F64 {
            let moments = self
                .moments
                .first
                .tensors_mut()
                .chain(self.moments.second.tensors_mut());
            let all = self.adapters.tensors_mut().chain(moments).flatten();
            for x in all {
                *x = Storage::F32.round(*x);
            }
        }
    }
}
