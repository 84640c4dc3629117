//! The operations of a pass in `bf16`.

use ptx_gen::bf16;
use warpwright_driver::Error;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_kernels::train::flash::{
    FlashForwardArgs, FlashKeysArgs, FlashQueriesArgs, SummedHeads,
};
use warpwright_kernels::train::half::convert::RoundArgs;
use warpwright_kernels::train::half::cross_entropy::LogitGradientsArgs;
use warpwright_kernels::train::half::embed::EmbedTokensArgs;
use warpwright_kernels::train::half::linear::{Logits, LogitsArgs};
use warpwright_kernels::train::half::lora::{LoraDownArgs, LoraGradientsArgs};
use warpwright_kernels::train::half::norm::{RmsNormBackwardArgs, RmsNormForwardArgs};
use warpwright_kernels::train::half::rotate::{HeadsBackwardArgs, RotateForwardArgs};
use warpwright_kernels::train::half::swiglu::{SwiGluBackwardArgs, SwiGluForwardArgs};
use warpwright_kernels::train::products::MatmulLayout;

use super::linear::{LinearOperands, MatmulShape};
use super::step::Bf16Step;
use crate::Projection::{self, Down, K, Q, V};
use crate::projection::LayerProjection;
use crate::step::adapters::AdapterViews;
use crate::step::buffers::{LayerBuffers, RotatedBuffers, StepBuffers};
use crate::step::passes::operations::{
    AdapterProduct, AttentionGradients, HeadChunk, OutputGradient, PassPurpose, RmsNorm,
    StepOperations,
};
use crate::step::sizes::{ProjectionShape, TrainingSizes};
use crate::step::state::StepState;
use crate::step::weights::DeviceWeights;

impl StepOperations for Bf16Step {
    type Element = bf16;

    const EMBEDDING_GRADIENT: bool = false;

    fn state(&self) -> &StepState {
        &self.state
    }

    fn weights(&self) -> &DeviceWeights<bf16> {
        &self.weights
    }

    fn buffers(&self) -> &StepBuffers<Buffer<bf16>> {
        &self.buffers
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.nothing_pending();
        let x = &self.state.adapters.parameters;
        let args = RoundArgs::<Host> {
            x,
            y: &self.scratch.adapters,
            n: x.len() as u32,
        };
        queue.launch(&self.kernels.round, args)?;
        let TrainingSizes { vocab, hidden, .. } = self.state.sizes;
        let args = EmbedTokensArgs::<Host> {
            ids: &self.state.slots.batch.ids,
            table: &self.weights.embed,
            h: &self.buffers.kept.streams[0],
            vocab,
            hidden,
        };
        queue.launch(&self.kernels.embed, args)
    }

    fn norm(
        &self,
        queue: &mut impl Queue,
        norm: &RmsNorm<'_, bf16>,
        y: &View<bf16>,
    ) -> Result<(), Error> {
        let args = RmsNormForwardArgs::<Host> {
            x: norm.x,
            g: norm.gains,
            y,
            inv: norm.inv,
            n: norm.gains.len() as u32,
            eps: self.state.eps,
        };
        queue.launch(&self.kernels.norm, args)
    }

    fn norm_backward(
        &self,
        queue: &mut impl Queue,
        norm: &RmsNorm<'_, bf16>,
        dy: &View<bf16>,
    ) -> Result<(), Error> {
        let args = RmsNormBackwardArgs::<Host> {
            dy,
            x: norm.x,
            g: norm.gains,
            inv: norm.inv,
            sum: &self.buffers.gradients.dh,
            n: norm.gains.len() as u32,
        };
        queue.launch(&self.kernels.norm_backward, args)
    }

    fn project(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        of: LayerProjection,
        x: &View<bf16>,
        residual: Option<&View<bf16>>,
        y: &View<bf16>,
    ) -> Result<(), Error> {
        self.linear_forward(queue, purpose, of, x, residual, y)
    }

