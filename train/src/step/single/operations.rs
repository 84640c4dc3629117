//! The operations of a pass in `f32`.

use warpwright_driver::Error;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::stream::Queue;
use warpwright_kernels::simple::swiglu::SwiGluArgs;
use warpwright_kernels::train::attention::{
    DocumentAttentionArgs, KeyGradientsArgs, QueryGradientsArgs, SumGroupsArgs,
};
use warpwright_kernels::train::cross_entropy::LogitGradientsArgs;
use warpwright_kernels::train::embed::EmbedTokensArgs;
use warpwright_kernels::train::linear::BroadcastRowArgs;
use warpwright_kernels::train::rms_norm::{RmsNormBackwardArgs, RmsNormForwardArgs};
use warpwright_kernels::train::rope::{RotateHeads, RotateHeadsArgs};
use warpwright_kernels::train::swiglu::SwiGluBackwardArgs;

use super::matmul::AddedProduct;
use super::scratch::HeadGradients;
use super::step::F32Step;
use crate::Projection::{self, Down, K, Q, Up};
use crate::projection::LayerProjection;
use crate::step::adapters::AdapterViews;
use crate::step::buffers::{LayerBuffers, RotatedBuffers, StepBuffers};
use crate::step::passes::adapter;
use crate::step::passes::operations::{
    AdapterProduct, AttentionGradients, HeadChunk, OutputGradient, PassPurpose, RmsNorm,
    StepOperations,
};
use crate::step::sizes::{ProjectionShape, TrainingSizes};
use crate::step::state::StepState;
use crate::step::weights::DeviceWeights;

impl StepOperations for F32Step {
    type Element = f32;

    const EMBEDDING_GRADIENT: bool = true;

    fn state(&self) -> &StepState {
        &self.state
    }

    fn weights(&self) -> &DeviceWeights<f32> {
        &self.weights
    }

    fn buffers(&self) -> &StepBuffers<Buffer<f32>> {
        &self.buffers
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
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
        norm: &RmsNorm<'_, f32>,
        y: &View<f32>,
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
        norm: &RmsNorm<'_, f32>,
        dy: &View<f32>,
    ) -> Result<(), Error> {
        self.add_norm_gradient(queue, norm, dy, &self.buffers.gradients.dh)
    }

    fn project(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        of: LayerProjection,
        x: &View<f32>,
        residual: Option<&View<f32>>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        let rows = self.state.sizes.tokens;

        // Matmuls add to their output, so it starts as the residual, as the bias, or as zeros.
        // No projection with a residual has a bias.
        match (residual, self.weights.bias(of)) {
            (Some(residual), _) => queue.copy(residual, y)?,
            (None, Some(row)) => {
                queue.launch(&self.kernels.bias, BroadcastRowArgs { row, y, rows, n })?;
            }
            (None, None) => queue.fill(y, 0.0)?,
        }

        let w = self.matrix(queue, of)?;
        let product = AddedProduct {
            kernels: &self.kernels.nt,
            a: x,
            b: &w,
            sum: y,
            factor: &self.state.constants.one,
            rows,
            columns: n,
            depth: k,
        };
        self.add_product(queue, &product)?;
        let Some(term) = adapter::term(self, queue, purpose, of, x)? else {
            return Ok(());
        };

        self.add_product(
            queue,
            &AddedProduct {
                a: &term.u,
                b: &term.factor,
                depth: self.state.sizes.rank,
                ..product
            },
        )
    }

