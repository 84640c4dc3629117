//! The launches of the simple forward pass: one token through the model, over any queue.
//!
//! With `x` the residual stream, `W` the matrices and `norm` RMSNorm, each block computes `x += Wo
//! attention(rope(Wq norm(x)), rope(Wk norm(x)), Wv norm(x))` and `x += Wdown (silu(Wgate norm(x))
//! * Wup norm(x))`. The head is `W norm(x)`.
//!
//! Layers differ in the norms: some norm the outputs of attention and the feed-forward, in addition
//! or instead, and in some both read the same normed `x`.
//!
//! Layers with head norms apply an RMSNorm to each head of `Wq norm(x)` and `Wk norm(x)` before
//! `rope`. The differences between layers are in their [descriptions](warpwright_model::layer). A
//! projection `W` with an adapter computes
//! `W x + B (A x)` by two more GEMVs.
//!
//! Some models have biases: of the norms, the projections of attention, and a feed-forward without a
//! gate, which computes `x += Wdown gelu(Wup norm(x) + b) + b`.
//!
//! A mixture of experts replaces the feed-forward of a layer, see
//! [`experts`](crate::simple::experts).
//!
//! The token and its position are read from device memory, so every step makes the same launches.

use warpwright_driver::Error;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::pipeline::advance::AdvanceArgs;
use warpwright_kernels::simple::argmax::{ArgmaxBlocksArgs, ArgmaxFinalArgs};
use warpwright_kernels::simple::attention::{
    AttentionArgs, AttentionCombineArgs, AttentionCombineSinksArgs,
};
use warpwright_kernels::simple::embed::EmbedArgs;
use warpwright_kernels::simple::gemv::GemvBiasArgs;
use warpwright_kernels::simple::rms_norm::RmsNormArgs;
use warpwright_kernels::simple::rope::RopeArgs;
use warpwright_kernels::simple::soft_cap::SoftCapArgs;
use warpwright_kernels::{AddNormed, AddNormedArgs};
use warpwright_model::layer::{Attention, Dense, Experts, FeedForward, Mixer, NormPositions};
use warpwright_model::{Config, Layer};

use crate::buffers::DecoderBuffers;
use crate::simple::added_bias::AddedBias;
use crate::simple::experts::{ExpertOutput, ExpertPass, SimpleExperts};
use crate::simple::gate::GateVectors;
use crate::simple::kernels::{CombineKernel, SimpleKernels};
use crate::simple::matrix::GemvMatrix;
use crate::simple::norm::NormedRows;
use crate::simple::products::{
    ExpertsNorm, OutputProjection, QkvProjection, SimpleDense, SimpleFeedForward, SimpleGate,
    SimpleLayer, SimpleLora, SimpleWeights,
};
use crate::step::StepKind;

/// Everything that a step of the simple kernels needs.
pub(crate) struct SimpleStep<'a> {
    pub(crate) config: &'a Config,
    pub(crate) kernels: &'a SimpleKernels,
    pub(crate) products: &'a SimpleWeights,
    pub(crate) buffers: &'a DecoderBuffers,
}

