//! The layers, forward.

use super::ops::Norm;
use super::run::Run;
use crate::Projection;
use warpwright_kernels::train::embed;
use warpwright_kernels::train::products::add_scaled;

/// What the forward keeps.
#[derive(Clone, Debug)]
pub struct Activations {
    /// The layers.
    pub layers: Vec<LayerActivations>,
    /// `[tokens, hidden]`: the residual stream after the last layer.
    pub h: Vec<f64>,
}

/// What the forward keeps of a layer.
#[derive(Clone, Default, Debug)]
pub struct LayerActivations {
    /// `[tokens, hidden]`: the residual stream before the layer.
    pub h: Vec<f64>,
    /// `[tokens]`: `inv` of the norm before attention.
    pub inv1: Vec<f64>,
    /// `[tokens, hidden]`: what that norm gave.
    pub x1: Vec<f64>,
    /// Queries.
    pub q: Rotated,
    /// Keys.
    pub k: Rotated,
    /// `[tokens, kv_heads, head_dim]`
    pub v: Vec<f64>,
    /// `[tokens, heads, head_dim]`: what attention gave.
    pub o: Vec<f64>,
    /// `[tokens, heads]`, natural
    pub lse: Vec<f64>,
    /// `[tokens, hidden]`: the residual stream after attention.
    pub h1: Vec<f64>,
    /// `[tokens]`: `inv` of the norm before the feed-forward block.
    pub inv2: Vec<f64>,
    /// `[tokens, hidden]`: what that norm gave.
    pub x2: Vec<f64>,
    /// `[tokens, feed_forward]`
    pub g: Vec<f64>,
    /// `[tokens, feed_forward]`
    pub up: Vec<f64>,
    /// `[tokens, feed_forward]`: what SwiGLU gave.
    pub a: Vec<f64>,
    /// `[tokens, rank]` of each projection that is a target, in the order of [`Projection::ALL`]
    pub u: [Vec<f64>; 7],
}

/// Queries or keys.
#[derive(Clone, Default, Debug)]
pub struct Rotated {
    /// `[tokens, heads, head_dim]`: before the head norm; empty without one.
    pub raw: Vec<f64>,
    /// `[tokens, heads]`: `inv` of the head norm; empty without one.
    pub inv: Vec<f64>,
    /// `[tokens, heads, head_dim]`: what attention takes.
    pub rotated: Vec<f64>,
}

/// `u` of each projection of a layer.
type Us = [Vec<f64>; 7];

impl Run<'_> {
    pub(super) fn forward(&self) -> Activations {
        let weights = &self.model.weights;
        let mut h = embed::forward(&self.micro.ids, &weights.embed, self.model.config.hidden);
        let mut layers = Vec::new();
        for l in 0..weights.layers.len() {
            let mut layer = self.attention(l, h);
            h = self.feed_forward(l, &mut layer);
            layers.push(layer);
        }
        Activations { layers, h }
    }

    fn attention(&self, l: usize, h: Vec<f64>) -> LayerActivations {
        let (ops, weights, mut u) = (self.model.ops, &self.model.weights.layers[l], Us::default());
        let (x1, inv1) = self.norm(Norm::Attention, &h, &weights.attention_norm);
        let q = self.rotated(
            (l, Projection::Q),
            &x1,
            weights.q_norm.as_deref().map(|g| (Norm::Q, g)),
            &mut u,
        );
        let k = self.rotated(
            (l, Projection::K),
            &x1,
            weights.k_norm.as_deref().map(|g| (Norm::K, g)),
            &mut u,
        );
        let v = self.store(self.project((l, Projection::V), &x1, &mut u));
        let (o, lse) = ops.attention(&self.heads(), &q.rotated, &k.rotated, &v);
        let o = self.store(o);
        let h1 = self.residual(&h, self.project((l, Projection::O), &o, &mut u));
        LayerActivations {
            h,
            inv1,
            x1,
            q,
            k,
            v,
            o,
            lse,
            h1,
            u,
            ..LayerActivations::default()
        }
    }

    /// The residual stream after the layer.
    fn feed_forward(&self, l: usize, layer: &mut LayerActivations) -> Vec<f64> {
        let (u, h1) = (&mut layer.u, &layer.h1);
        let gains = &self.model.weights.layers[l].feed_forward_norm;
        (layer.x2, layer.inv2) = self.norm(Norm::FeedForward, h1, gains);
        layer.g = self.store(self.project((l, Projection::Gate), &layer.x2, u));
        layer.up = self.store(self.project((l, Projection::Up), &layer.x2, u));
        layer.a = self.store(self.model.ops.swiglu(&layer.g, &layer.up));
        self.residual(h1, self.project((l, Projection::Down), &layer.a, u))
    }

    /// A projection, then the head norm if there is one, then RoPE.
    fn rotated(
        &self,
        at: (usize, Projection),
        x: &[f64],
        norm: Option<(Norm, &[f64])>,
        u: &mut Us,
    ) -> Rotated {
        let (ops, eps, y) = (
            self.model.ops,
            self.model.config.eps,
            self.project(at, x, u),
        );
        let rotated = |y: &[f64]| self.store(ops.rope(y, &self.angles));
        let Some((which, gains)) = norm else {
            return Rotated {
                rotated: rotated(&y),
                ..Rotated::default()
            };
        };
        let raw = self.store(y);
        let (y, inv) = ops.rms_norm(which, &raw, gains, eps);
        Rotated {
            raw,
            inv,
            rotated: rotated(&y),
        }
    }

    /// A norm's output as stored, and its `inv`.
    pub(super) fn norm(&self, which: Norm, x: &[f64], gains: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (y, inv) = self
            .model
            .ops
            .rms_norm(which, x, gains, self.model.config.eps);
        (self.store(y), inv)
    }

    /// `h + y`
    fn residual(&self, h: &[f64], mut y: Vec<f64>) -> Vec<f64> {
        add_scaled(1.0, h, &mut y);
        self.store(y)
    }
}
