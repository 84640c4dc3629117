//! The settings of adapters and of the optimizer.

use std::ops::RangeInclusive;

use warpwright_kernels::train::adamw::AdamW;
use warpwright_kernels::train::schedule::Schedule;

use crate::{Config, Error, Projection};

/// The settings of the adapters. [`Lora::new`] has defaults for all but the rank.
#[derive(Clone, PartialEq, Debug)]
pub struct Lora {
    /// The rank of the adapters.
    pub rank: usize,
    /// The numerator of the scale `alpha / rank`.
    pub alpha: f64,
    /// The fraction of input elements that are dropped.
    pub dropout: f64,
    /// The seed of dropout.
    pub seed: u64,
    /// The projections with an adapter.
    pub targets: Vec<Projection>,
}

/// The settings of the optimizer.
///
/// The default is a constant learning rate of 2e-4, AdamW without weight decay, and gradients
/// clipped to a norm of 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Training {
    /// The schedule of learning rates.
    pub schedule: Schedule,
    /// The constants of AdamW.
    pub adamw: AdamW,
    /// The maximum norm of a step's gradients.
    pub max_norm: f64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            schedule: Schedule::constant(2e-4),
            adamw: AdamW::default(),
            max_norm: 1.0,
        }
    }
}

impl Lora {
    /// Returns adapters of this rank on all seven projections, with `alpha = 2 * rank`, no dropout
    /// and seed 0.
    pub fn new(rank: usize) -> Lora {
        Lora {
            rank,
            alpha: 2.0 * rank as f64,
            dropout: 0.0,
            seed: 0,
            targets: Projection::ALL.to_vec(),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] for the first setting that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        Error::unless(self.rank > 0, "rank", self.rank, "at least 1")?;
        Error::unless(
            (0.0..1.0).contains(&self.dropout),
            "dropout",
            self.dropout,
            "from 0 to below 1",
        )?;
        // The device stores the scale in f32.
        let scale = self.scale() as f32;
        Error::unless(
            scale > 0.0 && scale.is_finite(),
            "alpha",
            self.alpha,
            "above 0, and finite in f32 by the rank",
        )
    }

    /// Returns the number of trainable parameters in a model with these sizes.
    pub fn trainable(&self, config: &Config) -> u64 {
        let parameters = |[n, k]: [usize; 2]| (self.rank * (n + k)) as u64;
        let per_layer: u64 = self
            .targets
            .iter()
            .map(|p| parameters(p.shape(config)))
            .sum();
        per_layer * config.layers as u64
    }

    /// Returns the factor of `B A x`, which combines the scales of LoRA and of dropout: `alpha /
    /// (rank (1 - dropout))`.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64 / (1.0 - self.dropout)
    }
}

impl Training {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] for the first setting that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        const BETA: RangeInclusive<f64> = 0.0..=1.0 - f64::EPSILON;
        let AdamW {
            beta1,
            beta2,
            eps,
            decay,
        } = self.adamw;
        Error::unless(BETA.contains(&beta1), "beta1", beta1, "from 0 to below 1")?;
        Error::unless(BETA.contains(&beta2), "beta2", beta2, "from 0 to below 1")?;
        Error::unless(eps >= 0.0, "the optimizer's eps", eps, "0 or more")?;
        Error::unless(
            decay >= 0.0 && (decay as f32).is_finite(),
            "weight decay",
            decay,
            "0 or more, and finite in f32",
        )?;
        Error::unless(
            self.max_norm as f32 > 0.0,
            "max_norm",
            self.max_norm,
            "above 0 in f32",
        )
    }
}
