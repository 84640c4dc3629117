//! Learning-rate schedules: linear warm-up ([Goyal et al.,
//! 2017](https://arxiv.org/abs/1706.02677)), then cosine ([Loshchilov and Hutter,
//! 2016](https://arxiv.org/abs/1608.03983)), linear or constant.
//!
//! The formulas are those of Hugging Face transformers
//! (`get_cosine_with_min_lr_schedule_with_warmup`, `get_linear_schedule_with_warmup` and
//! `get_constant_schedule_with_warmup` in `optimization.py`). Transformers counts steps from 0 and
//! this crate counts them from 1. For step `s` of `total`, let `n = s - 1`:
//!
//! ```text
//! n < warmup:   rate = lr * n / warmup
//! otherwise:    t = (n - warmup) / (total - warmup)
//!   cosine      rate = lr_min + (lr - lr_min) * (1 + cos(pi * t)) / 2
//!   linear      rate = lr_min + (lr - lr_min) * (1 - t)
//!   constant    rate = lr
//! ```
//!
//! The first step of a warm-up therefore has a rate of 0. The last step has a rate above `lr_min`,
//! because `t` would reach 1 only one step after it.

use std::f64::consts::PI;

/// The shape of a schedule after its warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// Falls along half a cosine from the full rate towards the least rate.
    Cosine,
    /// Falls along a line from the full rate towards the least rate.
    Linear,
    /// Stays at the full rate.
    Constant,
}

/// A learning-rate schedule. The module docs have its formula.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Schedule {
    /// The shape after the warm-up.
    pub decay: Decay,
    /// The full learning rate.
    pub lr: f64,
    /// The least rate, which a step `total + 1` would have. [`Decay::Constant`] ignores it.
    pub lr_min: f64,
    /// The number of warm-up steps.
    pub warmup: u32,
    /// The number of steps.
    pub total: u32,
}

impl Schedule {
    /// Returns a schedule that has the rate `lr` in every step.
    pub fn constant(lr: f64) -> Schedule {
        Schedule {
            decay: Decay::Constant,
            lr,
            lr_min: lr,
            warmup: 0,
            total: 1,
        }
    }

    /// Returns the learning rate of `step`, which counts from 1. Steps after `total` have the least
    /// rate.
    ///
    /// # Example
    ///
    /// ```
    /// use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
    ///
    /// let schedule = Schedule {
    ///     decay: Decay::Linear,
    ///     lr: 1.0,
    ///     lr_min: 0.0,
    ///     warmup: 2,
    ///     total: 6,
    /// };
    /// let rates: Vec<f64> = (1..=6).map(|step| schedule.rate(step)).collect();
    /// assert_eq!(rates, [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]);
    /// ```
    pub fn rate(&self, step: u32) -> f64 {
        let taken = step.saturating_sub(1);
        if taken < self.warmup {
            return self.lr * f64::from(taken) / f64::from(self.warmup);
        }

        let steps = self.total.saturating_sub(self.warmup).max(1);
        let t = (f64::from(taken - self.warmup) / f64::from(steps)).min(1.0);
        let share = match self.decay {
            Decay::Cosine => 0.5 * (1.0 + (PI * t).cos()),
            Decay::Linear => 1.0 - t,
            Decay::Constant => return self.lr,
        };
        self.lr_min + (self.lr - self.lr_min) * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that transformers 5.24 computes for 6 steps with a full rate of 1.
    #[test]
    fn rates_are_those_of_transformers() {
        let cosine = |lr_min, warmup| Schedule {
            decay: Decay::Cosine,
            lr: 1.0,
            lr_min,
            warmup,
            total: 6,
        };
        let linear = |warmup| Schedule {
            decay: Decay::Linear,
            ..cosine(0.0, warmup)
        };
        let cases = [
            (
                cosine(0.0, 0),
                [
                    1.0,
                    0.9330127018922194,
                    0.75,
                    0.5,
                    0.2500000000000001,
                    0.06698729810778065,
                    0.0,
                ],
            ),
            (
                cosine(0.25, 0),
                [
                    1.0,
                    0.9497595264191645,
                    0.8125,
                    0.625,
                    0.4375,
                    0.3002404735808355,
                    0.25,
                ],
            ),
            (
                cosine(0.0, 2),
                [
                    0.0,
                    0.5,
                    1.0,
                    0.8535533905932737,
                    0.5,
                    0.14644660940672627,
                    0.0,
                ],
            ),
            (
                cosine(0.25, 2),
                [
                    0.0,
                    0.5,
                    1.0,
                    0.8901650429449552,
                    0.625,
                    0.3598349570550447,
                    0.25,
                ],
            ),
            (
                linear(0),
                [
                    1.0,
                    0.8333333333333334,
                    0.6666666666666666,
                    0.5,
                    0.3333333333333333,
                    0.16666666666666666,
                    0.0,
                ],
            ),
            (linear(2), [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]),
            (
                Schedule {
                    decay: Decay::Constant,
                    ..cosine(0.0, 2)
                },
                [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0],
            ),
        ];
        for (schedule, wanted) in cases {
            for (step, wanted) in (1..).zip(wanted) {
                let rate = schedule.rate(step);
                assert!(
                    (rate - wanted).abs() < 1e-12,
                    "{schedule:?}, step {step}: {rate}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_step_counts_without_a_warmup() {
        for decay in [Decay::Cosine, Decay::Linear, Decay::Constant] {
            for total in 1..40 {
                let schedule = Schedule {
                    decay,
                    lr: 1.0,
                    lr_min: 0.0,
                    warmup: 0,
                    total,
                };
                assert_eq!(schedule.rate(1), 1.0);
                assert!(
                    (1..=total).all(|step| schedule.rate(step) > 0.0),
                    "{schedule:?}"
                );
            }
        }
    }
}
