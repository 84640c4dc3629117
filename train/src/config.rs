//! The sizes of a model.

use std::f64::consts::TAU;

use warpwright_model::Outline;
use warpwright_model::layer::HeadNorms;

use crate::Error;

/// The hyperparameters of a model. The field names are the usual ones.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub struct Config {
    pub vocab: usize,
    pub hidden: usize,
    pub feed_forward: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// The norms of the heads of queries and keys before RoPE, which all layers share.
    pub head_norms: HeadNorms,
    /// The constant added to the mean of the squares in every RMSNorm.
    pub eps: f64,
    /// The angle by which RoPE rotates each pair of dimensions, in radians per position: `[head_dim
    /// / 2]`.
    pub frequencies: Vec<f64>,
}

impl Config {
    /// Returns the sizes of a model whose layers are equal, for a sequence of its longest context.
    pub(crate) fn of(outline: &Outline) -> Config {
        let c = &outline.config;
        let factors = outline
            .rope_factors
            .as_ref()
            .map(|factors| factors.of(c.context));
        Config {
            vocab: c.vocab as usize,
            hidden: c.hidden as usize,
            feed_forward: c.feed_forward() as usize,
            layers: c.layer_count() as usize,
            heads: c.heads() as usize,
            kv_heads: c.kv_heads() as usize,
            head_dim: c.head_dim() as usize,
            head_norms: c
                .attentions()
                .next()
                .map_or(HeadNorms::None, |attention| attention.head_norms),
            eps: c.epsilon.into(),
            frequencies: c.ropes[0]
                .revolutions(factors)
                .into_iter()
                .map(|turns| turns * TAU)
                .collect(),
        }
    }

    /// Returns true if the heads of queries and keys are normed.
    pub(crate) fn norms_heads(&self) -> bool {
        self.head_norms == HeadNorms::QueriesAndKeys
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] for the first size that no model can have.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("vocab", self.vocab),
            ("hidden", self.hidden),
            ("feed_forward", self.feed_forward),
            ("kv_heads", self.kv_heads),
        ];
        for (what, size) in sizes {
            Error::unless(size > 0, what, size, "at least 1")?;
        }

        let even = self.head_dim > 0 && self.head_dim.is_multiple_of(2);
        Error::unless(
            even,
            "head_dim",
            self.head_dim,
            "an even number: RoPE rotates pairs",
        )?;
        let grouped = self.heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        Error::unless(grouped, "heads", self.heads, "a multiple of kv_heads")?;
        Error::unless(
            self.eps >= 0.0 && self.eps.is_finite(),
            "eps",
            self.eps,
            "0 or more",
        )?;

        // RoPE rotates pairs of elements, so there is one frequency per pair.
        let found = self.frequencies.len();
        let pairs = self.head_dim / 2;
        Error::unless(
            found == pairs,
            "the number of rotary frequencies",
            found,
            "head_dim / 2",
        )?;
        for frequency in &self.frequencies {
            let positive = frequency.is_finite() && *frequency > 0.0;
            Error::unless(positive, "a rotary frequency", frequency, "above 0")?;
        }

        Ok(())
    }
}
