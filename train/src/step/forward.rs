//! The forward pass of a micro-batch, and the LM head.
//!
//! In training, the head runs forward and backward chunk by chunk, because the logits of all tokens
//! would take too much memory.

use warpwright_driver::{Buffer, Error, Host, Queue, View};
use warpwright_kernels::simple::swiglu::SwiGluArgs;
use warpwright_kernels::train::attention::DocumentAttentionArgs;
use warpwright_kernels::train::cross_entropy::{LogitGradientsArgs, TokenLossesArgs};
use warpwright_kernels::train::embed::EmbedTokensArgs;

use super::buffers::{F32LayerBuffers, F32RotatedBuffers, ProjectionInputs};
use super::common::{Place, Purpose};
use super::pass::F32Step;
use super::sizes::TrainingSizes;
use crate::Projection;

impl F32Step {
    /// Runs the forward pass from the batch to the residual stream after the last layer.
    pub(super) fn forward(&self, queue: &mut impl Queue, purpose: Purpose) -> Result<(), Error> {
        self.common.fetch(queue)?;
        self.embed(queue)?;
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
        let F32LayerBuffers {
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
            self.norm(queue, [&kept.streams[l], &weights.attention_norm, x1, inv1])?;
        }
        if any(&[Gate, Up]) {
            self.norm(queue, [h1, &weights.feed_forward_norm, x2, inv2])?;
        }
        if any(&[Down]) {
            self.swiglu(queue, [g, up, a])?;
        }
        Ok(())
    }

