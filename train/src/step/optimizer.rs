//! A micro-batch to its end, its evaluation, and the end of a step: one norm over all gradients, clip, schedule, AdamW.

use warpwright_driver::{Error, Host, Queue};
use warpwright_kernels::train::adamw::{AdamW, AdamWUpdateArgs};
use warpwright_kernels::train::clip::SquareSumsArgs;
use warpwright_kernels::train::schedule::Schedule;
use warpwright_kernels::train::state::{EndMicroBatchArgs, EndStepArgs};

use super::pass::{Purpose, Step};

/// Steps whose records the host can still read.
pub(super) const RECORDS: u32 = 64;

impl Step {
    /// Forward and backward of the next micro-batch.
    pub(super) fn micro_batch(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.forward(queue, Purpose::Training)?;
        self.head(queue)?;
        self.backward(queue)?;
        let args = EndMicroBatchArgs::<Host> {
            losses: &self.buffers.head.losses,
            factor: &self.slots.batch.factor,
            counters: &self.state.counters,
            carried: &self.state.carried,
            tokens: self.sizes.tokens,
        };
        queue.launch(&self.kernels.end_micro_batch, args)
    }

    /// The losses of the next micro-batch, without dropout. It counts nothing and adds to nothing.
    pub(super) fn evaluate(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.forward(queue, Purpose::Evaluation)?;
        self.losses(queue)
    }

    /// Clips the gradients, updates the adapters with them, and clears them for the next step.
    pub(super) fn update(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (flat, parts, state) = (&self.flat, &self.buffers.work.squares, &self.state);
        let n = flat.layout.len() as u32;
        queue.launch(&self.kernels.square_sums, SquareSumsArgs::<Host> { g: &flat.gradients, parts, n })?;
        let Schedule { lr, lr_min, warmup, total, .. } = self.training.schedule;
        let AdamW { beta1, beta2, eps, decay } = self.training.adamw;
        let (rates, taken) = (&state.rates, &state.taken);
        let args = EndStepArgs::<Host> {
            parts,
            counters: &state.counters,
            carried: &state.carried,
            rates,
            taken,
            records: &state.records,
            outcomes: &state.outcomes,
            slots: RECORDS,
            lr: lr as f32,
            lr_min: lr_min as f32,
            warmup,
            decay_steps: total.saturating_sub(warmup).max(1),
            max_norm: self.training.max_norm as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
        };
        queue.launch(&self.kernels.end_step, args)?;
        let args = AdamWUpdateArgs::<Host> {
            p: &flat.parameters,
            m: &flat.moments[0],
            v: &flat.moments[1],
            g: &flat.gradients,
            rates,
            taken,
            n,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: eps as f32,
            decay: decay as f32,
        };
        queue.launch(&self.kernels.adamw, args)?;
        queue.fill(&flat.gradients, 0.0)
    }
}
