//! The backward pass of the layers.

use warpwright_driver::{Buffer, Error, Host, Kernel, Queue, View};
use warpwright_kernels::train::attention::{
    KeyGradientsArgs, QueryGradientsArgs, SumGroups, SumGroupsArgs,
};
use warpwright_kernels::train::rms_norm::RmsNormBackwardArgs;
use warpwright_kernels::train::swiglu::SwiGluBackwardArgs;

use super::buffers::{F32LayerBuffers, F32RotatedBuffers, ProjectionInputs};
use super::pass::F32Step;
use super::sizes::TrainingSizes;
use crate::Projection;

impl F32Step {
    /// Runs the backward pass of all layers.
    ///
    /// `work.dh` holds the gradient of the residual stream after the last layer, and at the end the
    /// gradient before the first.
    pub(super) fn backward(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let kept = &self.buffers.kept;
        for l in (0..kept.layers()).rev() {
            // Layers that share buffers have overwritten the activations of layer `l` meanwhile.
            if kept.is_overwritten(l) {
                self.recompute(queue, l)?;
            }
            if kept.inputs_are_overwritten(l) {
                self.recompute_inputs(queue, l)?;
            }
            let layer = kept.layer(l);
            self.feed_forward_backward(queue, l, layer)?;
            self.attention_backward(queue, l, layer)?;
        }
        Ok(())
    }

    /// Runs the backward pass of the feed-forward block of layer `l`.
    fn feed_forward_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &F32LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let F32LayerBuffers {
            g, up, h1, inv2, ..
        } = layer;
        let ProjectionInputs { x2, a, .. } = self.buffers.kept.inputs(l);
        let da = &work.da;
        let dg = &work.dg;
        let dup = &work.dup;
        let dx = &work.dx;
        let dh = &work.dh;
        queue.fill(da, 0.0)?;
        self.project_backward(queue, (l, Projection::Down), dh, a, da)?;
        let args = SwiGluBackwardArgs::<Host> {
            da,
            g,
            up,
            dg,
            dup,
            n: da.len() as u32,
        };
        queue.launch(&self.kernels.swiglu_backward, args)?;
        // Gate and up have the same input, so both add to one gradient.
        queue.fill(dx, 0.0)?;
        self.project_backward(queue, (l, Projection::Gate), dg, x2, dx)?;
        self.project_backward(queue, (l, Projection::Up), dup, x2, dx)?;
        self.norm_backward(
            queue,
            [dx, h1, &self.weights.layers[l].feed_forward_norm, inv2, dh],
        )
    }

    /// Runs the backward pass of the attention block of layer `l`.
    fn attention_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &F32LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let weights = &self.weights.layers[l];
        let TrainingSizes {
            heads, kv_heads, ..
        } = self.sizes;
        queue.fill(&work.grad, 0.0)?;
        self.project_backward(queue, (l, Projection::O), &work.dh, &layer.o, &work.grad)?;
        self.heads_backward(queue, layer)?;
        let dq = self.rotated_back(queue, &work.dq, &layer.q, weights.q_norm.as_ref(), heads)?;
        let dk = self.rotated_back(queue, &work.dk, &layer.k, weights.k_norm.as_ref(), kv_heads)?;
        // Queries, keys and values have the same input, so all three add to one gradient.
        queue.fill(&work.dx, 0.0)?;
        let x1 = &self.buffers.kept.inputs(l).x1;
        for (p, dy) in [
            (Projection::Q, dq),
            (Projection::K, dk),
            (Projection::V, &work.dv),
        ] {
            self.project_backward(queue, (l, p), dy, x1, &work.dx)?;
        }
        self.norm_backward(
            queue,
            [
                &work.dx,
                &self.buffers.kept.streams[l],
                &weights.attention_norm,
                &layer.inv1,
                &work.dh,
            ],
        )
    }

    /// Computes the gradients of queries and keys after RoPE, and of values.
    fn heads_backward(&self, queue: &mut impl Queue, layer: &F32LayerBuffers) -> Result<(), Error> {
        let work = &self.buffers.work;
        let starts = &self.slots.batch.starts;
        let TrainingSizes {
            heads, kv_heads, ..
        } = self.sizes;
        let q = &layer.q.rotated;
        let k = &layer.k.rotated;
        let v = &layer.v;
        let lse = &layer.lse;
        let grad = &work.grad;
        let delta = &work.delta;
        let [dk, dv] = &work.parts;
        let o = &layer.o;
        let dq = &work.dq[0];
        let args = QueryGradientsArgs::<Host> {
            q,
            k,
            v,
            starts,
            o,
            lse,
            grad,
            delta,
            dq,
            heads,
            kv_heads,
        };
        // This kernel also writes `delta`, which the kernel of keys and values reads.
        queue.launch(&self.kernels.query_gradients, args)?;
        let args = KeyGradientsArgs::<Host> {
            q,
            k,
            v,
            starts,
            lse,
            grad,
            delta,
            dk,
            dv,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.key_gradients, args)?;
        self.sum_groups(queue, &self.kernels.sum_groups, dk, &work.dk[0])?;
        self.sum_groups(queue, &self.kernels.sum_groups, dv, &work.dv)
    }

    /// Sums the gradients of the query heads that share a head of keys and values.
    fn sum_groups(
        &self,
        queue: &mut impl Queue,
        kernel: &Kernel<SumGroups>,
        parts: &View<f32>,
        sum: &View<f32>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.sizes;
        queue.launch(
            kernel,
            SumGroupsArgs {
                parts,
                sum,
                group: heads / kv_heads,
                head_dim,
                n: sum.len() as u32,
            },
        )
    }

    /// Returns the gradient of a projection's output from `dy`, its gradient after norm and RoPE.
    fn rotated_back<'a>(
        &self,
        queue: &mut impl Queue,
        [dy, raw]: &'a [Buffer<f32>; 2],
        saved: &F32RotatedBuffers,
        gains: Option<&Buffer<f32>>,
        heads: u32,
    ) -> Result<&'a View<f32>, Error> {
        self.rotate(queue, &self.kernels.rotate_back, dy, heads)?;
        let (Some([x, inv]), Some(gains)) = (&saved.normed, gains) else {
            return Ok(dy);
        };
        queue.fill(raw, 0.0)?;
        self.norm_backward(queue, [dy, x, gains, inv, raw])?;
        Ok(raw)
    }

    /// Adds the gradient of a norm's input to `sum`, given the gradient `dy` of its output.
    pub(super) fn norm_backward(
        &self,
        queue: &mut impl Queue,
        [dy, x, g, inv, sum]: [&View<f32>; 5],
    ) -> Result<(), Error> {
        let args = RmsNormBackwardArgs::<Host> {
            dy,
            x,
            g,
            inv,
            sum,
            n: g.len() as u32,
        };
        queue.launch(&self.kernels.norm_backward, args)
    }
}
