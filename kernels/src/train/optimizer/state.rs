//! The state that a training step passes to the next one on the device, and the kernels that end
//! micro-batches and steps.
//!
//! All that changes from step to step is in memory: counters, bias corrections and the loss so far.
//! A captured graph therefore stays valid for all steps, and the host sends only batches.

use super::adamw::AdamW;
use super::clip::{self, PARTS};
use super::schedule::{Decay, Schedule};
use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use crate::train::buffers::{narrow, wide};
use ptx_gen::*;
use std::f32::consts::PI;

/// The number of words of the counters.
pub const COUNTERS: usize = 4;
/// The index of the number of optimizer steps that were taken.
pub const STEP: u32 = 0;
/// The index of the number of micro-batches that have ended, over all steps.
pub const MICRO: u32 = 1;
/// The index of the number of optimizer steps that were skipped.
pub const SKIPPED: u32 = 2;

/// The number of values that are carried from step to step.
pub const CARRIED: usize = 4;
/// The index of the bias correction of the first moment, after the last step that was taken. The
/// correction of the second moment follows.
pub const CORRECTIONS: u32 = 0;
/// The index of the loss of the current step's micro-batches so far.
pub const LOSS: u32 = 2;

/// The number of values of a record: loss, norm, factor of the clip, learning rate.
pub const RECORD: u32 = 4;

args! {
    /// Arguments of [`EndMicroBatch`].
    pub struct EndMicroBatchArgs {
        /// `[tokens]`: the loss of each token, 0 without a label
        losses: In<f32>,
        /// `[1]`: the factor `1 / n` of the sum of the losses
        factor: In<f32>,
        /// `[4]`: the counters
        counters: InOut<u32>,
        /// `[4]`: the carried values
        carried: InOut<f32>,
        /// The number of tokens.
        tokens: u32,
    }
}

/// Kernel that adds a micro-batch's losses to the step's and counts the micro-batch. It has one
/// block.
pub struct EndMicroBatch {
    /// The number of threads of the block.
    pub threads: u32,
}

impl KernelDef for EndMicroBatch {
    type Args<S: Side> = EndMicroBatchArgs<S>;

    fn name(&self) -> String {
        format!("train_end_micro_batch_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &EndMicroBatchArgs<Shape>) -> Result<Grid, ShapeError> {
        let &EndMicroBatchArgs { tokens, .. } = a;
        self.range("tokens", tokens, 1, 1 << 24)?;
        check_lengths! { self, a:
            losses == tokens,
        }
        self.exactly("factor", a.factor, 1)?;
        self.exactly("counters", a.counters, COUNTERS)?;
        self.exactly("carried", a.carried, CARRIED)?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: EndMicroBatchArgs<Dev<'k>>) {
        let mut sum = k.var(0.0);
        k.for_each(k.tid(), a.tokens, self.threads, |i| {
            sum.set(sum.get() + a.losses.at(i).ld())
        });
        let sum = block_sum(k, self.threads / 32, sum.get());
        k.when(k.tid().eq(0), || {
            let loss = a.carried.at(LOSS);
            let micro = a.counters.at(MICRO);
            loss.st(sum.fma(a.factor.ld(), loss.ld()));
            micro.st(micro.ld() + 1);
        });
    }

    fn reference(&self, a: EndMicroBatchArgs<Cpu<'_>>) {
        let sum: f64 = wide(a.losses).into_iter().sum();
        let loss = &mut a.carried[LOSS as usize];
        *loss = sum.mul_add(f64::from(a.factor[0]), f64::from(*loss)) as f32;
        a.counters[MICRO as usize] += 1;
    }
}

impl Variant for EndMicroBatch {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |tokens: u32| {
            let mut random = Random(seed);
            let args = vec![
                CpuArg::F32(
                    random
                        .units(tokens as usize)
                        .into_iter()
                        .map(f32::abs)
                        .collect(),
                ),
                CpuArg::F32(vec![1.0 / tokens as f32]),
                CpuArg::U32(vec![7, 9, 1, 0]),
                CpuArg::F32(vec![0.1, 0.001, 0.75, 0.0]),
                CpuArg::scalar(tokens),
            ];
            Case {
                label: format!("tokens={tokens}"),
                args,
                bound: 1e-6,
            }
        };
        [1, 100, 1000].map(case).into()
    }
}

