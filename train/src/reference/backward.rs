//! The backward pass of the layers.

use super::adapters::Adapter;
use super::forward::{Activations, LayerActivations, Rotated};
use super::ops::Norm;
use super::run::MicroBatchRun;
use crate::Projection;
use warpwright_kernels::train::attention::Saved;
use warpwright_kernels::train::products::add_scaled;

/// Gradients inside a layer.
#[derive(Clone, Debug)]
pub struct LayerGradients {
    /// The gradient of the residual stream before the layer, `[tokens, hidden]`.
    pub dh: Vec<f64>,
    /// The gradient of the query projection's output, `[tokens, heads, head_dim]`.
    pub dq: Vec<f64>,
    /// The gradient of the key projection's output, `[tokens, kv_heads, head_dim]`.
    pub dk: Vec<f64>,
    /// The gradient of the value projection's output, `[tokens, kv_heads, head_dim]`.
    pub dv: Vec<f64>,
}

/// The gradients of a layer's adapters.
type Grads = [Option<Adapter>; 7];

impl MicroBatchRun<'_> {
    /// Returns the gradients inside the layers and of their adapters. `dh` is the gradient of the
    /// residual stream after the last layer.
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

    /// Returns the gradient of the residual stream after attention. `dh` is its gradient after the
    /// layer.
    fn feed_forward_backward(
        &self,
        l: usize,
        layer: &LayerActivations,
        dh: &[f64],
        grads: &mut Grads,
    ) -> Vec<f64> {
        let da = self.projected(l, Projection::Down, dh, layer, &layer.a, grads);
        let (dg, dup) = self.model.ops.swiglu_backward(&da, &layer.g, &layer.up);
        let dg = self.store(dg);
        let dup = self.store(dup);

        // Both projections read `x2`. Their gradients are added before the sum is rounded.
        let mut dx = self.projected(l, Projection::Gate, &dg, layer, &layer.x2, grads);
        add_scaled(
            1.0,
            &self.projected(l, Projection::Up, &dup, layer, &layer.x2, grads),
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

    /// Returns the gradients inside the layer. `dh1` is the gradient of the residual stream after
    /// attention.
    fn attention_backward(
        &self,
        l: usize,
        layer: &LayerActivations,
        dh1: Vec<f64>,
        grads: &mut Grads,
    ) -> LayerGradients {
        let weights = &self.model.weights.layers[l];
        let grad = self.store(self.projected(l, Projection::O, &dh1, layer, &layer.o, grads));
        let [dq, dk, dv] = self.heads_backward(layer, &grad);
        let dq = self.rotated_back(Norm::Q, &dq, &layer.q, weights.q_norm.as_deref());
        let dk = self.rotated_back(Norm::K, &dk, &layer.k, weights.k_norm.as_deref());
        let dv = self.store(dv);

        // Q, K and V read `x1`. Their gradients are added before the sum is rounded.
        let mut dx = vec![0.0; layer.x1.len()];
        for (p, dy) in [
            (Projection::Q, &dq),
            (Projection::K, &dk),
            (Projection::V, &dv),
        ] {
            add_scaled(
                1.0,
                &self.projected(l, p, dy, layer, &layer.x1, grads),
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

    /// Returns `dq`, `dk` and `dv` in rotated form. `grad` is the gradient of attention's output.
    fn heads_backward(&self, layer: &LayerActivations, grad: &[f64]) -> [Vec<f64>; 3] {
        let ops = self.model.ops;
        let at = self.heads();
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

    /// Returns the gradient of the projection's output of queries or keys: back through RoPE, and
    /// then through the head norm.
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

    /// Returns the gradient of a norm's input. `sum` is the gradient that bypasses the norm.
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

    /// Returns the unrounded `dx` of a projection, and adds the gradients of its adapter to
    /// `grads`.
    fn projected(
        &self,
        l: usize,
        p: Projection,
        dy: &[f64],
        layer: &LayerActivations,
        x: &[f64],
        grads: &mut Grads,
    ) -> Vec<f64> {
        let dx;
        (dx, grads[p as usize]) = self.project_backward(l, p, dy, x, &layer.u[p as usize]);
        dx
    }
}
