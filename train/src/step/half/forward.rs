//! The forward pass of a micro-batch, and the LM head.
//!
//! In training, the head runs forward and backward chunk by chunk, because the logits of all tokens
//! would take too much memory.

use ptx_gen::bf16;
use warpwright_driver::{Buffer, Error, Host, Queue, View};
use warpwright_kernels::train::cross_entropy::TokenLossesArgs;
use warpwright_kernels::train::flash::FlashForwardArgs;
use warpwright_kernels::train::half::convert::RoundArgs;
use warpwright_kernels::train::half::cross_entropy::LogitGradientsArgs;
use warpwright_kernels::train::half::embed::EmbedTokensArgs;
use warpwright_kernels::train::half::linear::{Logits, LogitsArgs};
use warpwright_kernels::train::half::norm::RmsNormForwardArgs;
use warpwright_kernels::train::half::rotate::RotateForwardArgs;
use warpwright_kernels::train::half::swiglu::SwiGluForwardArgs;
use warpwright_kernels::train::products::MatmulLayout;

use super::buffers::{Bf16LayerBuffers, Bf16RotatedBuffers};
use super::linear::Linear;
use super::pass::Bf16Step;
use crate::Projection;
use crate::step::buffers::ProjectionInputs;
use crate::step::common::{Place, Purpose};
use crate::step::sizes::TrainingSizes;

impl Bf16Step {
    /// Runs the forward pass from the batch to the residual stream after the last layer.
    pub(crate) fn forward(&self, queue: &mut impl Queue, purpose: Purpose) -> Result<(), Error> {
        self.common.fetch(queue)?;
        self.nothing_pending();
        self.begin(queue)?;
        for l in 0..self.buffers.kept.layers() {
            self.attention(queue, purpose, l)?;
            self.feed_forward(queue, purpose, l)?;
        }
        Ok(())
    }

    /// Computes the activations of layer `l` again, up to those that the backward pass reads.
    pub(super) fn recompute(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        self.attention(queue, Purpose::Training, l)?;
        self.gated(queue, Purpose::Training, l)?;
        let a = &self.buffers.kept.inputs(l).a;
        self.adapter_u(queue, Purpose::Training, (l, Projection::Down), a)
            .map(drop)
    }

    /// Computes the projection inputs of layer `l` again that the gradients of adapters read.
    pub(super) fn recompute_inputs(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        use Projection::{Down, Gate, K, Q, Up, V};
        let kept = &self.buffers.kept;
        let weights = &self.weights.layers[l];
        let Bf16LayerBuffers {
            inv1,
            h1,
            inv2,
            g,
            up,
            u,
            ..
        } = kept.layer(l);
        let ProjectionInputs { x1, x2, a } = kept.inputs(l);
        // The gradient of `A` is the only reader of these inputs, so a group of projections without
        // adapters does not need its input.
        let any = |of: &[Projection]| of.iter().any(|p| u[*p as usize].is_some());
        if any(&[Q, K, V]) {
            self.norm(queue, &kept.streams[l], &weights.attention_norm, x1, inv1)?;
        }
        if any(&[Gate, Up]) {
            self.norm(queue, h1, &weights.feed_forward_norm, x2, inv2)?;
        }
        match &self.kernels.swiglu {
            Some(swiglu) if any(&[Down]) => queue.launch(
                swiglu,
                SwiGluForwardArgs::<Host> {
                    g,
                    up,
                    a,
                    n: a.len() as u32,
                },
            ),
            _ => Ok(()),
        }
    }

    /// Rounds the adapters to `bf16` and embeds the tokens.
    fn begin(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let x = &self.flat.parameters;
        let y = &self.buffers.work.adapters;
        queue.launch(
            &self.kernels.round,
            RoundArgs::<Host> {
                x,
                y,
                n: x.len() as u32,
            },
        )?;
        let h = &self.buffers.kept.streams[0];
        let TrainingSizes { vocab, hidden, .. } = self.sizes;
        let ids = &self.slots.batch.ids;
        let args = EmbedTokensArgs::<Host> {
            ids,
            table: &self.weights.embed,
            h,
            vocab,
            hidden,
        };
        queue.launch(&self.kernels.embed, args)
    }