impl SimpleStep<'_> {
    /// Queues one step.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        self.blocks(queue)?;
        if let StepKind::Decode | StepKind::Logits = kind {
            self.head(queue)?;
            if kind == StepKind::Logits || self.buffers.sample(queue)? {
                return Ok(());
            }
            self.argmax(queue)?;
        }
        self.advance(queue)
    }

    fn blocks(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.embed(queue)?;
        let layers = self.config.layers.iter().zip(&self.products.layers);
        for (index, (described, layer)) in layers.enumerate() {
            match &described.mixer {
                Mixer::Attention(attention) => self.attention(queue, index, attention, layer)?,
            }
            self.feed_forward(queue, index, described, layer)?;
        }

        Ok(())
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let table = &self.products.embed;
        let args = EmbedArgs::<Host> {
            state: &b.state,
            table,
            y: &b.x,
            n: self.config.hidden,
            vocab: self.config.vocab,
        };
        queue.launch(&self.kernels.embed, args)
    }

    fn attention(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        layer: &SimpleLayer,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let x = match &layer.attn_norm {
            Some(norm) => {
                self.norm(queue, norm, layer.attn_norm_bias.as_ref())?;
                &*b.normed
            }
            // Layers that norm only outputs read the residual stream.
            None => &*b.x,
        };
        for ((projection, lora), y) in layer.qkv.iter().zip(&layer.lora).zip([&b.q, &b.k, &b.v]) {
            self.project(queue, attention, projection, lora, x, y)?;
        }
        self.rope(queue, index, attention)?;
        self.attend(queue, index, attention, layer)?;
        let bias = layer.o_bias.as_ref();
        self.output(queue, &layer.o, bias, &layer.lora[3], &b.heads)
    }

    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        index: usize,
        described: &Layer,
        layer: &SimpleLayer,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let x = match (described.norms, &layer.ffn_norm) {
            (NormPositions::Before | NormPositions::BeforeAndAfter, Some(norm)) => {
                self.norm(queue, norm, layer.ffn_norm_bias.as_ref())?;
                &*b.normed
            }
            // Attention has left its own input there, which both parts share.
            (NormPositions::Shared, _) => &*b.normed,
            (NormPositions::After | NormPositions::Before | NormPositions::BeforeAndAfter, _) => {
                &*b.x
            }
        };
        match (&described.feed_forward, &layer.feed_forward) {
            (FeedForward::Dense(dense), SimpleFeedForward::Dense(matrices)) => {
                self.dense(queue, index, dense, matrices, &layer.lora, x)
            }
            (FeedForward::Experts(experts), SimpleFeedForward::Experts(matrices, norm)) => {
                self.experts(queue, index, experts, matrices, norm, x)
            }
            (FeedForward::Dense(_), SimpleFeedForward::Experts(..))
            | (FeedForward::Experts(_), SimpleFeedForward::Dense(_)) => {
                unreachable!("the weights were loaded from the same description")
            }
        }
    }

    fn dense(
        &self,
        queue: &mut impl Queue,
        index: usize,
        dense: &Dense,
        matrices: &SimpleDense,
        lora: &[Option<SimpleLora>; 7],
        x: &View<f32>,
    ) -> Result<(), Error> {
        let b = &self.buffers;

        // Layers of a model may differ in width.
        let width = 0..dense.width as usize;
        let [gate, up, inner] =
            [&b.gate, &b.up, &b.inner].map(|buffer| buffer.view_range(width.clone()));
        if let SimpleGate::Matrix(matrix) = &matrices.gate {
            matrix.launch(queue, x, &gate)?;
            self.lora(queue, &lora[4], x, &gate)?;
        }
        matrices.up.launch(queue, x, &up)?;
        if let Some(bias) = &matrices.up_bias {
            bias.launch(queue, &up)?;
        }
        self.lora(queue, &lora[5], x, &up)?;

        let [gate, up] = match &matrices.gate {
            SimpleGate::Matrix(_) => [&gate, &up],
            SimpleGate::Ones(ones) => [&up, ones],
        };
        let vectors = GateVectors {
            gate,
            up,
            y: &inner,
        };
        self.kernels.layers[index].gate.launch(queue, vectors)?;
        let bias = matrices.down_bias.as_ref();
        self.output(queue, &matrices.down, bias, &lora[6], &inner)
    }

    fn experts(
        &self,
        queue: &mut impl Queue,
        index: usize,
        experts: &Experts,
        matrices: &SimpleExperts,
        norm: &ExpertsNorm,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let buffers = self.products.experts.as_ref();
        let buffers = buffers.expect("a model with experts has their buffers");
        let pass = ExpertPass {
            described: experts,
            layer: matrices,
            gate: &self.kernels.layers[index].gate,
            buffers,
            x,
        };
        match norm {
            ExpertsNorm::None => pass.run(queue, ExpertOutput::Added(&b.x)),
            ExpertsNorm::Rms(add_normed, gamma) => {
                pass.run(queue, ExpertOutput::Stored(&buffers.sum))?;
                self.add_normed(queue, add_normed, gamma, &buffers.sum)
            }
        }
    }

    fn head(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let bias = self.products.norm_bias.as_ref();
        self.norm(queue, &self.products.norm, bias)?;
        self.products.head.launch(queue, &b.normed, &b.logits)?;
        let (Some(kernel), Some(cap)) = (&self.kernels.soft_cap, self.config.logit_cap) else {
            return Ok(());
        };
        let args = SoftCapArgs::<Host> {
            y: &b.logits,
            n: self.config.vocab,
            cap,
        };
        queue.launch(kernel, args)
    }

    /// Queues the norm of the residual stream.
    fn norm(
        &self,
        queue: &mut impl Queue,
        w: &View<f32>,
        bias: Option<&AddedBias>,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let rows = NormedRows {
            x: &b.x,
            w,
            y: &b.normed,
        };
        self.kernels.norm.launch(queue, self.config, rows)?;
        match bias {
            Some(bias) => bias.launch(queue, &b.normed),
            None => Ok(()),
        }
    }

    /// Queues the projection of queries, keys or values from `x`.
    fn project(
        &self,
        queue: &mut impl Queue,
        attention: &Attention,
        projection: &QkvProjection,
        lora: &Option<SimpleLora>,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let c = &self.config;
        match projection {
            QkvProjection::Plain(matrix) => {
                matrix.launch(queue, x, y)?;
                self.lora(queue, lora, x, y)
            }
            QkvProjection::Biased(GemvMatrix { kernel, w, rows, n }, bias) => {
                queue.launch(
                    kernel,
                    GemvBiasArgs {
                        w,
                        x,
                        bias,
                        y,
                        rows: *rows,
                        n: *n,
                    },
                )?;
                self.lora(queue, lora, x, y)
            }
            QkvProjection::Normed(matrix, norm) => {
                // The output buffer of attention is free until attention runs, so it stores the
                // values before the norm.
                let raw = b.heads.view_range(0..y.len());
                matrix.launch(queue, x, &raw)?;
                self.lora(queue, lora, x, &raw)?;
                let args = RmsNormArgs::<Host> {
                    x: &raw,
                    w: norm,
                    y,
                    n: attention.normed_at_once(y.len() as u32),
                    eps: c.epsilon,
                };
                queue.launch(&self.kernels.head_norm, args)
            }
        }
    }

    /// Queues `y += B (A x)`, if the projection has an adapter.
    fn lora(
        &self,
        queue: &mut impl Queue,
        lora: &Option<SimpleLora>,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let (Some(SimpleLora { a, b }), Some(u)) = (lora, &self.products.lora_u) else {
            return Ok(());
        };

        let u = u.view_range(0..a.rows as usize);
        a.launch(queue, x, &u)?;
        b.launch(queue, &u, y)
    }

    /// Queues the addition of a projection and its bias to the residual stream.
    fn output(
        &self,
        queue: &mut impl Queue,
        output: &OutputProjection,
        bias: Option<&AddedBias>,
        lora: &Option<SimpleLora>,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        match output {
            OutputProjection::Plain(matrix) => {
                matrix.launch(queue, x, &b.x)?;
                if let Some(bias) = bias {
                    bias.launch(queue, &b.x)?;
                }
                self.lora(queue, lora, x, &b.x)
            }
            OutputProjection::Normed(matrix, add_normed, gamma) => {
                // The normed residual stream was read by the earlier projections, so its buffer is
                // free.
                let y = &*b.normed;
                matrix.launch(queue, x, y)?;
                if let Some(bias) = bias {
                    bias.launch(queue, y)?;
                }
                self.lora(queue, lora, x, y)?;
                self.add_normed(queue, add_normed, gamma, y)
            }
        }
    }

    /// Queues the addition of the RMSNorm of `x` to the residual stream.
    fn add_normed(
        &self,
        queue: &mut impl Queue,
        kernel: &Kernel<AddNormed>,
        gamma: &View<f32>,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let args = AddNormedArgs::<Host> {
            x,
            gamma,
            y: &self.buffers.x,
            n: self.config.hidden,
            epsilon: self.config.epsilon,
            blocks: 1,
            shared: 0,
        };
        queue.launch(kernel, args)
    }

    fn rope(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let c = &self.config;

        // All rotary embeddings of a model rotate the same number of dimensions.
        let rope = attention.rope as usize;
        let dim = c.rope(attention).dim as usize;
        let args = RopeArgs::<Host> {
            state: &b.state,
            freq: &b.freq.view_range(rope * dim..(rope + 1) * dim),
            q: &b.q,
            k: &b.k,
            v: &b.v,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            rope_dim: c.rope(attention).dim,
            ctx: b.ctx,
        };
        queue.launch(&self.kernels.layers[index].rope, args)
    }

    fn attend(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        layer: &SimpleLayer,
    ) -> Result<(), Error> {
        let b = &self.buffers;
        let c = &self.config;
        let args = AttentionArgs::<Host> {
            state: &b.state,
            q: &b.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            partials: &b.partials,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            ctx: b.ctx,
            splits: b.splits,
            scale: c.score_scale(attention),
        };
        queue.launch(&self.kernels.layers[index].attention, args)?;
        match (&self.kernels.layers[index].combine, &layer.sinks) {
            (CombineKernel::Plain(kernel), None) => queue.launch(
                kernel,
                AttentionCombineArgs::<Host> {
                    partials: &b.partials,
                    y: &b.heads,
                    heads: attention.heads,
                    splits: b.splits,
                },
            ),
            (CombineKernel::Sinks(kernel), Some(sinks)) => queue.launch(
                kernel,
                AttentionCombineSinksArgs::<Host> {
                    partials: &b.partials,
                    sinks,
                    y: &b.heads,
                    heads: attention.heads,
                    splits: b.splits,
                },
            ),
            (CombineKernel::Plain(_), Some(_)) | (CombineKernel::Sinks(_), None) => {
                unreachable!("the kernels were loaded from the description of the weights")
            }
        }
    }

    fn argmax(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let args = ArgmaxBlocksArgs::<Host> {
            x: &b.logits,
            value: &b.value,
            index: &b.index,
            n: self.config.vocab,
        };
        queue.launch(&self.kernels.argmax, args)?;
        let args = ArgmaxFinalArgs::<Host> {
            value: &b.value,
            index: &b.index,
            token: &b.token,
            blocks: b.value.len() as u32,
        };
        queue.launch(&self.kernels.argmax_final, args)
    }

    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = &self.buffers;
        let args = AdvanceArgs::<Host> {
            token: &b.token,
            prompt: &b.prompt,
            stop: &b.stop,
            state: &b.state,
            out: &b.out,
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.kernels.advance, args)
    }
}