args! {
    /// Arguments of [`EndStep`].
    pub struct EndStepArgs {
        /// `[PARTS]`: partial sums of the squares of the gradients
        parts: In<f32>,
        /// `[4]`: the counters
        counters: InOut<u32>,
        /// `[4]`: the carried values
        carried: InOut<f32>,
        /// `[4]`: the rates for [`AdamWUpdate`](super::adamw::AdamWUpdate)
        rates: Out<f32>,
        /// `[1]`: 1 if the step is taken, 0 if it is skipped
        taken: Out<u32>,
        /// `[slots, 4]`: the [`RECORD`] values of each of the last steps, for the host
        records: Out<f32>,
        /// `[slots]`: the value of `taken` of each of the last steps
        outcomes: Out<u32>,
        /// The number of slots of the records.
        slots: u32,
        /// The full learning rate.
        lr: f32,
        /// The least learning rate.
        lr_min: f32,
        /// The number of warm-up steps.
        warmup: u32,
        /// The number of steps after the warm-up, at least 1.
        decay_steps: u32,
        /// The largest norm of the gradients.
        max_norm: f32,
        /// The decay of the first moment.
        beta1: f32,
        /// The decay of the second moment.
        beta2: f32,
    }
}

/// Kernel that decides on a step and computes its rates. One thread does all the work.
///
/// It computes the norm, the clip, the learning rate and the bias corrections. If the loss or the
/// norm is not finite, the step is skipped, and the step's number and the corrections stay.
///
/// The references are [`clip::factor`], [`Schedule::rate`] and [`AdamW::next_corrections`].
pub struct EndStep {
    /// The course of the learning rate after the warm-up.
    pub decay: Decay,
}

impl KernelDef for EndStep {
    type Args<S: Side> = EndStepArgs<S>;

    fn name(&self) -> String {
        let decay = match self.decay {
            Decay::Cosine => "cosine",
            Decay::Linear => "linear",
            Decay::Constant => "constant",
        };
        format!("train_end_step_{decay}")
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &EndStepArgs<Shape>) -> Result<Grid, ShapeError> {
        let &EndStepArgs { slots, .. } = a;
        self.range("slots", slots, 1, 1 << 16)?;
        self.range("decay_steps", a.decay_steps, 1, u32::MAX)?;
        self.exactly("parts", a.parts, PARTS as usize)?;
        self.exactly("counters", a.counters, COUNTERS)?;
        self.exactly("carried", a.carried, CARRIED)?;
        self.exactly("rates", a.rates, 4)?;
        self.exactly("taken", a.taken, 1)?;
        self.length("records", a.records, "4 * slots", &[RECORD, slots])?;
        check_lengths! { self, a:
            outcomes == slots,
        }
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: EndStepArgs<Dev<'k>>) {
        k.when(k.tid().eq(0), || self.end(k, &a));
    }

    fn reference(&self, a: EndStepArgs<Cpu<'_>>) {
        let schedule = Schedule {
            decay: self.decay,
            lr: a.lr.into(),
            lr_min: a.lr_min.into(),
            warmup: a.warmup,
            total: a.warmup + a.decay_steps,
        };
        let [beta1, beta2] = [a.beta1, a.beta2].map(f64::from);
        let adamw = AdamW {
            beta1,
            beta2,
            eps: 0.0,
            decay: 0.0,
        };
        let norm = wide(a.parts).into_iter().sum::<f64>().sqrt();
        let carried = wide(a.carried);
        let step = a.counters[STEP as usize] + 1;
        let loss = carried[LOSS as usize];

        // Skipped steps have records too, so the slot counts both.
        let records = a.counters[STEP as usize] + a.counters[SKIPPED as usize];
        let slot = (records % a.slots) as usize;
        let [c1, c2] = adamw.next_corrections([carried[0], carried[1]]);
        let lr = schedule.rate(step);
        let factor = clip::factor(norm, a.max_norm.into());
        let taken = loss.is_finite() && norm.is_finite();
        narrow(&[lr, c1, c2, factor], a.rates);
        narrow(&[loss, norm, factor, lr], &mut a.records[4 * slot..][..4]);
        a.taken[0] = taken.into();
        a.outcomes[slot] = taken.into();
        a.carried[LOSS as usize] = 0.0;
        if taken {
            a.counters[STEP as usize] = step;
            narrow(&[c1, c2], &mut a.carried[..2]);
        } else {
            a.counters[SKIPPED as usize] += 1;
        }
    }
}

impl EndStep {
    /// Generates the work of the one thread.
    fn end<'k>(&self, k: Builder<'k>, a: &EndStepArgs<Dev<'k>>) {
        let step = a.counters.at(STEP).ld();
        let skipped = a.counters.at(SKIPPED).ld();
        let c1 = a.carried.at(CORRECTIONS).ld();
        let c2 = a.carried.at(CORRECTIONS + 1).ld();
        let loss = a.carried.at(LOSS).ld();
        let next = step + 1;

        k.section(
            "train/state/clip",
            "norm, clip = min(1, max_norm / (norm + 1e-6))",
        );

        // The order of the additions is fixed, so equal gradients give an equal norm.
        let mut squares = k.var(0.0);
        k.for_each(0, PARTS, 1, |i| {
            let so_far = squares.get();
            let part = a.parts.at(i).ld();
            squares.set(so_far + part)
        });
        let norm = squares.get().sqrt_rn();
        let clip = (a.max_norm / (norm + 1e-6)).min(1.0);

