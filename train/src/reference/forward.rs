//! The forward pass of the layers.

use super::ops::Norm;
use super::run::MicroBatchRun;
use crate::Projection;
use warpwright_kernels::train::embed;
use warpwright_kernels::train::products::add_scaled;

/// The activations that the forward pass keeps for the backward pass.
#[derive(Clone, Debug)]
pub struct Activations {
    /// The layers, in order.
    pub layers: Vec<LayerActivations>,
    /// The residual stream after the last layer, `[tokens, hidden]`.
    pub h: Vec<f64>,
}

/// The activations of a layer.
#[derive(Clone, Default, Debug)]
pub struct LayerActivations {
    /// The residual stream before the layer, `[tokens, hidden]`.
    pub h: Vec<f64>,
    /// The inverse RMS of the norm before attention, `[tokens]`.
    pub inv1: Vec<f64>,
    /// The output of the norm before attention, `[tokens, hidden]`.
    pub x1: Vec<f64>,
    /// The queries.
    pub q: Rotated,
    /// The keys.
    pub k: Rotated,
    /// The values, `[tokens, kv_heads, head_dim]`.
    pub v: Vec<f64>,
    /// The output of attention, `[tokens, heads, head_dim]`.
    pub o: Vec<f64>,
    /// The natural log-sum-exp of the attention scores, `[tokens, heads]`.
    pub lse: Vec<f64>,
    /// The residual stream after attention, `[tokens, hidden]`.
    pub h1: Vec<f64>,
    /// The inverse RMS of the norm before the feed-forward block, `[tokens]`.
    pub inv2: Vec<f64>,
    /// The output of the norm before the feed-forward block, `[tokens, hidden]`.
    pub x2: Vec<f64>,
    /// The output of the gate projection, `[tokens, feed_forward]`.
    pub g: Vec<f64>,
    /// The output of the up projection, `[tokens, feed_forward]`.
    pub up: Vec<f64>,
    /// The output of SwiGLU, `[tokens, feed_forward]`.
    pub a: Vec<f64>,
    /// The intermediate results `u` of the target projections, `[tokens, rank]` each, in the order
    /// of [`Projection::ALL`].
    pub u: [Vec<f64>; 7],
}

/// The queries or the keys.
#[derive(Clone, Default, Debug)]
pub struct Rotated {
    /// The values before the head norm, `[tokens, heads, head_dim]`. Empty without a head norm.
    pub raw: Vec<f64>,
    /// The inverse RMS of the head norm, `[tokens, heads]`. Empty without a head norm.
    pub inv: Vec<f64>,
    /// The values that attention reads, `[tokens, heads, head_dim]`.
    pub rotated: Vec<f64>,
}

/// The intermediate results `u` of a layer's projections.
type Us = [Vec<f64>; 7];

impl MicroBatchRun<'_> {
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
        let ops = self.model.ops;
        let weights = &self.model.weights.layers[l];
        let mut u = Us::default();
        let (x1, inv1) = self.norm(Norm::Attention, &h, &weights.attention_norm);
        let q = self.rotated(
            l,
            Projection::Q,
            &x1,
            weights.q_norm.as_deref().map(|g| (Norm::Q, g)),
            &mut u,
        );
        let k = self.rotated(
            l,
            Projection::K,
            &x1,
            weights.k_norm.as_deref().map(|g| (Norm::K, g)),
            &mut u,
        );
        let v = self.store(self.project(l, Projection::V, &x1, &mut u));
        let (o, lse) = ops.attention(&self.heads(), &q.rotated, &k.rotated, &v);

        // The device stores this tensor, so it is rounded to the format of its storage.
        let o = self.store(o);
        let h1 = self.residual(&h, self.project(l, Projection::O, &o, &mut u));
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

    /// Returns the residual stream after the layer.
    fn feed_forward(&self, l: usize, layer: &mut LayerActivations) -> Vec<f64> {
        let u = &mut layer.u;
        let h1 = &layer.h1;
        let gains = &self.model.weights.layers[l].feed_forward_norm;
        (layer.x2, layer.inv2) = self.norm(Norm::FeedForward, h1, gains);
        layer.g = self.store(self.project(l, Projection::Gate, &layer.x2, u));
        layer.up = self.store(self.project(l, Projection::Up, &layer.x2, u));
        layer.a = self.store(self.model.ops.swiglu(&layer.g, &layer.up));
        self.residual(h1, self.project(l, Projection::Down, &layer.a, u))
    }

    /// Returns a projection after its head norm, if there is one, and RoPE.
    fn rotated(
        &self,
        l: usize,
        p: Projection,
        x: &[f64],
        norm: Option<(Norm, &[f64])>,
        u: &mut Us,
    ) -> Rotated {
        let ops = self.model.ops;
        let eps = self.model.config.eps;
        let y = self.project(l, p, x, u);
        let rotated = |y: &[f64]| self.store(ops.rope(y, &self.angles));

        // Without a head norm, the projection is rotated before it is stored, so it is rounded only
        // once.
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

    /// Returns the stored output of a norm, and its inverse RMS.
    pub(super) fn norm(&self, which: Norm, x: &[f64], gains: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (y, inv) = self
            .model
            .ops
            .rms_norm(which, x, gains, self.model.config.eps);
        (self.store(y), inv)
    }

    /// Returns `h + y`.
    fn residual(&self, h: &[f64], mut y: Vec<f64>) -> Vec<f64> {
        add_scaled(1.0, h, &mut y);
        self.store(y)
    }
}
