//! The forward of a micro-batch, and the head, which is forward and backward at once where it is
//! trained.

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
    pub(super) fn forward(&self, queue: &mut impl Queue, purpose: Purpose) -> Result<(), Error> {
        self.common.fetch(queue)?;
        self.embed(queue)?;
        for l in 0..self.buffers.kept.layers() {
            self.attention(queue, purpose, l)?;
            self.feed_forward(queue, purpose, l)?;
        }
        Ok(())
    }

    /// Computes again what the backward reads of a layer.
    pub(super) fn recompute(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        self.attention(queue, Purpose::Training, l)?;
        self.gated(queue, Purpose::Training, l)?;
        let a = &self.buffers.kept.inputs(l).a;
        self.adapter_u(queue, Purpose::Training, (l, Projection::Down), a)
            .map(drop)
    }

    /// Computes again the inputs of a layer's projections that gradients of adapters are made of.
    pub(super) fn recompute_inputs(&self, queue: &mut impl Queue, l: usize) -> Result<(), Error> {
        use Projection::{Down, Gate, K, Q, Up, V};
        let (kept, weights) = (&self.buffers.kept, &self.weights.layers[l]);
        let (
            F32LayerBuffers {
                inv1,
                h1,
                inv2,
                g,
                up,
                u,
                ..
            },
            ProjectionInputs { x1, x2, a },
        ) = (kept.layer(l), kept.inputs(l));
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

    fn attention(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let (weights, layer, h) = (
            &self.weights.layers[l],
            self.buffers.kept.layer(l),
            &self.buffers.kept.streams[l],
        );
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
        queue.copy(h, &layer.h1)?;
        self.project(queue, purpose, (l, Projection::O), &layer.o, &layer.h1)
    }

    /// A projection, then the head norm if there is one, then RoPE.
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

    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        l: usize,
    ) -> Result<(), Error> {
        self.gated(queue, purpose, l)?;
        let kept = &self.buffers.kept;
        let (h1, a, to) = (&kept.layer(l).h1, &kept.inputs(l).a, &kept.streams[l + 1]);
        queue.copy(h1, to)?;
        self.project(queue, purpose, (l, Projection::Down), a, to)
    }

    /// The feed-forward block up to its last projection.
    fn gated(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let kept = &self.buffers.kept;
        let (
            F32LayerBuffers {
                h1, inv2, g, up, ..
            },
            ProjectionInputs { x2, a, .. },
        ) = (kept.layer(l), kept.inputs(l));
        self.norm(
            queue,
            [h1, &self.weights.layers[l].feed_forward_norm, x2, inv2],
        )?;
        self.project_afresh(queue, purpose, (l, Projection::Gate), x2, g)?;
        self.project_afresh(queue, purpose, (l, Projection::Up), x2, up)?;
        self.swiglu(queue, [g, up, a])
    }

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

    /// The losses, and the gradient of the residual stream after the last layer.
    pub(super) fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, head, norm) = (&self.buffers, &self.buffers.head, &self.weights.norm);
        self.norm(queue, [b.kept.last(), norm, &head.x, &head.inv])?;
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

    /// The losses alone.
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
        self.chunks()
            .try_for_each(|chunk| self.chunk_losses(queue, &chunk))
    }

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let firsts = (0..self.sizes.tokens).step_by(self.head_chunk as usize);
        firsts.map(|first| self.chunk(first, self.head_chunk.min(self.sizes.tokens - first)))
    }

    fn chunk(&self, first: u32, tokens: u32) -> Chunk {
        let (head, TrainingSizes { hidden, vocab, .. }) = (&self.buffers.head, self.sizes);
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

    fn chunk_losses(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let (w, one, TrainingSizes { hidden, vocab, .. }) =
            (self.weights.head(), &self.constants.one, self.sizes);
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

    fn chunk_gradients(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let (w, factor) = (self.weights.head(), &self.slots.batch.factor);
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

/// Tokens that have logits at once.
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