        k.section(
            "train/state/bias_corrections",
            "bias corrections c = c * beta + (1 - beta)",
        );
        let corrected = |c: F32<'k>, beta: F32<'k>| c.fma(beta, -beta + 1.0);
        let c1 = corrected(c1, a.beta1);
        let c2 = corrected(c2, a.beta2);
        let lr = self.rate(a, step);
        a.rates.st4([lr, c1, c2, clip]);

        // Skipped steps have records too, so the slot counts both.
        let slot = (step + skipped) % a.slots;
        a.records.at(slot * RECORD).st4([loss, norm, clip, lr]);

        k.section(
            "train/state/skip",
            "skip a step with a loss or norm that is not finite",
        );

        // A NaN fails the comparison as well.
        let is_finite = |x: F32<'k>| x.abs().lt(f32::INFINITY);
        let loss_is_finite = is_finite(loss);
        let norm_is_finite = is_finite(norm);
        let taken = loss_is_finite & norm_is_finite;
        let word = taken.select(1u32, 0u32);
        a.taken.st(word);
        a.outcomes.at(slot).st(word);
        a.carried.at(LOSS).st(0.0);
        k.when(taken, || {
            a.counters.at(STEP).st(next);
            a.carried.at(CORRECTIONS).st(c1);
            a.carried.at(CORRECTIONS + 1).st(c2);
        })
        .otherwise(|| a.counters.at(SKIPPED).st(skipped + 1));
    }

    /// Returns [`Schedule::rate`] of the step after `taken` steps.
    fn rate<'k>(&self, a: &EndStepArgs<Dev<'k>>, taken: U32<'k>) -> F32<'k> {
        let warm = taken.lt(a.warmup);
        let warm_steps = taken.min(a.warmup);
        let after = (taken - warm_steps).cvt::<f32>();
        let length = a.decay_steps.cvt::<f32>();
        let t = (after / length).min(1.0);
        let share = match self.decay {
            Decay::Cosine => (t * PI).cos().fma(0.5, 0.5),
            Decay::Linear => -t + 1.0,
            Decay::Constant => return warm.select(warming(a, taken), a.lr),
        };
        let warming = warming(a, taken);
        let decayed = share.fma(a.lr - a.lr_min, a.lr_min);
        warm.select(warming, decayed)
    }
}

/// Returns the rate during the warm-up. Without a warm-up it is 0 / 0, and `select` drops it.
fn warming<'k>(a: &EndStepArgs<Dev<'k>>, taken: U32<'k>) -> F32<'k> {
    a.lr * taken.cvt::<f32>() / a.warmup.cvt::<f32>()
}

impl Variant for EndStep {
    /// Returns cases with the first step, the end of the warm-up, the middle, the end, and a step
    /// after it. Others have no warm-up, a loss or a norm that is not finite, and gradients with
    /// and without a clip.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(step, skipped, warmup, magnitude, loss): (u32, u32, u32, f32, f32)| {
            let parts = Random(seed)
                .units(PARTS as usize)
                .into_iter()
                .map(|x| x.abs() * magnitude);
            let corrections = if step == 0 { [0.0; 2] } else { [0.4, 0.7] };
            let args = vec![
                CpuArg::F32(parts.collect()),
                CpuArg::U32(vec![step, 40, skipped, 0]),
                CpuArg::F32(vec![corrections[0], corrections[1], loss, 0.0]),
                CpuArg::F32(vec![0.0; 4]),
                CpuArg::U32(vec![9]),
                CpuArg::F32(vec![0.25; 12]),
                CpuArg::U32(vec![9; 3]),
                CpuArg::scalar(3u32),
                CpuArg::scalar(0.5f32),
                CpuArg::scalar(0.125f32),
                CpuArg::scalar(warmup),
                CpuArg::scalar(9u32),
                CpuArg::scalar(1.5f32),
                CpuArg::scalar(0.9f32),
                CpuArg::scalar(0.999f32),
            ];
            let label = format!(
                "step={step} skipped={skipped} warmup={warmup} magnitude={magnitude} loss={loss}"
            );

            // The errors are of a sum of 132 squares, a root and a quotient. The cosine is within
            // 2^-20.
            Case {
                label,
                args,
                bound: 3e-6,
            }
        };
        [
            (0, 0, 3, 1.0, 2.5),
            (2, 0, 3, 1e-4, 2.5),
            (7, 2, 3, 1.0, 0.5),
            (11, 0, 3, 1e-2, 2.5),
            (30, 1, 3, 1.0, 2.5),
            (0, 0, 0, 1.0, 2.5),
            (4, 0, 3, 1.0, f32::NAN),
            (4, 1, 3, f32::INFINITY, 2.5),
        ]
        .map(case)
        .into()
    }
}
