//! The layers, backward.

use super::adapters::Adapter;
use super::forward::{Activations, LayerActivations, Rotated};
use super::ops::Norm;
use super::run::Run;
use crate::Projection;
use warpwright_kernels::train::attention::Saved;
use warpwright_kernels::train::products::add_scaled;

/// Gradients inside of a layer.
#[derive(Clone, Debug)]
pub struct LayerGradients {
    /// `[tokens, hidden]`: of the residual stream before the layer.
    pub dh: Vec<f64>,
    /// `[tokens, heads, head_dim]`: of the product that makes queries.
    pub dq: Vec<f64>,
    /// `[tokens, kv_heads, head_dim]`: of the product that makes keys.
    pub dk: Vec<f64>,
    /// `[tokens, kv_heads, head_dim]`: of the product that makes values.
    pub dv: Vec<f64>,
}

/// Gradients of the adapters of a layer.
type Grads = [Option<Adapter>; 7];

impl Run<'_> {
    /// Gradients inside of the layers, and of their adapters. `dh` is the gradient after the last layer.
    pub(super) fn backward(
        &self,
        saved: &Activations,
        dh: &[f64],
    ) -> (Vec<LayerGradients>, Vec<Grads>) {
        let mut dh = dh.to_vec();
        let mut layers = Vec::new();
        for (l, layer) in saved.layers.iter().enumerate().rev() {
            let mut grads = Grads::default();
            let dh1 = self.feed_forward_backward(l, layer, &dh, &mut grads);
            let gradients = self.attention_backward(l, layer, dh1, &mut grads);
            dh.clone_from(&gradients.dh);
            layers.push((gradients, grads));
        }
        layers.into_iter().rev().unzip()
    }

    /// The gradient of the residual stream after attention, of that after the layer.
    fn feed_forward_backward(
        &self,
        l: usize,
        layer: &LayerActivations,
        dh: &[f64],
        grads: &mut Grads,
    ) -> Vec<f64> {
        let da = self.projected((l, Projection::Down), dh, (layer, &layer.a), grads);
        let (dg, dup) = self.model.ops.swiglu_backward(&da, &layer.g, &layer.up);
        let (dg, dup) = (self.store(dg), self.store(dup));
        let mut dx = self.projected((l, Projection::Gate), &dg, (layer, &layer.x2), grads);
        add_scaled(
            1.0,
            &self.projected((l, Projection::Up), &dup, (layer, &layer.x2), grads),
            &mut dx,
        );
        let gains = &self.model.weights.layers[l].feed_forward_norm;
        self.normed(
            Norm::FeedForward,
            &self.store(dx),
            &layer.h1,
            gains,
            &layer.inv2,
            dh.to_vec(),
        )
    }

    /// The gradients inside of the layer, of that of the residual stream after attention.
    fn attention_backward(
        &self,
        l: usize,
        layer: &LayerActivations,
        dh1: Vec<f64>,
        grads: &mut Grads,
    ) -> LayerGradients {
        let weights = &self.model.weights.layers[l];
        let grad = self.store(self.projected((l, Projection::O), &dh1, (layer, &layer.o), grads));
        let [dq, dk, dv] = self.heads_backward(layer, &grad);
        let dq = self.rotated_back(Norm::Q, &dq, &layer.q, weights.q_norm.as_deref());
        let dk = self.rotated_back(Norm::K, &dk, &layer.k, weights.k_norm.as_deref());
        let dv = self.store(dv);
        let mut dx = vec![0.0; layer.x1.len()];
        for (p, dy) in [
            (Projection::Q, &dq),
            (Projection::K, &dk),
            (Projection::V, &dv),
        ] {
            add_scaled(
                1.0,
                &self.projected((l, p), dy, (layer, &layer.x1), grads),
                &mut dx,
            );
        }
        let dx = self.store(dx);
        let dh = self.normed(
            Norm::Attention,
            &dx,
            &layer.h,
            &weights.attention_norm,
            &layer.inv1,
            dh1,
        );
        LayerGradients { dh, dq, dk, dv }
    }

    /// `dq`, `dk` and `dv`, rotated as the forward rotated, of the gradient of attention's output.
    fn heads_backward(&self, layer: &LayerActivations, grad: &[f64]) -> [Vec<f64>; 3] {
        let (ops, at) = (self.model.ops, self.heads());
        let saved = Saved {
            q: &layer.q.rotated,
            k: &layer.k.rotated,
            v: &layer.v,
            lse: &layer.lse,
        };
        let delta = ops.attention_delta(&at, grad, &layer.o);
        let [dq, dk, dv] = ops.attention_backward(&at, &saved, grad, &delta);
        [dq, ops.sum_groups(&at, &dk), ops.sum_groups(&at, &dv)]
    }

    /// The gradient of a product of queries or keys: back through RoPE, then through the head norm.
    fn rotated_back(
        &self,
        which: Norm,
        dy: &[f64],
        saved: &Rotated,
        gains: Option<&[f64]>,
    ) -> Vec<f64> {
        let dy = self.model.ops.rope_backward(dy, &self.angles);
        match gains {
            Some(gains) => self.normed(
                which,
                &dy,
                &saved.raw,
                gains,
                &saved.inv,
                vec![0.0; dy.len()],
            ),
            None => self.store(dy),
        }
    }

    /// Back through a norm; `sum` is the gradient that passes it by.
    fn normed(
        &self,
        which: Norm,
        dy: &[f64],
        x: &[f64],
        gains: &[f64],
        inv: &[f64],
        mut sum: Vec<f64>,
    ) -> Vec<f64> {
        self.model
            .ops
            .rms_norm_backward(which, dy, x, gains, inv, &mut sum);
        self.store(sum)
    }

    /// `dx` of a projection, not stored; the gradients of its adapter go among those of the layer.
    fn projected(
        &self,
        (l, p): (usize, Projection),
        dy: &[f64],
        (layer, x): (&LayerActivations, &[f64]),
        grads: &mut Grads,
    ) -> Vec<f64> {
        let dx;
        (dx, grads[p as usize]) = self.project_backward((l, p), dy, x, &layer.u[p as usize]);
        dx
    }
}
