//! The forward pass with the simple kernels: one token through the model, written once, over any queue.
//!
//! With `x` the residual stream, `W` the matrices and `norm` RMSNorm, each block computes `x += Wo attention(rope(Wq
//! norm(x)), rope(Wk norm(x)), Wv norm(x))` and `x += Wdown (silu(Wgate norm(x)) * Wup norm(x))`; the head is `W
//! norm(x)`. Models with head norms apply an RMSNorm to each head of `Wq norm(x)` and `Wk norm(x)` before `rope`.
//! Token and position are read from device memory, so every step makes the same launches.

use warpwright_driver::{Error, Queue, View};
use warpwright_kernels::Team;
use warpwright_kernels::advance::AdvanceArgs;
use warpwright_kernels::argmax::{ArgmaxBlocksArgs, ArgmaxFinalArgs};
use warpwright_kernels::attention::{AttentionArgs, AttentionCombineArgs};
use warpwright_kernels::embed::EmbedArgs;
use warpwright_kernels::gemv::{GemvAddArgs, GemvArgs, GemvBiasArgs};
use warpwright_kernels::rms_norm::RmsNormArgs;
use warpwright_kernels::rope::RopeArgs;
use warpwright_kernels::swiglu::SwiGluArgs;

use crate::buffers::Buffers;
use crate::config::Config;
use crate::decoder::StepKind;
use crate::kernels::Kernels;
use crate::model::{Block, Weights};
use crate::weights::DeviceTensor;

/// Everything a step needs.
pub(crate) struct SimpleStep<'a> {
    pub(crate) config: &'a Config,
    pub(crate) kernels: &'a Kernels,
    pub(crate) weights: &'a Weights<DeviceTensor>,
    pub(crate) buffers: &'a Buffers,
}

