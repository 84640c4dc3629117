//! Low-rank adapters of projections: LoRA ([Hu et al., 2021](https://arxiv.org/abs/2106.09685)).
//!
//! ```text
//! u  = s (x * m) A^T
//! du = s dy B
//! dA = du^T (x * m)
//! dB = dy^T u
//! ```
//!
//! `m` is dropout's mask of zeros and ones. `s = alpha / (rank (1 - p))` combines LoRA's scale and
//! dropout's. The adapter adds `u B^T` to the output, and [`linear`](super::linear) adds it in the
//! same sum as `x W^T`.

use super::dropout::Mask;
use super::products::{nn, nt, tn};
use std::borrow::Cow;

/// The matrices of an adapter, with the scale and the mask of a projection.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a> {
    /// `[rank, k]`
    pub a: &'a [f64],
    /// `[n, rank]`
    pub b: &'a [f64],
    /// The rank of the adapter.
    pub rank: usize,
    /// The factor `s` of [`lora`](self).
    pub scale: f64,
    /// The dropout mask over the input `[tokens, k]`, or `None` to keep all elements.
    pub mask: Option<Mask>,
}

impl Factors<'_> {
    fn k(&self) -> usize {
        self.a.len() / self.rank
    }
}

/// Returns `u` `[tokens, rank]` of `x` `[tokens, k]`.
pub fn u(x: &[f64], factors: &Factors<'_>) -> Vec<f64> {
    let mut u = vec![0.0; x.len() / factors.k() * factors.rank];
    nt(&masked(x, factors.mask), factors.a, factors.k(), &mut u);
    scaled(u, factors.scale)
}

/// Returns `du` `[tokens, rank]` of `dy` `[tokens, n]`.
pub fn du(dy: &[f64], factors: &Factors<'_>) -> Vec<f64> {
    let n = factors.b.len() / factors.rank;
    let mut du = vec![0.0; dy.len() / n * factors.rank];
    nn(dy, factors.b, factors.rank, &mut du);
    scaled(du, factors.scale)
}

/// Returns `dA` `[rank, k]` of `du` `[tokens, rank]` and `x` `[tokens, k]`.
pub fn da(du: &[f64], x: &[f64], factors: &Factors<'_>) -> Vec<f64> {
    let mut da = vec![0.0; factors.a.len()];
    tn(du, &masked(x, factors.mask), factors.k(), &mut da);
    da
}

/// Returns `dB` `[n, rank]` of `dy` `[tokens, n]` and `u` `[tokens, rank]`.
pub fn db(dy: &[f64], u: &[f64], factors: &Factors<'_>) -> Vec<f64> {
    let mut db = vec![0.0; factors.b.len()];
    tn(dy, u, factors.rank, &mut db);
    db
}

/// Returns `x * m`.
pub(super) fn masked(x: &[f64], mask: Option<Mask>) -> Cow<'_, [f64]> {
    match mask {
        Some(mask) => mask.apply(x).into(),
        None => x.into(),
    }
}

fn scaled(x: Vec<f64>, factor: f64) -> Vec<f64> {
    x.into_iter().map(|x| factor * x).collect()
}
