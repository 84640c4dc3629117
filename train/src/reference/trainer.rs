//! Optimizer steps: micro-batches added up, one clip, AdamW, and the state between steps.

use super::adapters::Adapters;
use super::batch::MicroBatch;
use super::model::Model;
use super::ops::Ops;
use crate::{Error, Training};
use warpwright_kernels::train::Storage;
use warpwright_kernels::train::adamw::{Parameters, Rates};
use warpwright_kernels::train::clip;

/// A model in training.
pub struct Trainer<'a> {
    /// The adapters.
    pub adapters: Adapters,
    /// Their moments.
    pub moments: Moments,
    /// What a step takes from the one before.
    pub state: State,
    model: &'a Model<'a>,
    training: Training,
}

/// Moments of the adapters' gradients.
#[derive(Clone, PartialEq, Debug)]
pub struct Moments {
    /// Means.
    pub first: Adapters,
    /// Means of squares.
    pub second: Adapters,
}

/// What a step takes from the one before, besides parameters and moments.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct State {
    /// Steps that were taken.
    pub step: u32,
    /// The bias corrections of the last of them, `1 - beta^step`.
    pub corrections: [f64; 2],
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Record {
    /// The loss before the step: the mean over the labelled tokens of all micro-batches.
    pub loss: f64,
    /// The norm of the gradients before clipping.
    pub norm: f64,
    /// The factor that clipping gave them.
    pub clip: f64,
    /// The learning rate.
    pub lr: f64,
    /// Loss or norm was not finite, so nothing was changed.
    pub skipped: bool,
}

impl<'a> Trainer<'a> {
    /// Begins with these adapters and moments of zeros.
    ///
    /// # Errors
    ///
    /// Settings with which no step is defined.
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

    /// One optimizer step over these micro-batches.
    ///
    /// # Errors
    ///
    /// Those of [`Trainer::gradients`].
    pub fn step(&mut self, micros: &[MicroBatch]) -> Result<Record, Error> {
        let (loss, gradients) = self.gradients(micros)?;
        Ok(self.update(loss, &gradients))
    }

    /// The loss and the gradients over all micro-batches.
    ///
    /// # Errors
    ///
    /// No micro-batch; those of [`Model::gradients`].
    pub fn gradients(&self, micros: &[MicroBatch]) -> Result<(f64, Adapters), Error> {
        let (first, others) = micros.split_first().ok_or(Error::Empty)?;
        let first = self.model.gradients(&self.adapters, first)?;
        let (mut loss, mut sum) = (first.loss, first.adapters);
        for micro in others {
            let gradients = self.model.gradients(&self.adapters, micro)?;
            loss += gradients.loss;
            sum.add(&gradients.adapters);
        }
        Ok((loss, sum))
    }

    /// Clips gradients and updates the adapters with them. If loss or norm is not finite, nothing changes.
    pub fn update(&mut self, loss: f64, gradients: &Adapters) -> Record {
        let next = State {
            step: self.state.step + 1,
            corrections: self.training.adamw.next_corrections(self.state.corrections),
        };
        let (norm, lr) = (
            clip::norm(gradients.tensors()),
            self.training.schedule.rate(next.step),
        );
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

    fn adamw(&mut self, gradients: &Adapters, rates: &Rates) {
        let (ops, adamw): (&dyn Ops, _) = (self.model.ops, &self.training.adamw);
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
        // On a device parameters and moments are f32, whatever the products read.
        if self.model.storage != Storage::F64 {
            let moments = self
                .moments
                .first
                .tensors_mut()
                .chain(self.moments.second.tensors_mut());
            let all = self.adapters.tensors_mut().chain(moments).flatten();
            all.for_each(|x| *x = Storage::F32.round(*x));
        }
    }
}
