//! Learning rates of steps: linear warm-up ([Goyal et al., 2017](https://arxiv.org/abs/1706.02677)), then cosine
//! ([Loshchilov and Hutter, 2016](https://arxiv.org/abs/1608.03983)), linear, or constant.
//!
//! Steps count from 1, so that the first one has a rate above 0.

use std::f64::consts::PI;

/// What follows the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// Half a cosine down to the least rate.
    Cosine,
    /// A line down to the least rate.
    Linear,
    /// The full rate.
    Constant,
}

/// The rate of every step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Schedule {
    /// What follows the warm-up.
    pub decay: Decay,
    /// The full rate.
    pub lr: f64,
    /// The rate of step `total` and of those after it, except for [`Decay::Constant`].
    pub lr_min: f64,
    /// The step that has the full rate; those before it have their share.
    pub warmup: u32,
    /// The last step.
    pub total: u32,
}

impl Schedule {
    /// The rate of `step`, from 1.
    pub fn rate(&self, step: u32) -> f64 {
        if step <= self.warmup {
            return self.lr * f64::from(step) / f64::from(self.warmup);
        }
        let steps = self.total.saturating_sub(self.warmup).max(1);
        let t = (f64::from(step - self.warmup) / f64::from(steps)).min(1.0);
        let share = match self.decay {
            Decay::Cosine => 0.5 * (1.0 + (PI * t).cos()),
            Decay::Linear => 1.0 - t,
            Decay::Constant => return self.lr,
        };
        self.lr_min + (self.lr - self.lr_min) * share
    }
}
