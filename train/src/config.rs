//! Sizes of a model.

use crate::Error;

/// Hyperparameters of a model, under the field's names.
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
    /// Added to the mean of the squares in every RMSNorm.
    pub eps: f64,
    /// `[head_dim / 2]`: what RoPE rotates each pair of dimensions by, in radians a position.
    pub frequencies: Vec<f64>,
}

impl Config {
    /// Refuses sizes that make no model.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("vocab", self.vocab),
            ("hidden", self.hidden),
            ("feed_forward", self.feed_forward),
            ("kv_heads", self.kv_heads),
        ];
        sizes
            .into_iter()
            .try_for_each(|(what, size)| Error::unless(size > 0, what, size, "at least 1"))?;
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
        let (found, pairs) = (self.frequencies.len(), self.head_dim / 2);
        Error::unless(
            found == pairs,
            "the number of rotary frequencies",
            found,
            "head_dim / 2",
        )?;
        let wrong = self
            .frequencies
            .iter()
            .find(|f| !(f.is_finite() && **f > 0.0));
        wrong.map_or(Ok(()), |f| {
            Error::unless(false, "a rotary frequency", f, "above 0")
        })
    }
}