    fn unrotated<'a>(
        &'a self,
        _: Projection,
        heads: &'a RotatedBuffers<Buffer<f32>>,
    ) -> &'a View<f32> {
        // Without a head norm, the rotation is in place.
        match &heads.normed {
            Some(normed) => &normed.x,
            None => &heads.rotated,
        }
    }

    fn rotate(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        heads: &RotatedBuffers<Buffer<f32>>,
    ) -> Result<(), Error> {
        if let Some(norm) = self.head_norm(of, heads) {
            self.norm(queue, &norm, &heads.rotated)?;
        }
        self.rotate_in_place(queue, &self.kernels.rotate, of.projection, &heads.rotated)
    }

    fn attention(
        &self,
        queue: &mut impl Queue,
        layer: &LayerBuffers<Buffer<f32>>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            heads, kv_heads, ..
        } = self.state.sizes;
        let args = DocumentAttentionArgs::<Host> {
            q: &layer.q.rotated,
            k: &layer.k.rotated,
            v: &layer.v,
            starts: &self.state.slots.batch.starts,
            o: &layer.o,
            lse: &layer.lse,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.attention, args)
    }

    fn attention_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
    ) -> Result<AttentionGradients<'_, f32>, Error> {
        let layer = self.buffers.kept.layer(l);
        let gradients = &self.buffers.gradients;
        let scratch = &self.scratch;
        let starts = &self.state.slots.batch.starts;
        let TrainingSizes {
            heads, kv_heads, ..
        } = self.state.sizes;
        let q = &layer.q.rotated;
        let k = &layer.k.rotated;
        let v = &layer.v;
        let lse = &layer.lse;
        let grad = &gradients.d_o;
        let delta = &gradients.delta;
        let args = QueryGradientsArgs::<Host> {
            q,
            k,
            v,
            starts,
            o: &layer.o,
            lse,
            grad,
            delta,
            dq: &scratch.dq.rotated,
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
            dk: &gradients.dk_of_heads,
            dv: &gradients.dv_of_heads,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.key_gradients, args)?;
        self.sum_groups(queue, &gradients.dk_of_heads, &scratch.dk.rotated)?;
        self.sum_groups(queue, &gradients.dv_of_heads, &scratch.dv)?;
        Ok(AttentionGradients {
            dq: self.rotate_back(queue, Q.of_layer(l), &layer.q, &scratch.dq)?,
            dk: self.rotate_back(queue, K.of_layer(l), &layer.k, &scratch.dk)?,
            dv: &scratch.dv,
        })
    }

    fn project_swiglu(
        &self,
        queue: &mut impl Queue,
        purpose: PassPurpose,
        l: usize,
    ) -> Result<(), Error> {
        let x2 = &self.buffers.kept.inputs(l).x2;
        let up = &self.buffers.kept.layer(l).up;
        self.project(queue, purpose, Up.of_layer(l), x2, None, up)?;
        self.swiglu(queue, l)
    }

    fn swiglu(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        let layer = self.buffers.kept.layer(l);
        let y = &self.buffers.kept.inputs(l).a;
        queue.launch(
            &self.kernels.swiglu,
            SwiGluArgs::<Host> {
                gate: &layer.g,
                up: &layer.up,
                y,
                n: y.len() as u32,
            },
        )
    }

    fn project_swiglu_backward(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
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
        x: &View<f32>,
        dy: &View<f32>,
        dx: &View<f32>,
    ) -> Result<(), Error> {
        queue.fill(dx, 0.0)?;
        self.add_input_gradient(queue, of, x, dy, dx)
    }

    fn project_input_backward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        x: &View<f32>,
        outputs: &[OutputGradient<'_, f32>],
    ) -> Result<(), Error> {
        let dx = &self.buffers.gradients.dx;
        queue.fill(dx, 0.0)?;
        for output in outputs {
            self.add_input_gradient(queue, output.projection.of_layer(l), x, output.dy, dx)?;
        }
        Ok(())
    }

    fn adapter(&self, of: LayerProjection) -> Option<AdapterViews<f32>> {
        let adapters = &self.state.adapters;
        adapters.layout.views(&adapters.parameters, of)
    }

    fn du(&self, _: Projection) -> &View<f32> {
        &self.scratch.du
    }

    fn dropout(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        threshold: u32,
        x: &View<f32>,
    ) -> Result<View<f32>, Error> {
        let masked = self.scratch.masked.view_range(0..x.len());
        queue.fill(&masked, 0.0)?;
        self.add_masked(queue, of, threshold, x, &masked)?;
        Ok(masked)
    }

    fn adapter_product(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        product: AdapterProduct<'_, f32>,
    ) -> Result<(), Error> {
        let ProjectionShape { n, k } = self.state.sizes.projection(of.projection);
        let TrainingSizes { tokens, rank, .. } = self.state.sizes;
        let constants = &self.state.constants;
        let product = match product {
            AdapterProduct::U { x, a, factor, u } => {
                queue.fill(u, 0.0)?;
                AddedProduct {
                    kernels: &self.kernels.nt,
                    a: x,
                    b: a,
                    sum: u,
                    factor,
                    rows: tokens,
                    columns: rank,
                    depth: k,
                }
            }
            AdapterProduct::UGradient { dy, b, du } => {
                queue.fill(du, 0.0)?;
                AddedProduct {
                    kernels: &self.kernels.nn,
                    a: dy,
                    b,
                    sum: du,
                    factor: &constants.scale,
                    rows: tokens,
                    columns: rank,
                    depth: n,
                }
            }
            AdapterProduct::BGradient { dy, u, sum } => AddedProduct {
                kernels: &self.kernels.tn,
                a: dy,
                b: u,
                sum,
                factor: &constants.one,
                rows: n,
                columns: rank,
                depth: tokens,
            },
            AdapterProduct::AGradient { du, x, sum } => AddedProduct {
                kernels: &self.kernels.tn,
                a: du,
                b: x,
                sum,
                factor: &constants.one,
                rows: rank,
                columns: k,
                depth: tokens,
            },
        };
        self.add_product(queue, &product)
    }

    fn begin_head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        queue.fill(&self.buffers.head.dx, 0.0)
    }

    fn logits(&self, queue: &mut impl Queue, chunk: &HeadChunk<f32>) -> Result<(), Error> {
        let TrainingSizes { hidden, vocab, .. } = self.state.sizes;
        queue.fill(&chunk.logits, 0.0)?;
        let product = AddedProduct {
            kernels: &self.kernels.nt,
            a: &chunk.x,
            b: self.weights.head(),
            sum: &chunk.logits,
            factor: &self.state.constants.one,
            rows: chunk.tokens,
            columns: vocab,
            depth: hidden,
        };
        self.add_product(queue, &product)
    }

    fn logits_backward(&self, queue: &mut impl Queue, chunk: &HeadChunk<f32>) -> Result<(), Error> {
        let TrainingSizes { hidden, vocab, .. } = self.state.sizes;

        // The gradients overwrite the logits.
        queue.launch(
            &self.kernels.logit_gradients,
            LogitGradientsArgs::<Host> {
                logits: &chunk.logits,
                labels: &chunk.labels,
                lse: &chunk.lse,
                vocab,
            },
        )?;
        let product = AddedProduct {
            kernels: &self.kernels.nn,
            a: &chunk.logits,
            b: self.weights.head(),
            sum: &chunk.dx,
            factor: &self.state.slots.batch.factor,
            rows: chunk.tokens,
            columns: hidden,
            depth: vocab,
        };
        self.add_product(queue, &product)
    }
}

