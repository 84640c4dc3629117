//! The forward of a micro-batch, and the head, which is forward and backward at once where it is
//! trained.

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
            Bf16LayerBuffers {
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

    /// Rounds the adapters, and embeds the tokens.
    fn begin(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (x, y) = (&self.flat.parameters, &self.buffers.work.adapters);
        queue.launch(
            &self.kernels.round,
            RoundArgs::<Host> {
                x,
                y,
                n: x.len() as u32,
            },
        )?;
        let h = &self.buffers.kept.streams[0];
        let (TrainingSizes { vocab, hidden, .. }, ids) = (self.sizes, &self.slots.batch.ids);
        let args = EmbedTokensArgs::<Host> {
            ids,
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

    /// A projection, then the head norm if there is one, then RoPE.
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
        let (freq, positions) = (&self.constants.freq, &self.slots.batch.positions);
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

    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        purpose: Purpose,
        l: usize,
    ) -> Result<(), Error> {
        self.gated(queue, purpose, l)?;
        let kept = &self.buffers.kept;
        let (h1, a, to) = (&kept.layer(l).h1, &kept.inputs(l).a, &kept.streams[l + 1]);
        self.project(queue, purpose, (l, Projection::Down), a, Some(h1), to)
    }

    /// The feed-forward block up to its last projection.
    fn gated(&self, queue: &mut impl Queue, purpose: Purpose, l: usize) -> Result<(), Error> {
        let kept = &self.buffers.kept;
        let (
            Bf16LayerBuffers {
                h1, inv2, g, up, ..
            },
            ProjectionInputs { x2, a, .. },
        ) = (kept.layer(l), kept.inputs(l));
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

    /// The losses, and the gradient of the residual stream after the last layer.
    pub(crate) fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        // It takes a workspace of theirs.
        self.nothing_pending();
        let (b, head, norm) = (&self.buffers, &self.buffers.head, &self.weights.norm);
        self.norm(queue, b.kept.last(), norm, &head.x, &head.inv)?;
        for chunk in self.chunks() {
            self.chunk_losses(queue, &chunk)?;
            self.chunk_gradients(queue, &chunk)?;
        }
        queue.fill(&b.work.dh, bf16(0))?;
        self.norm_backward(queue, [&head.dx, b.kept.last()], norm, &head.inv)
    }

    /// The losses alone.
    pub(crate) fn losses(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let head = &self.buffers.head;
        self.norm(
            queue,
            self.buffers.kept.last(),
            &self.weights.norm,
            &head.x,
            &head.inv,
        )?;
        self.chunks()
            .try_for_each(|chunk| self.chunk_losses(queue, &chunk))
    }

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

    fn chunks(&self) -> impl Iterator<Item = Chunk> {
        let firsts = (0..self.sizes.tokens).step_by(self.head_chunk as usize);
        firsts.map(|first| self.chunk(first, self.head_chunk.min(self.sizes.tokens - first)))
    }

    fn chunk(&self, first: u32, tokens: u32) -> Chunk {
        let (head, TrainingSizes { hidden, vocab, .. }) = (&self.buffers.head, self.sizes);
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

    fn chunk_losses(&self, queue: &mut impl Queue, chunk: &Chunk) -> Result<(), Error> {
        let (rows, TrainingSizes { hidden, vocab, .. }) = (chunk.tokens, self.sizes);
        let Chunk {
            labels,
            logits,
            lse,
            losses,
            ..
        } = chunk;
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

/// Tokens that have logits at once.
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