    /// Looks up the embeddings of the tokens.
    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let batch = &self.slots.batch;
        let h = &self.buffers.kept.streams[0];
        let TrainingSizes { vocab, hidden, .. } = self.sizes;
        let args = EmbedTokensArgs::<Host> {
            ids: &batch.ids,
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
            heads, kv_heads, ..
        } = self.sizes;
        let x1 = &self.buffers.kept.inputs(l).x1;
        self.norm(queue, [h, &weights.attention_norm, x1, &layer.inv1])?;
        let norms = [weights.q_norm.as_ref(), weights.k_norm.as_ref()];
        self.queries_or_keys(queue, purpose, (l, Projection::Q), norms[0], &layer.q)?;
        self.queries_or_keys(queue, purpose, (l, Projection::K), norms[1], &layer.k)?;
        self.project_afresh(queue, purpose, (l, Projection::V), x1, &layer.v)?;
        let args = DocumentAttentionArgs::<Host> {
            q: &layer.q.rotated,
            k: &layer.k.rotated,
            v: &layer.v,
            starts: &self.slots.batch.starts,
            o: &layer.o,
            lse: &layer.lse,
            heads,
            kv_heads,
        };
        queue.launch(&self.kernels.attention, args)?;
        // The projection adds to its output, so the output starts as the residual stream.
        queue.copy(h, &layer.h1)?;
        self.project(queue, purpose, (l, Projection::O), &layer.o, &layer.h1)
    }

    /// Computes queries or keys: the projection, the head norm if the model has one, then RoPE.
    fn queries_or_keys(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        place: Place,
        gains: Option<&Buffer<f32>>,
        to: &F32RotatedBuffers,
    ) -> Result<(), Error> {
        let heads = self.sizes.of(place.1)[0] / self.sizes.head_dim;
        let x = &self.buffers.kept.inputs(place.0).x1;
        if let (Some([raw, inv]), Some(gains)) = (&to.normed, gains) {
            self.project_afresh(queue, purpose, place, x, raw)?;
            self.norm(queue, [raw, gains, &to.rotated, inv])?;
        } else {
            self.project_afresh(queue, purpose, place, x, &to.rotated)?;
        }
        self.rotate(queue, &self.kernels.rotate, &to.rotated, heads)
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
        queue.copy(h1, to)?;
        self.project(queue, purpose, (l, Projection::Down), a, to)
    }

    /// Computes the feed-forward block up to the input of the down projection.
    fn gated(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let kept = &self.buffers.kept;
        let F32LayerBuffers {
            h1, inv2, g, up, ..
        } = kept.layer(l);
        let ProjectionInputs { x2, a, .. } = kept.inputs(l);
        self.norm(
            queue,
            [h1, &self.weights.layers[l].feed_forward_norm, x2, inv2],
        )?;
        self.project_afresh(queue, purpose, (l, Projection::Gate), x2, g)?;
        self.project_afresh(queue, purpose, (l, Projection::Up), x2, up)?;
        self.swiglu(queue, [g, up, a])
    }

    /// Computes `y = silu(gate) up`.
    fn swiglu(&self, queue: &mut impl Queue, [gate, up, y]: [&View<f32>; 3]) -> Result<(), Error> {
        queue.launch(
            &self.kernels.swiglu,
            SwiGluArgs::<Host> {
                gate,
                up,
                y,
                n: y.len() as u32,
            },
        )
    }

    /// Computes the losses and the gradient of the residual stream after the last layer.
    pub(super) fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let head = &self.buffers.head;
        let norm = &self.weights.norm;
        self.norm(queue, [b.kept.last(), norm, &head.x, &head.inv])?;
        // Matmuls and the backward of a norm add to their outputs, so both start as zeros.
        queue.fill(&head.dx, 0.0)?;
        for chunk in self.chunks() {
            self.chunk_losses(queue, &chunk)?;
            self.chunk_gradients(queue, &chunk)?;
        }
        queue.fill(&b.work.dh, 0.0)?;
        self.norm_backward(
            queue,
            [&head.dx, b.kept.last(), norm, &head.inv, &b.work.dh],
        )
    }

    /// Computes the losses without gradients.
    pub(super) fn losses(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let head = &self.buffers.head;
        self.norm(
            queue,
            [
                self.buffers.kept.last(),
                &self.weights.norm,
                &head.x,
                &head.inv,
            ],
        )?;
        for chunk in self.chunks() {
            self.chunk_losses(queue, &chunk)?;
        }
        Ok(())
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
        let [x, dx] = [&head.x, &head.dx].map(|all| all.view_range(rows(hidden)));
        let [lse, losses] = [&head.lse, &head.losses].map(|all| all.view_range(rows(1)));
        let labels = self.slots.batch.labels.view_range(rows(1));
        let logits = head.logits.view_range(0..tokens as usize * vocab as usize);
        Chunk {
            tokens,
            x,
            dx,
            labels,
            logits,
            lse,
            losses,
        }
    }

    /// Computes the logits of a chunk and their losses.
    fn chunk_losses(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let w = self.weights.head();
        let one = &self.constants.one;
        let TrainingSizes { hidden, vocab, .. } = self.sizes;
        let Chunk {
            tokens,
            x,
            labels,
            logits,
            lse,
            losses,
            ..
        } = chunk;
        queue.fill(logits, 0.0)?;
        self.product(
            queue,
            &self.kernels.nt,
            [x, w, logits],
            one,
            [*tokens, vocab, hidden],
        )?;
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
        let w = self.weights.head();
        let factor = &self.slots.batch.factor;
        let TrainingSizes { hidden, vocab, .. } = self.sizes;
        let Chunk {
            tokens,
            dx,
            labels,
            logits,
            lse,
            ..
        } = chunk;
        queue.launch(
            &self.kernels.logit_gradients,
            LogitGradientsArgs::<Host> {
                logits,
                labels,
                lse,
                vocab,
            },
        )?;
        self.product(
            queue,
            &self.kernels.nn,
            [logits, w, dx],
            factor,
            [*tokens, hidden, vocab],
        )
    }
}

/// The tokens whose logits are in memory at the same time, with views of their rows.
struct Chunk {
    tokens: u32,
    /// `[tokens, hidden]`
    x: View<f32>,
    /// `[tokens, hidden]`
    dx: View<f32>,
    /// `[tokens]`
    labels: View<i32>,
    /// `[tokens, vocab]`
    logits: View<f32>,
    /// `[tokens]`
    lse: View<f32>,
    /// `[tokens]`
    losses: View<f32>,
}