impl SimpleStep<'_> {
    /// One step.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        self.blocks(queue)?;
        if kind == StepKind::Decode {
            self.head(queue)?;
            self.argmax(queue)?;
        }
        self.advance(queue)
    }

    fn blocks(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.embed(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            self.attention(queue, index, block)?;
            self.feed_forward(queue, block)?;
        }
        Ok(())
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, table) = (&self.buffers, &self.weights.embed);
        let args = EmbedArgs {
            state: b.state.view(),
            table: table.bytes.clone(),
            y: b.x.view(),
            n: self.config.hidden,
            vocab: self.config.vocab,
        };
        queue.launch(&self.kernels.embed, args)
    }

    fn attention(&self, queue: &mut impl Queue, index: usize, w: &Block<DeviceTensor>) -> Result<(), Error> {
        let b = &self.buffers;
        self.norm(queue, &w.attn_norm)?;
        for (i, (matrix, y)) in [(&w.q, &b.q), (&w.k, &b.k), (&w.v, &b.v)].into_iter().enumerate() {
            let norm = w.qk_norm.as_ref().and_then(|norms| norms.get(i));
            match (&w.bias, norm) {
                (Some(bias), _) => self.gemv_bias(queue, matrix, &bias[i], y)?,
                (None, Some(norm)) => self.gemv_normed(queue, matrix, norm, y)?,
                (None, None) => self.gemv(queue, matrix, &b.normed, y)?,
            }
        }
        self.rope(queue, index)?;
        self.attend(queue, index)?;
        self.gemv_add(queue, &w.o, &b.heads)
    }

    fn feed_forward(&self, queue: &mut impl Queue, w: &Block<DeviceTensor>) -> Result<(), Error> {
        let b = &self.buffers;
        self.norm(queue, &w.ffn_norm)?;
        self.gemv(queue, &w.gate, &b.normed, &b.gate)?;
        self.gemv(queue, &w.up, &b.normed, &b.up)?;
        let (gate, up, y) = (b.gate.view(), b.up.view(), b.inner.view());
        queue.launch(&self.kernels.swiglu, SwiGluArgs { gate, up, y, n: self.config.feed_forward })?;
        self.gemv_add(queue, &w.down, &b.inner)
    }

    fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.norm(queue, &self.weights.norm)?;
        self.gemv(queue, self.weights.head(), &self.buffers.normed, &self.buffers.logits)
    }

    fn norm(&self, queue: &mut impl Queue, w: &DeviceTensor) -> Result<(), Error> {
        let (b, c) = (&self.buffers, &self.config);
        let args = RmsNormArgs {
            x: b.x.view(),
            w: w.bytes.cast()?,
            y: b.normed.view(),
            n: c.hidden,
            eps: c.epsilon,
        };
        queue.launch(&self.kernels.norm, args)
    }

    fn gemv(
        &self,
        queue: &mut impl Queue,
        w: &DeviceTensor,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let (rows, n) = (y.len() as u32, x.len() as u32);
        let args = GemvArgs { w: w.bytes.clone(), x: x.clone(), y: y.clone(), rows, n };
        queue.launch(&self.kernels.gemv[&(w.format, Team::of(w.format, rows, n))], args)
    }

    fn gemv_bias(
        &self,
        queue: &mut impl Queue,
        w: &DeviceTensor,
        bias: &DeviceTensor,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let (x, bias) = (self.buffers.normed.view(), bias.bytes.cast()?);
        let (rows, n) = (y.len() as u32, x.len() as u32);
        let args = GemvBiasArgs { w: w.bytes.clone(), x, bias, y: y.clone(), rows, n };
        queue.launch(&self.kernels.gemv_bias[&(w.format, Team::of(w.format, rows, n))], args)
    }

    /// Queries or keys with head norm; attention's output buffer holds the intermediate.
    fn gemv_normed(
        &self,
        queue: &mut impl Queue,
        w: &DeviceTensor,
        norm: &DeviceTensor,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let (b, c) = (&self.buffers, &self.config);
        let x = b.heads.view_range(0..y.len());
        self.gemv(queue, w, &b.normed, &x)?;
        let args = RmsNormArgs { x, w: norm.bytes.cast()?, y: y.clone(), n: c.head_dim, eps: c.epsilon };
        queue.launch(&self.kernels.head_norm, args)
    }

    /// Adds `W x` to the residual stream.
    fn gemv_add(&self, queue: &mut impl Queue, w: &DeviceTensor, x: &View<f32>) -> Result<(), Error> {
        let y = self.buffers.x.view();
        let (rows, n) = (y.len() as u32, x.len() as u32);
        let args = GemvAddArgs { w: w.bytes.clone(), x: x.clone(), y, rows, n };
        queue.launch(&self.kernels.gemv_add[&(w.format, Team::of(w.format, rows, n))], args)
    }

    fn rope(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, c) = (&self.buffers, &self.config);
        let args = RopeArgs {
            state: b.state.view(),
            freq: b.freq.view(),
            q: b.q.view(),
            k: b.k.view(),
            v: b.v.view(),
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            rope_dim: c.rope_dim,
            ctx: b.ctx,
        };
        queue.launch(&self.kernels.rope, args)
    }

    fn attend(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, c) = (&self.buffers, &self.config);
        let args = AttentionArgs {
            state: b.state.view(),
            q: b.q.view(),
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            part: b.part.view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            splits: b.splits,
            scale: 1.0 / (c.head_dim as f32).sqrt(),
        };
        queue.launch(&self.kernels.attention, args)?;
        let args =
            AttentionCombineArgs { part: b.part.view(), y: b.heads.view(), heads: c.heads, splits: b.splits };
        queue.launch(&self.kernels.combine, args)
    }

    fn argmax(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let (x, value, index) = (b.logits.view(), b.value.view(), b.index.view());
        let n = self.config.vocab;
        queue.launch(
            &self.kernels.argmax,
            ArgmaxBlocksArgs { x, value: value.clone(), index: index.clone(), n },
        )?;
        let blocks = value.len() as u32;
        let args = ArgmaxFinalArgs { value, index, token: b.token.view(), blocks };
        queue.launch(&self.kernels.argmax_final, args)
    }

    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let args = AdvanceArgs {
            token: b.token.view(),
            prompt: b.prompt.view(),
            stop: b.stop.view(),
            state: b.state.view(),
            out: b.out.view(),
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.kernels.advance, args)
    }
}