    fn unrotated<'a>(
        &'a self,
        projection: Projection,
        heads: &'a RotatedBuffers<Buffer<bf16>>,
    ) -> &'a View<bf16> {
        match (&heads.normed, projection) {
            (Some(normed), _) => &normed.x,
            (None, Q) => &self.scratch.raw_queries,
            (None, _) => &self.scratch.raw_keys,
        }
    }

    fn rotate(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        heads: &RotatedBuffers<Buffer<bf16>>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            tokens, head_dim, ..
        } = self.state.sizes;
        let freq = &self.state.constants.freq;

        // A kernel without the head norm has the same arguments, but does not read these two.
        let nothing = freq.view_range(0..0);
        let args = RotateForwardArgs::<Host> {
            positions: &self.state.slots.batch.positions,
            freq,
            x: self.unrotated(of.projection, heads),
            g: self.weights.head_gains(of).map_or(&nothing, |gains| gains),
            y: &heads.rotated,
            inv: heads.normed.as_ref().map_or(&nothing, |normed| &normed.inv),
            tokens,
            heads: self.state.sizes.projection(of.projection).n / head_dim,
            eps: self.state.eps,
        };
        queue.launch(&self.kernels.rotate, args)
    }

    fn attention(
        &self,
        queue: &mut impl Queue,
        layer: &LayerBuffers<Buffer<bf16>>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            tokens,
            heads,
            kv_heads,
            ..
        } = self.state.sizes;
        let args = FlashForwardArgs::<Host> {
            q: &layer.q.rotated,
            k: &layer.k.rotated,
            v: &layer.v,
            starts: &self.state.slots.batch.starts,
            o: &layer.o,
            lse: &layer.lse,
            tokens,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.attention, args)
    }

    fn attention_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
    ) -> Result<AttentionGradients<'_, bf16>, Error> {
        let layer = self.buffers.kept.layer(l);
        let gradients = &self.buffers.gradients;
        let starts = &self.state.slots.batch.starts;
        let TrainingSizes {
            tokens,
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.state.sizes;
        let q = &layer.q.rotated;
        let k = &layer.k.rotated;
        let v = &layer.v;
        let lse = &layer.lse;
        let grad = &gradients.d_o;
        let delta = &gradients.delta;

        // The number of query heads per head of keys that the kernel leaves to be summed.
        let group = match self.kernels.key_gradients.def().parts {
            SummedHeads::Heads => heads / kv_heads,
            SummedHeads::Groups => 1,
        };
        let parts = 0..self.state.sizes.rows(kv_heads * group * head_dim);
        let dk = gradients.dk_of_heads.view_range(parts.clone());
        let dv = gradients.dv_of_heads.view_range(parts);
        let dq = &self.scratch.dq_rotated;
        let args = FlashQueriesArgs::<Host> {
            q,
            k,
            v,
            starts,
            o: &layer.o,
            lse,
            grad,
            delta,
            dq,
            tokens,
            heads,
            kv_heads,
        };

        // This kernel also writes `delta`, which the kernel of keys and values reads.
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
        let of_output = AttentionGradients {
            dq: &*self.scratch.dq,
            dk: &self.scratch.dk,
            dv: &self.scratch.dv,
        };
        self.heads_backward(queue, Q.of_layer(l), Some(&layer.q), dq, 1, of_output.dq)?;
        self.heads_backward(
            queue,
            K.of_layer(l),
            Some(&layer.k),
            &dk,
            group,
            of_output.dk,
        )?;
        self.heads_backward(queue, V.of_layer(l), None, &dv, group, of_output.dv)?;
        Ok(of_output)
    }

    fn project_swiglu(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        l: usize,
    ) -> Result<(), Error> {
        self.swiglu_linear_forward(queue, purpose, l)
    }

    fn swiglu(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        let layer = self.buffers.kept.layer(l);
        let a = &self.buffers.kept.inputs(l).a;
        let kernel = self.kernels.swiglu.as_ref();
        queue.launch(
            kernel.expect("it is loaded for the recomputation that computes `a` again"),
            SwiGluForwardArgs::<Host> {
                g: &layer.g,
                up: &layer.up,
                a,
                n: a.len() as u32,
            },
        )
    }

    fn project_swiglu_backward(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        if self.state.dropout.is_none() {
            return self.swiglu_linear_backward(queue, l);
        }

        let layer = self.buffers.kept.layer(l);
        let a = &self.buffers.kept.inputs(l).a;
        let gradients = &self.buffers.gradients;
        let da = &self.scratch.da;
        self.project_backward(queue, Down.of_layer(l), a, &gradients.dh, da)?;
        let args = SwiGluBackwardArgs::<Host> {
            da,
            g: &layer.g,
            up: &layer.up,
            dg: &gradients.dg,
            dup: &gradients.dup,
            n: da.len() as u32,
        };
        queue.launch(&self.kernels.swiglu_backward, args)
    }

    fn project_backward(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        x: &View<bf16>,
        dy: &View<bf16>,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        self.linear_backward(queue, of, x, dy, None, dx)
    }

    fn project_input_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        x: &View<bf16>,
        outputs: &[OutputGradient<'_, bf16>],
    ) -> Result<(), Error> {
        if self.state.dropout.is_none() {
            self.linear_sum_backward(queue, l, x, outputs)
        } else {
            self.linear_backward_in_turn(queue, l, x, outputs)
        }
    }

    fn adapter(&self, of: LayerProjection) -> Option<AdapterViews<bf16>> {
        // B is transposed here: `[rank, n]`.
        self.state.adapters.layout.views(&self.scratch.adapters, of)
    }

    fn du(&self, projection: Projection) -> &View<bf16> {
        &self.scratch.du[projection as usize]
    }

    fn dropout(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        _: u32,
        x: &View<bf16>,
    ) -> Result<View<bf16>, Error> {
        let masked = self.scratch.masked.view_range(0..x.len());
        self.mask(queue, of, x, None, &masked)?;
        Ok(masked)
    }

    fn adapter_product(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        product: AdapterProduct<'_, bf16>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        let rows = self.state.sizes.tokens;
        let down = |x, a, factor, u, depth| LoraDownArgs::<Host> {
            x,
            a,
            factor,
            u,
            rows,
            depth,
        };
        let gradients = |u, x, sum, columns| LoraGradientsArgs::<Host> {
            u,
            x,
            sum,
            rows,
            columns,
        };
        let kernels = &self.kernels;
        match product {
            AdapterProduct::U { x, a, factor, u } => {
                queue.launch(&kernels.down, down(x, a, factor, u, k))
            }
            // B is stored transposed, so this is the same product, and its gradient is `u^T dy`.
            AdapterProduct::UGradient { dy, b, du } => {
                let scale = &self.state.constants.scale;
                queue.launch(&kernels.down, down(dy, b, scale, du, n))
            }
            AdapterProduct::BGradient { dy, u, sum } => {
                queue.launch(&kernels.gradients, gradients(u, dy, sum, n))
            }
            AdapterProduct::AGradient { du, x, sum } => {
                queue.launch(&kernels.gradients, gradients(du, x, sum, k))
            }
        }
    }

    fn begin_head(&self, _: &mut impl Queue) -> Result<(), Error> {
        // The gradients of the logits overwrite one of the workspaces of unpacked matrices.
        self.nothing_pending();
        Ok(())
    }

    fn logits(&self, queue: &mut impl Queue, chunk: &HeadChunk<bf16>) -> Result<(), Error> {
        let TrainingSizes { hidden, vocab, .. } = self.state.sizes;
        let rows = chunk.tokens;

        // The kernel of the logits has fixed tiles, unlike other matmuls, and no adapter.
        let x = self.maps.of(&chunk.x, [rows, hidden], Logits::X)?;
        let w = self
            .maps
            .of(self.weights.head(), [vocab, hidden], Logits::W)?;
        let args = LogitsArgs::<Host> {
            x: &x,
            w: &w,
            y: &chunk.logits,
            rows,
            columns: vocab,
            depth: hidden,
            blocks: self.kernels.blocks,
        };
        queue.launch(&self.kernels.logits, args)
    }

    fn logits_backward(
        &self,
        queue: &mut impl Queue,
        chunk: &HeadChunk<bf16>,
    ) -> Result<(), Error> {
        let TrainingSizes { hidden, vocab, .. } = self.state.sizes;
        let dl = self.scratch.dl.view_range(0..chunk.logits.len());
        let args = LogitGradientsArgs::<Host> {
            logits: &chunk.logits,
            labels: &chunk.labels,
            lse: &chunk.lse,
            dl: &dl,
            vocab,
        };
        queue.launch(&self.kernels.logit_gradients, args)?;
        let operands = LinearOperands {
            layout: MatmulLayout::Nn,
            x: &dl,
            w: self.weights.head(),
            adapter: None,
            bias: None,
            residual: None,
            factor: &self.state.slots.batch.factor,
            y: &chunk.dx,
            shape: MatmulShape {
                rows: chunk.tokens,
                columns: hidden,
                depth: vocab,
            },
            ahead: self.nothing_ahead(),
        };
        self.linear(queue, &operands)
    }
}

