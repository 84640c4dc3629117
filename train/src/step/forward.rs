//! The forward of a micro-batch, and the head, which is forward and backward at once.

use warpwright_driver::{Buffer, Error, Host, Queue, View};
use warpwright_kernels::simple::swiglu::SwiGluArgs;
use warpwright_kernels::train::attention::DocumentAttentionArgs;
use warpwright_kernels::train::cross_entropy::{LogitGradientsArgs, TokenLossesArgs};
use warpwright_kernels::train::embed::EmbedTokensArgs;
use warpwright_kernels::train::micro_batch::FetchMicroBatchArgs;

use super::buffers::{Layer, Rotated};
use super::pass::{Place, Step};
use super::sizes::Sizes;
use crate::Projection;

impl Step {
    pub(super) fn forward(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.fetch(queue)?;
        let (layers, work) = (&self.buffers.layers, &self.buffers);
        for (l, layer) in layers.iter().enumerate() {
            self.attention(queue, l, layer)?;
            self.feed_forward(queue, l, layer, layers.get(l + 1).map_or(&work.h, |next| &next.h))?;
        }
        Ok(())
    }

    /// Copies the batch, and embeds its tokens.
    fn fetch(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (batch, counters) = (&self.slots.batch, &self.state.counters);
        let args = FetchMicroBatchArgs::<Host> {
            slots: &self.slots.ring,
            counters,
            batch: &batch.all,
            words: self.slots.words,
        };
        queue.launch(&self.kernels.fetch, args)?;
        let h = self.buffers.layers.first().map_or(&self.buffers.h, |layer| &layer.h);
        let Sizes { vocab, hidden, .. } = self.sizes;
        let args = EmbedTokensArgs::<Host> { ids: &batch.ids, table: &self.weights.embed, h, vocab, hidden };
        queue.launch(&self.kernels.embed, args)
    }

    fn attention(&self, queue: &mut impl Queue, l: usize, layer: &Layer) -> Result<(), Error> {
        let weights = &self.weights.layers[l];
        let Sizes { heads, kv_heads, .. } = self.sizes;
        self.norm(queue, [&layer.h, &weights.attention_norm, &layer.x1, &layer.inv1])?;
        self.queries_or_keys(queue, (l, Projection::Q), weights.q_norm.as_ref(), &layer.q, heads)?;
        self.queries_or_keys(queue, (l, Projection::K), weights.k_norm.as_ref(), &layer.k, kv_heads)?;
        self.project_afresh(queue, (l, Projection::V), &layer.x1, &layer.v)?;
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
        queue.copy(&layer.h, &layer.h1)?;
        self.project(queue, (l, Projection::O), &layer.o, &layer.h1)
    }

    /// A projection, then the head norm if there is one, then RoPE.
    fn queries_or_keys(
        &self,
        queue: &mut impl Queue,
        place: Place,
        gains: Option<&Buffer<f32>>,
        to: &Rotated,
        heads: u32,
    ) -> Result<(), Error> {
        let x = &self.buffers.layers[place.0].x1;
        if let (Some([raw, inv]), Some(gains)) = (&to.normed, gains) {
            self.project_afresh(queue, place, x, raw)?;
            self.norm(queue, [raw, gains, &to.rotated, inv])?;
        } else {
            self.project_afresh(queue, place, x, &to.rotated)?;
        }
        self.rotate(queue, &self.kernels.rotate, &to.rotated, heads)
    }

    /// `to` is the residual stream after the layer.
    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        l: usize,
        layer: &Layer,
        to: &View<f32>,
    ) -> Result<(), Error> {
        let Layer { h1, inv2, x2, g, up, a, .. } = layer;
        self.norm(queue, [h1, &self.weights.layers[l].feed_forward_norm, x2, inv2])?;
        self.project_afresh(queue, (l, Projection::Gate), x2, g)?;
        self.project_afresh(queue, (l, Projection::Up), x2, up)?;
        queue.launch(&self.kernels.swiglu, SwiGluArgs::<Host> { gate: g, up, y: a, n: a.len() as u32 })?;
        queue.copy(h1, to)?;
        self.project(queue, (l, Projection::Down), a, to)
    }

    /// The losses, and the gradient of the residual stream after the last layer.
    pub(super) fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, head, norm) = (&self.buffers, &self.buffers.head, &self.weights.norm);
        self.norm(queue, [&b.h, norm, &head.x, &head.inv])?;
        queue.fill(&head.dx, 0.0)?;
        let mut first = 0;
        while first < self.sizes.tokens {
            let tokens = self.head_chunk.min(self.sizes.tokens - first);
            self.head_chunk(queue, first, tokens)?;
            first += tokens;
        }
        queue.fill(&b.work.dh, 0.0)?;
        self.norm_backward(queue, [&head.dx, &b.h, norm, &head.inv, &b.work.dh])
    }

    fn head_chunk(&self, queue: &mut impl Queue, first: u32, tokens: u32) -> Result<(), Error> {
        let (head, batch) = (&self.buffers.head, &self.slots.batch);
        let Sizes { hidden, vocab, .. } = self.sizes;
        let rows = |len: u32| (first * len) as usize..((first + tokens) * len) as usize;
        let [x, dx] = [&head.x, &head.dx].map(|all| all.view_range(rows(hidden)));
        let [lse, losses] = [&head.lse, &head.losses].map(|all| all.view_range(rows(1)));
        let labels = batch.labels.view_range(rows(1));
        let logits = head.logits.view_range(0..tokens as usize * vocab as usize);
        let (w, one) = (self.weights.head(), &self.constants.one);
        queue.fill(&logits, 0.0)?;
        self.product(queue, &self.kernels.nt, [&x, w, &logits], one, [tokens, vocab, hidden])?;
        let args =
            TokenLossesArgs::<Host> { logits: &logits, labels: &labels, lse: &lse, losses: &losses, vocab };
        queue.launch(&self.kernels.losses, args)?;
        let args = LogitGradientsArgs::<Host> { logits: &logits, labels: &labels, lse: &lse, vocab };
        queue.launch(&self.kernels.logit_gradients, args)?;
        self.product(queue, &self.kernels.nn, [&logits, w, &dx], &batch.factor, [tokens, hidden, vocab])
    }
}
