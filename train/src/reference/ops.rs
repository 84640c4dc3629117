//! The operations of a training step, as the model calls them.

use warpwright_kernels::train::attention::{self, Heads, Saved};
use warpwright_kernels::train::linear::{self, Weight};
use warpwright_kernels::train::lora::{self, Factors};
use warpwright_kernels::train::optimizer::adamw::{AdamW, Parameters, Rates};
use warpwright_kernels::train::rope::{self, Angles};
use warpwright_kernels::train::{cross_entropy, rms_norm, swiglu};

/// An adapter with its `u` or its `du`, or `None` if the projection has no adapter.
pub type Applied<'a> = Option<(&'a Factors<'a>, &'a [f64])>;

/// The norms of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// The norm before attention.
    Attention,
    /// The norm before the feed-forward block.
    FeedForward,
    /// The head norm of the queries.
    Q,
    /// The head norm of the keys.
    K,
    /// The norm after the last layer.
    Last,
}

/// The operations of a training step.
///
/// Each method calls the function of [`warpwright_kernels::train`] with its name, whose
/// documentation has the formula and the shapes.
#[allow(missing_docs)]
pub trait Ops {
    fn rms_norm(&self, _: Norm, x: &[f64], g: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
        rms_norm::forward(x, g, eps)
    }

    fn rms_norm_backward(
        &self,
        _: Norm,
        dy: &[f64],
        x: &[f64],
        g: &[f64],
        inv: &[f64],
        sum: &mut [f64],
    ) {
        rms_norm::backward(dy, x, g, inv, sum);
    }

    fn lora_u(&self, x: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        lora::u(x, factors)
    }

    fn lora_du(&self, dy: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        lora::du(dy, factors)
    }

    fn lora_da(&self, du: &[f64], x: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        lora::da(du, x, factors)
    }

    fn lora_db(&self, dy: &[f64], u: &[f64], factors: &Factors<'_>) -> Vec<f64> {
        lora::db(dy, u, factors)
    }

    fn linear(&self, x: &[f64], weight: &Weight<'_>, lora: Applied<'_>) -> Vec<f64> {
        linear::forward(x, weight, lora)
    }

    fn linear_backward(&self, dy: &[f64], weight: &Weight<'_>, lora: Applied<'_>) -> Vec<f64> {
        linear::backward(dy, weight, lora)
    }

    fn rope(&self, x: &[f64], angles: &Angles) -> Vec<f64> {
        rope::forward(x, angles)
    }

    fn rope_backward(&self, dy: &[f64], angles: &Angles) -> Vec<f64> {
        rope::backward(dy, angles)
    }

    fn attention(&self, at: &Heads<'_>, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        attention::forward(at, q, k, v)
    }

    fn attention_delta(&self, at: &Heads<'_>, grad: &[f64], o: &[f64]) -> Vec<f64> {
        attention::delta(at, grad, o)
    }

    fn attention_backward(
        &self,
        at: &Heads<'_>,
        saved: &Saved<'_>,
        grad: &[f64],
        delta: &[f64],
    ) -> [Vec<f64>; 3] {
        attention::backward(at, saved, grad, delta)
    }

    fn sum_groups(&self, at: &Heads<'_>, parts: &[f64]) -> Vec<f64> {
        attention::sum_groups(at, parts)
    }

    fn swiglu(&self, g: &[f64], up: &[f64]) -> Vec<f64> {
        swiglu::forward(g, up)
    }

    fn swiglu_backward(&self, da: &[f64], g: &[f64], up: &[f64]) -> (Vec<f64>, Vec<f64>) {
        swiglu::backward(da, g, up)
    }

    fn lse(&self, logits: &[f64], vocab: usize) -> Vec<f64> {
        cross_entropy::lse(logits, vocab)
    }

    fn loss(&self, logits: &[f64], lse: &[f64], labels: &[Option<u32>]) -> f64 {
        cross_entropy::loss(logits, lse, labels)
    }

    fn loss_backward(&self, logits: &[f64], lse: &[f64], labels: &[Option<u32>]) -> Vec<f64> {
        cross_entropy::backward(logits, lse, labels)
    }

    fn adamw(&self, adamw: &AdamW, at: Parameters<'_>, g: &[f64], rates: &Rates) {
        adamw.update(at, g, rates);
    }
}

/// The references of the kernels, which are the default methods of [`Ops`].
#[derive(Clone, Copy, Debug)]
pub struct References;

impl Ops for References {}