impl F32Step {
    /// Returns the norm of the queries' or keys' heads, or `None` if the model has none.
    fn head_norm<'a>(
        &'a self,
        of: LayerProjection,
        heads: &'a RotatedBuffers<Buffer<f32>>,
    ) -> Option<RmsNorm<'a, f32>> {
        let normed = heads.normed.as_ref()?;
        Some(RmsNorm {
            x: &normed.x,
            gains: self.weights.head_gains(of)?,
            inv: &normed.inv,
        })
    }

    /// Adds the gradient of a norm's input to `sum`, given the gradient `dy` of its output.
    fn add_norm_gradient(
        &self,
        queue: &mut impl Queue,
        norm: &RmsNorm<'_, f32>,
        dy: &View<f32>,
        sum: &View<f32>,
    ) -> Result<(), Error> {
        let args = RmsNormBackwardArgs::<Host> {
            dy,
            x: norm.x,
            g: norm.gains,
            inv: norm.inv,
            sum,
            n: norm.gains.len() as u32,
        };
        queue.launch(&self.kernels.norm_backward, args)
    }

    /// Applies the rotation of `kernel` to queries or keys in place.
    fn rotate_in_place(
        &self,
        queue: &mut impl Queue,
        kernel: &Kernel<RotateHeads>,
        projection: Projection,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            tokens, head_dim, ..
        } = self.state.sizes;
        queue.launch(
            kernel,
            RotateHeadsArgs {
                positions: &self.state.slots.batch.positions,
                freq: &self.state.constants.freq,
                x,
                tokens,
                heads: self.state.sizes.projection(projection).n / head_dim,
                head_dim,
            },
        )
    }

    /// Returns the gradient of a projection's output from the gradient after head norm and RoPE.
    fn rotate_back<'a>(
        &self,
        queue: &mut impl Queue,
        of: LayerProjection,
        heads: &RotatedBuffers<Buffer<f32>>,
        gradients: &'a HeadGradients<Buffer<f32>>,
    ) -> Result<&'a View<f32>, Error> {
        let HeadGradients { rotated, raw } = gradients;
        self.rotate_in_place(queue, &self.kernels.rotate_back, of.projection, rotated)?;
        let Some(norm) = self.head_norm(of, heads) else {
            return Ok(rotated);
        };
        queue.fill(raw, 0.0)?;
        self.add_norm_gradient(queue, &norm, rotated, raw)?;
        Ok(raw)
    }

    /// Sums the gradients of the query heads that share a head of keys and values.
    fn sum_groups(
        &self,
        queue: &mut impl Queue,
        parts: &View<f32>,
        sum: &View<f32>,
    ) -> Result<(), Error> {
        let TrainingSizes {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.state.sizes;
        queue.launch(
            &self.kernels.sum_groups,
            SumGroupsArgs {
                parts,
                sum,
                group: heads / kv_heads,
                head_dim,
                n: sum.len() as u32,
            },
        )
    }
}
