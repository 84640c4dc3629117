//! A projection with a frozen weight, and with an adapter or without.
//!
//! ```text
//! y  = x W^T + b + u B^T
//! dx = dy W + m * (du A)
//! ```
//!
//! `u`, `du` and the mask `m` are those of [`lora`](super::lora). Each is one product with `rank` more columns.

use super::lora::{Factors, masked};
use super::products::{nn, nt};

/// A frozen weight.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// `[n, k]`
    pub w: &'a [f64],
    /// `[n]`
    pub bias: Option<&'a [f64]>,
    /// The outputs.
    pub n: usize,
}

impl Weight<'_> {
    fn k(&self) -> usize {
        self.w.len() / self.n
    }
}

/// `y` `[tokens, n]` of `x` `[tokens, k]`. `lora` is the adapter and its `u` `[tokens, rank]`.
pub fn forward(x: &[f64], weight: &Weight<'_>, lora: Option<(&Factors<'_>, &[f64])>) -> Vec<f64> {
    let tokens = x.len() / weight.k();
    let mut y = match weight.bias {
        Some(bias) => bias.repeat(tokens),
        None => vec![0.0; tokens * weight.n],
    };
    nt(x, weight.w, weight.k(), &mut y);
    if let Some((factors, u)) = lora {
        nt(u, factors.b, factors.rank, &mut y);
    }
    y
}

/// `dx` `[tokens, k]` of `dy` `[tokens, n]`. `lora` is the adapter and its `du` `[tokens, rank]`.
pub fn backward(dy: &[f64], weight: &Weight<'_>, lora: Option<(&Factors<'_>, &[f64])>) -> Vec<f64> {
    let mut dx = vec![0.0; dy.len() / weight.n * weight.k()];
    if let Some((factors, du)) = lora {
        nn(du, factors.a, weight.k(), &mut dx);
        dx = masked(&dx, factors.mask).into_owned();
    }
    nn(dy, weight.w, weight.k(), &mut dx);
    dx
}