impl Bf16Step {
    /// Computes `dx`, the gradient of the output of a projection before attention, and goes back
    /// through RoPE and the head norm if there are `heads`. Values have neither.
    ///
    /// `parts` has the gradients of attention's inputs, of which each `group` of heads is summed.
    fn heads_backward(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        heads: Option<&RotatedBuffers<Buffer<bf16>>>,
        parts: &View<f32>,
        group: u32,
        dx: &View<bf16>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            tokens, head_dim, ..
        } = self.state.sizes;
        let freq = &self.state.constants.freq;
        let no_x = dx.view_range(0..0);
        let nothing = freq.view_range(0..0);
        let normed = heads.and_then(|heads| heads.normed.as_ref());
        let args = HeadsBackwardArgs::<Host> {
            positions: &self.state.slots.batch.positions,
            freq,
            parts,
            x: normed.map_or(&no_x, |normed| &normed.x),
            g: self.weights.head_gains(of).map_or(&nothing, |gains| gains),
            inv: normed.map_or(&nothing, |normed| &normed.inv),
            dx,
            tokens,
            heads: self.state.sizes.projection(of.projection).n / head_dim,
            group,
        };
        let kernel = if heads.is_some() {
            &self.kernels.rotated_backward
        } else {
            &self.kernels.values_backward
        };
        queue.launch(kernel, args)
    }
}