    /// Computes the attention block of layer `l`, and adds the residual stream.
    fn attention(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let weights = &self.weights.layers[l];
        let layer = self.buffers.kept.layer(l);
        let h = &self.buffers.kept.streams[l];
        let TrainingSizes {
            tokens,
            heads,
            kv_heads,
            ..
        } = self.sizes;
        let x1 = &self.buffers.kept.inputs(l).x1;
        self.norm(queue, h, &weights.attention_norm, x1, &layer.inv1)?;
        let norms = [weights.q_norm.as_ref(), weights.k_norm.as_ref()];
        self.queries_or_keys(queue, purpose, (l, Projection::Q), norms[0], &layer.q)?;
        self.queries_or_keys(queue, purpose, (l, Projection::K), norms[1], &layer.k)?;
        self.project(queue, purpose, (l, Projection::V), x1, None, &layer.v)?;
        let args = FlashForwardArgs::<Host> {
            q: &layer.q.rotated,
            k: &layer.k.rotated,
            v: &layer.v,
            starts: &self.slots.batch.starts,
            o: &layer.o,
            lse: &layer.lse,
            tokens,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.attention, args)?;
        self.project(
            queue,
            purpose,
            (l, Projection::O),
            &layer.o,
            Some(h),
            &layer.h1,
        )
    }

    /// Computes queries or keys: the projection, the head norm if the model has one, then RoPE.
    fn queries_or_keys(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        place: Place,
        gains: Option<&Buffer<f32>>,
        to: &Bf16RotatedBuffers,
    ) -> Result<(), Error> {
        let n = self.sizes.of(place.1)[0];
        let raw = match &to.normed {
            Some((raw, _)) => raw.view(),
            None => self.buffers.work.raw[place.1 as usize].view(),
        };
        self.project(
            queue,
            purpose,
            place,
            &self.buffers.kept.inputs(place.0).x1,
            None,
            &raw,
        )?;
        let freq = &self.constants.freq;
        let positions = &self.slots.batch.positions;
        // A kernel without the head norm has the same arguments, but does not read these two.
        let nothing = freq.view_range(0..0);
        let args = RotateForwardArgs::<Host> {
            positions,
            freq,
            x: &raw,
            g: gains.map_or(&nothing, |gains| gains),
            y: &to.rotated,
            inv: to.normed.as_ref().map_or(&nothing, |(_, inv)| inv),
            tokens: self.sizes.tokens,
            heads: n / self.sizes.head_dim,
            eps: self.eps,
        };
        queue.launch(&self.kernels.rotate, args)
    }

