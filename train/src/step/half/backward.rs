//! The backward pass of the layers.

use ptx_gen::bf16;
use warpwright_driver::{Buffer, Error, Host, Queue, View};
use warpwright_kernels::train::flash::{FlashKeysArgs, FlashQueriesArgs, SummedHeads};
use warpwright_kernels::train::half::norm::RmsNormBackwardArgs;
use warpwright_kernels::train::half::rotate::HeadsBackwardArgs;
use warpwright_kernels::train::half::swiglu::SwiGluBackwardArgs;

use super::buffers::{Bf16LayerBuffers, Bf16RotatedBuffers};
use super::pass::Bf16Step;
use crate::Projection;
use crate::step::sizes::TrainingSizes;

impl Bf16Step {
    /// Runs the backward pass of all layers.
    ///
    /// It ends with the adapters of the first layer's attention block. The gradient of the embedded
    /// tokens is not computed, because the embedding is frozen.
    pub(crate) fn backward(&self, queue: &mut impl Queue) -> Result<(), Error> {
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
        layer: &Bf16LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let x2 = &self.buffers.kept.inputs(l).x2;
        let Bf16LayerBuffers { h1, inv2, .. } = layer;
        let dg = &work.dg;
        let dup = &work.dup;
        let [dx, part] = &work.dx;
        use Projection::{Gate, Up};
        if self.dropout.is_none() {
            self.swiglu_linear_backward(queue, l, &work.dh, layer, [dg, dup])?;
            self.sum_backward(queue, l, &[(Gate, dg), (Up, dup)], x2, dx)?;
        } else {
            self.swiglu_backward(queue, l, layer)?;
            self.project_backward(queue, (l, Up), [dup, x2], None, part)?;
            self.project_backward(queue, (l, Gate), [dg, x2], Some(part), dx)?;
        }
        self.norm_backward(
            queue,
            [dx, h1],
            &self.weights.layers[l].feed_forward_norm,
            inv2,
        )
    }

    /// Computes the gradients of `g` and `up` with separate kernels, as dropout requires.
    fn swiglu_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &Bf16LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let a = &self.buffers.kept.inputs(l).a;
        let Bf16LayerBuffers { g, up, .. } = layer;
        let da = &work.da;
        let dg = &work.dg;
        let dup = &work.dup;
        self.project_backward(queue, (l, Projection::Down), [&work.dh, a], None, da)?;
        let args = SwiGluBackwardArgs::<Host> {
            da,
            g,
            up,
            dg,
            dup,
            n: da.len() as u32,
        };
        queue.launch(&self.kernels.swiglu_backward, args)
    }

    /// Runs the backward pass of the attention block of layer `l`.
    fn attention_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &Bf16LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let x1 = &self.buffers.kept.inputs(l).x1;
        use Projection::{K, O, Q, V};
        self.project_backward(queue, (l, O), [&work.dh, &layer.o], None, &work.grad)?;
        self.heads_backward(queue, l, layer)?;
        let [dx, part] = &work.dx;
        let all = [(Q, &*work.dq), (K, &*work.dk), (V, &*work.dv)];
        if l == 0 {
            // The embedding is frozen, so only the gradients of the adapters are needed.
            for (p, dy) in all {
                self.adapter_du(queue, (l, p), [dy, x1])?;
            }
            return Ok(());
        }
        if self.dropout.is_none() {
            self.sum_backward(queue, l, &all, x1, dx)?;
        } else {
            self.project_backward(queue, (l, Q), [&work.dq, x1], None, dx)?;
            self.project_backward(queue, (l, K), [&work.dk, x1], Some(dx), part)?;
            self.project_backward(queue, (l, V), [&work.dv, x1], Some(part), dx)?;
        }
        self.norm_backward(
            queue,
            [dx, &self.buffers.kept.streams[l]],
            &self.weights.layers[l].attention_norm,
            &layer.inv1,
        )
    }

    /// Computes the gradients of the outputs of the Q, K and V projections.
    fn heads_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &Bf16LayerBuffers,
    ) -> Result<(), Error> {
        let work = &self.buffers.work;
        let starts = &self.slots.batch.starts;
        let weights = &self.weights.layers[l];
        let TrainingSizes {
            tokens,
            heads,
            kv_heads,
            ..
        } = self.sizes;
        let q = &layer.q.rotated;
        let k = &layer.k.rotated;
        let v = &layer.v;
        let lse = &layer.lse;
        // The number of query heads per head of keys that the kernel leaves to be summed.
        let group = match self.kernels.key_gradients.def().parts {
            SummedHeads::Heads => heads / kv_heads,
            SummedHeads::Groups => 1,
        };
        let parts = self.sizes.rows(kv_heads * group * self.sizes.head_dim);
        let grad = &work.grad;
        let delta = &work.delta;
        let [dk, dv] = work.parts.each_ref().map(|all| all.view_range(0..parts));
        let o = &layer.o;
        let dq = &work.dq_rotated;
        let args = FlashQueriesArgs::<Host> {
            q,
            k,
            v,
            starts,
            o,
            lse,
            grad,
            delta,
            dq,
            tokens,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.query_gradients, args)?;
        let args = FlashKeysArgs::<Host> {
            q,
            k,
            v,
            starts,
            lse,
            grad,
            delta,
            dk: &dk,
            dv: &dv,
            tokens,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.key_gradients, args)?;
        self.rotated_back(
            queue,
            dq,
            1,
            Some((&layer.q, weights.q_norm.as_ref())),
            &work.dq,
        )?;
        self.rotated_back(
            queue,
            &dk,
            group,
            Some((&layer.k, weights.k_norm.as_ref())),
            &work.dk,
        )?;
        self.rotated_back(queue, &dv, group, None, &work.dv)
    }

    /// Computes `dx`, the gradient of a projection's output.
    ///
    /// `parts` has the gradients of attention's inputs, of which each `group` of heads is summed.
    /// For queries and keys, `rotated` has the data to go back through RoPE and the head norm.
    fn rotated_back(
        &self,
        queue: &mut impl Queue,
        parts: &View<f32>,
        group: u32,
        rotated: Option<(&Bf16RotatedBuffers, Option<&Buffer<f32>>)>,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        let freq = &self.constants.freq;
        let TrainingSizes {
            tokens, head_dim, ..
        } = self.sizes;
        let no_x = dx.view_range(0..0);
        let nothing = freq.view_range(0..0);
        let normed = rotated.and_then(|(saved, gains)| Some((saved.normed.as_ref()?, gains?)));
        let (x, inv, g) = match normed {
            Some(((x, inv), g)) => (&**x, &**inv, &**g),
            None => (&no_x, &nothing, &nothing),
        };
        let args = HeadsBackwardArgs::<Host> {
            positions: &self.slots.batch.positions,
            freq,
            parts,
            x,
            g,
            inv,
            dx,
            tokens,
            heads: dx.len() as u32 / (tokens * head_dim),
            group,
        };
        let kernels = &self.kernels;
        let kernel = if rotated.is_some() {
            &kernels.rotated_backward
        } else {
            &kernels.values_backward
        };
        queue.launch(kernel, args)
    }

    /// Adds the gradient of a norm's input to the gradient of the residual stream.
    pub(super) fn norm_backward(
        &self,
        queue: &mut impl Queue,
        [dy, x]: [&View<bf16>; 2],
        g: &View<f32>,
        inv: &View<f32>,
    ) -> Result<(), Error> {
        let sum = &self.buffers.work.dh;
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