    /// Computes the feed-forward block of layer `l`, and adds the residual stream.
    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        l: usize,
    ) -> Result<(), Error> {
        self.gated(queue, purpose, l)?;
        let kept = &self.buffers.kept;
        let h1 = &kept.layer(l).h1;
        let a = &kept.inputs(l).a;
        let to = &kept.streams[l + 1];
        self.project(queue, purpose, (l, Projection::Down), a, Some(h1), to)
    }

    /// Computes the feed-forward block up to the input of the down projection.
    fn gated(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let kept = &self.buffers.kept;
        let Bf16LayerBuffers {
            h1, inv2, g, up, ..
        } = kept.layer(l);
        let ProjectionInputs { x2, a, .. } = kept.inputs(l);
        self.norm(
            queue,
            h1,
            &self.weights.layers[l].feed_forward_norm,
            x2,
            inv2,
        )?;
        self.project(queue, purpose, (l, Projection::Gate), x2, None, g)?;
        self.gated_linear(queue, purpose, l, x2, [g, up, a])
    }

    /// Computes the losses and the gradient of the residual stream after the last layer.
    pub(crate) fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        // The gradients of the logits overwrite one of the workspaces of unpacked matrices.
        self.nothing_pending();
        let b = &self.buffers;
        let head = &self.buffers.head;
        let norm = &self.weights.norm;
        self.norm(queue, b.kept.last(), norm, &head.x, &head.inv)?;
        for chunk in self.chunks() {
            self.chunk_losses(queue, &chunk)?;
            self.chunk_gradients(queue, &chunk)?;
        }
        queue.fill(&b.work.dh, bf16(0))?;
        self.norm_backward(queue, [&head.dx, b.kept.last()], norm, &head.inv)
    }

    /// Computes the losses without gradients.
    pub(crate) fn losses(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let head = &self.buffers.head;
        self.norm(
            queue,
            self.buffers.kept.last(),
            &self.weights.norm,
            &head.x,
            &head.inv,
        )?;
        for chunk in self.chunks() {
            self.chunk_losses(queue, &chunk)?;
        }
        Ok(())
    }

    /// Computes `y`, the RMSNorm of `x` with gains `g`, and the reciprocal norms `inv`.
    fn norm(
        &self,
        queue: &mut impl Queue,
        x: &View<bf16>,
        g: &View<f32>,
        y: &View<bf16>,
        inv: &View<f32>,
    ) -> Result<(), Error> {
        let args = RmsNormForwardArgs::<Host> {
            x,
            g,
            y,
            inv,
            n: g.len() as u32,
            eps: self.eps,
        };
        queue.launch(&self.kernels.norm, args)
    }

    /// Returns the chunks of the micro-batch. The last may be shorter.
    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let firsts = (0..self.sizes.tokens).step_by(self.head_chunk as usize);
        firsts.map(|first| self.chunk(first, self.head_chunk.min(self.sizes.tokens - first)))
    }

    /// Returns the views of a chunk that begins at token `first`.
    fn chunk(&self, first: u32, tokens: u32) -> Chunk {
        let head = &self.buffers.head;
        let TrainingSizes { hidden, vocab, .. } = self.sizes;
        let rows = |len: u32| (first * len) as usize..((first + tokens) * len) as usize;
        let all = 0..tokens as usize * vocab as usize;
        Chunk {
            tokens,
            x: head.x.view_range(rows(hidden)),
            dx: head.dx.view_range(rows(hidden)),
            labels: self.slots.batch.labels.view_range(rows(1)),
            logits: head.logits.view_range(all.clone()),
            dl: head.dl.view_range(all),
            lse: head.lse.view_range(rows(1)),
            losses: head.losses.view_range(rows(1)),
        }
    }

    /// Computes the logits of a chunk and their losses.
    fn chunk_losses(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let rows = chunk.tokens;
        let TrainingSizes { hidden, vocab, .. } = self.sizes;
        let Chunk {
            labels,
            logits,
            lse,
            losses,
            ..
        } = chunk;
        // The kernel of the logits has fixed tiles, unlike other matmuls, and no adapter.
        let [x, w] = [
            self.maps.of(&chunk.x, [rows, hidden], Logits::X)?,
            self.maps
                .of(self.weights.head(), [vocab, hidden], Logits::W)?,
        ];
        let args = LogitsArgs::<Host> {
            x: &x,
            w: &w,
            y: logits,
            rows,
            columns: vocab,
            depth: hidden,
            blocks: self.kernels.blocks,
        };
        queue.launch(&self.kernels.logits, args)?;
        queue.launch(
            &self.kernels.losses,
            TokenLossesArgs::<Host> {
                logits,
                labels,
                lse,
                losses,
                vocab,
            },
        )
    }

    /// Computes the gradients of a chunk's logits and of the head's input.
    fn chunk_gradients(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let TrainingSizes { hidden, vocab, .. } = self.sizes;
        let Chunk {
            tokens,
            dx,
            labels,
            logits,
            dl,
            lse,
            ..
        } = chunk;
        let args = LogitGradientsArgs::<Host> {
            logits,
            labels,
            lse,
            dl,
            vocab,
        };
        queue.launch(&self.kernels.logit_gradients, args)?;
        let linear = Linear {
            form: MatmulLayout::Nn,
            x: dl,
            w: self.weights.head(),
            adapter: None,
            bias: None,
            residual: None,
            factor: &self.slots.batch.factor,
            y: dx,
            shape: [*tokens, hidden, vocab],
            ahead: self.nothing_ahead(),
        };
        self.linear(queue, &linear)
    }
}

/// The tokens whose logits are in memory at the same time, with views of their rows.
struct Chunk {
    tokens: u32,
    /// `[tokens, hidden]`
    x: View<bf16>,
    /// `[tokens, hidden]`
    dx: View<bf16>,
    /// `[tokens]`
    labels: View<i32>,
    /// `[tokens, vocab]`
    logits: View<f32>,
    /// `[tokens, vocab]`
    dl: View<bf16>,
    /// `[tokens]`
    lse: View<f32>,
    /// `[tokens]`
    losses: View<f32>,
}
