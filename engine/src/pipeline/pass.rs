//! The launches of the kernels of the pipeline, from the embedding to the LM head, for one token or
//! for a batch of tokens. `step` and the batches of sequences assign the tokens and choose the next
//! ones.

use std::cell::Cell;
use std::ops::Range;

use warpwright_driver::Error;
use warpwright_driver::launch::{Elem, Host};
use warpwright_driver::memory::{Buffer, Pinned, View, f16};
use warpwright_driver::stream::Queue;
use warpwright_kernels::pipeline::{
    EmbedTokenArgs, ExpertDownArgs, ExpertGateUpArgs, ExpertLogits, ExpertLogitsArgs, GateUp,
    GateUpArgs, HeadNormArgs, LORA_A_SHARED, Layout, LmHeadArgs, LoraAArgs, LoraANormedArgs,
    PipelinedAttentionArgs, ProjectArgs, QkvArgs, QkvOutput, StreamArgs,
};
use warpwright_kernels::{AddNormed, AddNormedArgs};
use warpwright_model::layer::{Attention, Dense, Experts};

use super::adapter::{DeviceLora, LoadedAdapter, LoadedGemv, LoraKernels, LoraViews};
use super::biased::{ExpertBiasViews, LoadedProject};
use super::cache::PageTable;
use super::gemv_kind::GemvKind;
use super::kernels::{EmbedKernel, ExpertKernels, FeedForwardKernels, GemvWithLora, Pipeline};
use super::kinds::{PipelineFeedForward, PipelineLayer, PipelineNorms};
use super::workspace::{BatchVectors, BlockFloatViews, ExpertBuffers, NODES, PipelineWorkspace};
use crate::weights::packed::Packed;

/// The kernels of the pipeline with everything that they read and write.
pub(crate) struct PipelinePass<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) weights: &'a Packed<View<u8>>,
    pub(crate) workspace: &'a PipelineWorkspace,
    /// The adapter, if the model has one.
    pub(crate) adapter: Option<&'a LoadedAdapter>,
    pub(crate) cache: PassCache<'a>,
    /// The vectors of each token.
    pub(crate) vectors: BatchVectors,
    /// The sequence number of the next GEMV, by which kernels compare their progress.
    pub(crate) sequence: Cell<u32>,
}

/// The keys and values that a pass reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct PassCache<'a> {
    /// The keys, one buffer per layer: see `warpwright_kernels::shared::cache`.
    pub(crate) k: &'a [Buffer<f16>],
    /// The values, with the shape of `k`.
    pub(crate) v: &'a [Buffer<f16>],
    /// The page table, if the cache is paged.
    pub(crate) table: Option<&'a PageTable>,
    /// The number of positions of a sequence.
    pub(crate) ctx: u32,
    /// The revolutions per position of each rotated pair, `[ropes, head_dim / 2, 2]`.
    pub(crate) freq: &'a Buffer<f32>,
}

/// The buffers by which the LM head chooses tokens.
pub(crate) struct HeadBuffers<'a> {
    /// The prompt, `[ctx]`.
    pub(crate) prompt: &'a View<u32>,
    /// The tokens that end a text, `[stops]`.
    pub(crate) stop: &'a View<u32>,
    pub(crate) stops: u32,
    /// The token after each position, `[ctx]`.
    pub(crate) out: &'a Pinned<u32>,
    /// The states, `[batch, 8]`. The head chooses no token for a state that is done.
    pub(crate) state: View<u32>,
    /// The number of positions of `prompt` and `out`.
    pub(crate) ctx: u32,
}

impl<'a> PipelinePass<'a> {
    /// Queues the embedding and the layers for every token of the batch.
    pub(crate) fn layers(&self, queue: &mut impl Queue) -> Result<(), Error> {
        self.embed(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            let layer = self.layer(index);
            self.attention_part(queue, index, &layer.attention)?;
            self.add_normed(queue, block.attn_post_norm.as_ref())?;
            self.feed_forward(queue, index, layer)?;
            self.add_normed(queue, block.ffn_post_norm.as_ref())?;
        }

        Ok(())
    }

    /// Queues the attention of a layer, up to its output projection.
    fn attention_part(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        let block = &self.weights.blocks[index];
        self.qkv(queue, index, attention, &block.qkv)?;
        self.head_norm(queue, index, attention)?;
        self.attend(queue, index, attention)?;
        self.o(queue, index, &block.o)
    }

    /// Queues the feed-forward of a layer, up to its down projection.
    fn feed_forward(
        &self,
        queue: &mut impl Queue,
        index: usize,
        layer: &PipelineLayer,
    ) -> Result<(), Error> {
        let block = &self.weights.blocks[index];
        self.expert_logits(queue, index)?;
        self.gate_up(queue, index, layer, &block.gate_up)?;
        self.down(queue, index, layer, &block.down)
    }

    /// Returns the description of a layer.
    pub(crate) fn layer(&self, index: usize) -> &'a PipelineLayer {
        &self.pipeline.resolved.layers[index].described
    }

    /// Returns the streaming arguments of the next GEMV, and advances the sequence number.
    fn stream_args<'v>(&self, layout: &Layout, views: &'v StreamViews) -> StreamArgs<Host<'v>> {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        StreamArgs {
            blocks: layout.blocks,
            max_row_blocks: layout.max_row_blocks,
            stages: layout.stages,
            shared: layout.shared,
            progress: &views.progress,
            sequence,
            timestamps: &views.timestamps,
        }
    }

    /// Returns the progress flags and the timestamps of a GEMV.
    fn stream_views(&self, layout: &Layout, node: usize) -> StreamViews {
        StreamViews {
            progress: self
                .workspace
                .progress
                .view_range(0..layout.blocks as usize),
            timestamps: self.workspace.timestamps(node),
        }
    }

    /// Returns the batch in sub-batches of `at_once` tokens.
    fn sub_batches(&self, at_once: u32) -> impl Iterator<Item = SubBatch> {
        let batch = self.pipeline.resolved.batch;
        (0..batch)
            .step_by(at_once as usize)
            .map(move |first| SubBatch {
                range: first..first + at_once,
                batch,
            })
    }

    /// Returns the tiles of a GEMV in a layer.
    pub(crate) fn tiles(&self, product: GemvKind, layer: usize) -> &'a View<u8> {
        let block = &self.weights.blocks[layer];
        match product {
            GemvKind::Qkv => &block.qkv,
            GemvKind::O => &block.o,
            GemvKind::GateUp => &block.gate_up,
            GemvKind::Down => &block.down,
            GemvKind::Head => &self.weights.head,
        }
    }

    /// Returns the bytes of keys and values that a layer's attention reads at this many positions,
    /// in f16.
    pub(crate) fn kv_bytes(&self, layer: usize, attended: u32) -> u64 {
        self.layer(layer).attention.kv_bytes_read(attended)
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let (freq, rope_dim) = match step.rotated {
            None => (self.cache.freq.view(), c.rotated_len()),
            Some(index) => {
                let dim = c.ropes[index as usize].dim;
                let first = (index * dim) as usize;
                let freq = self.cache.freq.view_range(first..first + dim as usize);
                (freq, dim)
            }
        };
        let args = EmbedTokenArgs::<Host> {
            state: &v.state,
            table: self.weights.embed(),
            freq: &freq,
            y: &v.x,
            angles: &self.workspace.computed_angles(step),
            n: c.hidden,
            vocab: c.vocab,
            rope_dim,
            blocks: step.sms,
            shared: step.shared,
        };
        match &self.pipeline.embed {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    pub(super) fn qkv(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let w = &self.weights.blocks[index];
        let GemvWithLora { kernel, layout } = &self.pipeline.layers[index].qkv;
        let q = match step.layers[index].qkv.kernel.output {
            QkvOutput::Append => &v.q,
            QkvOutput::Raw => &*self.workspace.raw,
        };

        // The angles of the only rotation, or of none. In models with several rotations the head norm
        // kernel rotates, and this kernel reads no angles.
        let angles = match (&self.workspace.still, step.rotated) {
            (Some(still), Some(rotated)) if attention.rope != rotated => still,
            _ => &self.workspace.angles,
        };
        let angles = angles.view_range(0..(step.batch * attention.head_dim) as usize);
        let lora = self.lora_normed(queue, GemvKind::Qkv, index, &w.attn_norm)?;
        let views = self.stream_views(layout, NODES * index);
        for tokens in self.sub_batches(kernel.plan().batch) {
            let lora = lora.as_ref().map(|lora| lora.sub_batch(&tokens));
            let args = QkvArgs::<Host> {
                w: tiles,
                x: &tokens.rows(&v.x),
                gamma: &w.attn_norm.cast()?,
                // Without a bias it is not read, but the launch needs a valid buffer.
                bias: &w.bias.as_ref().unwrap_or(&w.attn_norm).cast()?,
                state: &tokens.rows(&v.state),
                angles: &tokens.rows(&angles),
                q: &tokens.rows(q),
                k_cache: &self.cache.k[index],
                v_cache: &self.cache.v[index],
                heads: attention.heads,
                kv_heads: attention.kv_heads,
                head_dim: attention.head_dim,
                ctx: self.cache.ctx,
                n: step.hidden_len(step.layers[index].qkv.kernel.formats[0]),
                epsilon: c.epsilon,
                stream: self.stream_args(layout, &views),
            };
            kernel.launch(queue, args, lora.as_ref(), self.cache.table)?;
        }

        Ok(())
    }

    /// Queues the head norm, the rotary embedding and the append to the cache, in models with head
    /// norms.
    fn head_norm(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        let kernel = &self.pipeline.layers[index].head_norm;
        let (Some(kernel), Some(gamma)) = (kernel, &self.weights.blocks[index].qk_norm) else {
            return Ok(());
        };

        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let args = HeadNormArgs::<Host> {
            x: &self.workspace.raw,
            gamma: &gamma.cast()?,
            state: &v.state,
            angles: &self.workspace.angles,
            q: &v.q,
            k_cache: &self.cache.k[index],
            v_cache: &self.cache.v[index],
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            ctx: self.cache.ctx,
            epsilon: c.epsilon,
            blocks: step.sms,
            shared: step.attention.memory,
        };
        kernel.launch(queue, args, self.cache.table)
    }

    /// Queues attention of a layer.
    pub(crate) fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        self.attend(queue, index, &self.layer(index).attention)
    }

    fn attend(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
    ) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let splits = self.workspace.splits;
        let c = &step.config;
        let heads = self.workspace.heads.first(step.batch * attention.q_len());
        let sinks = self.weights.blocks[index].sinks.as_ref();
        let sinks = sinks.map(|sinks| sinks.cast()).transpose()?;
        let args = PipelinedAttentionArgs::<Host> {
            state: &v.state,
            q: &v.q,
            k_cache: &self.cache.k[index],
            v_cache: &self.cache.v[index],
            y: &heads.values,
            y_scale: &heads.scales,
            partials: &self.workspace.attention_partials,
            ticket: &self.workspace.attention_ticket,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            ctx: self.cache.ctx,
            splits,
            scale: c.score_scale(attention),
            blocks: step.attention_blocks(splits),
            shared: step.attention.memory,
            timestamps: &self.workspace.timestamps(NODES * index + 1),
        };
        let kernel = &self.pipeline.layers[index].attention;
        kernel.launch(queue, args, self.cache.table, sinks.as_ref())
    }

    pub(super) fn o(
        &self,
        queue: &mut impl Queue,
        index: usize,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let step = &self.pipeline.resolved;
        let n = step.layers[index].heads_len();
        let x = self.workspace.heads.first(step.batch * n);
        let bias = self.weights.blocks[index].o_bias.as_ref();
        let product = ProjectProduct {
            kernel: &self.pipeline.layers[index].o,
            node: NODES * index + 2,
            lora: self.lora(queue, GemvKind::O, index, &x)?,
            bias: bias.map(|bias| bias.cast()).transpose()?,
            n,
        };
        self.project(queue, self.layer(index).norms, product, tiles, &x)
    }

    /// Queues the down projection of a layer, or those of its chosen experts.
    pub(super) fn down(
        &self,
        queue: &mut impl Queue,
        index: usize,
        layer: &PipelineLayer,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        match self.feed_forward_kernels(index, layer) {
            LayerFeedForward::Dense { down, .. } => {
                let step = &self.pipeline.resolved;
                let n = step.layers[index].inner_len();
                let x = self.workspace.inner.first(step.batch * n);
                let product = ProjectProduct {
                    kernel: down,
                    node: NODES * index + 4,
                    lora: self.lora(queue, GemvKind::Down, index, &x)?,
                    bias: None,
                    n,
                };
                self.project(queue, layer.norms, product, tiles, &x)
            }
            LayerFeedForward::Experts(experts) => self.expert_down(queue, index, &experts, tiles),
        }
    }

    /// Returns the kernels of a layer's feed-forward, with the sizes that they need.
    fn feed_forward_kernels<'l>(
        &self,
        index: usize,
        layer: &'l PipelineLayer,
    ) -> LayerFeedForward<'a, 'l> {
        let kernels = &self.pipeline.layers[index].feed_forward;
        match (&layer.feed_forward, kernels, &self.workspace.experts) {
            (PipelineFeedForward::Dense(dense), FeedForwardKernels::Dense { gate_up, down }, _) => {
                LayerFeedForward::Dense {
                    dense,
                    gate_up,
                    down,
                }
            }
            (
                PipelineFeedForward::Experts(experts),
                FeedForwardKernels::Experts(kernels),
                Some(buffers),
            ) => LayerFeedForward::Experts(LayerExperts {
                described: experts,
                kernels,
                buffers,
            }),
            _ => unreachable!("the kernels and the workspace follow from the layer"),
        }
    }

    /// Queues the logits of a layer's router, if the layer has experts.
    fn expert_logits(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let block = &self.weights.blocks[index];
        let layer = self.layer(index);
        let LayerFeedForward::Experts(LayerExperts {
            described: experts,
            kernels,
            buffers,
        }) = self.feed_forward_kernels(index, layer)
        else {
            return Ok(());
        };

        let step = &self.pipeline.resolved;
        let biases = self.expert_biases(index, experts, buffers)?;
        let router = block
            .router
            .as_ref()
            .expect("a layer with experts has a router");
        let args = ExpertLogitsArgs::<Host> {
            w: &router.cast()?,
            x: &self.vectors.x,
            gamma: &block.ffn_norm.cast()?,
            logits: &buffers.logits.view_range(0..experts.count as usize),
            count: experts.count,
            n: step.config.hidden,
            epsilon: step.config.epsilon,
            blocks: step.sms.max(experts.count),
            shared: step.attention.memory - ExpertLogits::SHARED,
        };
        let bias = biases.as_ref().map(|biases| &biases.router);
        kernels.logits.launch(queue, args, bias)
    }

    /// Returns the biases of a layer's experts, if they have biases.
    fn expert_biases(
        &self,
        index: usize,
        experts: &Experts,
        buffers: &ExpertBuffers,
    ) -> Result<Option<ExpertBiasViews>, Error> {
        let all = &self.weights.blocks[index].expert_biases;
        let (Some(all), Some(sum)) = (all, &buffers.bias_sum) else {
            return Ok(None);
        };
        let hidden = self.pipeline.resolved.config.hidden;
        ExpertBiasViews::new(all, experts, hidden, sum.view()).map(Some)
    }

    fn expert_gate_up(
        &self,
        queue: &mut impl Queue,
        index: usize,
        layer: &LayerExperts<'_, '_>,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let step = &self.pipeline.resolved;
        let experts = layer.described;
        let GemvWithLora { kernel, layout } = &layer.kernels.gate_up;
        let views = self.stream_views(layout, NODES * index + 3);
        let resolved = &step.layers[index];
        let inner = self.workspace.inner.first(resolved.inner_len());
        let biases = self.expert_biases(index, experts, layer.buffers)?;
        let args = ExpertGateUpArgs::<Host> {
            w: tiles,
            x: &self.vectors.x,
            gamma: &self.weights.blocks[index].ffn_norm.cast()?,
            logits: &layer.buffers.logits.view_range(0..experts.count as usize),
            y: &inner.values,
            y_scale: &inner.scales,
            experts: &layer.buffers.chosen(layout, experts),
            count: experts.count,
            chosen: experts.chosen,
            width: experts.width,
            n: step.hidden_len(resolved.gate_up_format()),
            epsilon: step.config.epsilon,
            scale: experts.weight_scale,
            stream: self.stream_args(layout, &views),
        };
        kernel.launch(queue, args, biases.as_ref())
    }

    fn expert_down(
        &self,
        queue: &mut impl Queue,
        index: usize,
        layer: &LayerExperts<'_, '_>,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let step = &self.pipeline.resolved;
        let experts = layer.described;
        let GemvWithLora { kernel, layout } = &layer.kernels.down;
        let views = self.stream_views(layout, NODES * index + 4);
        let inner_len = step.layers[index].inner_len();
        let inner = self.workspace.inner.first(inner_len);
        let biases = self.expert_biases(index, experts, layer.buffers)?;
        let args = ExpertDownArgs::<Host> {
            w: tiles,
            x: &inner.values,
            x_scale: &inner.scales,
            experts: &layer.buffers.chosen(layout, experts),
            y: &self.vectors.x,
            count: experts.count,
            chosen: experts.chosen,
            rows: step.config.hidden,
            width: inner_len / experts.chosen,
            stream: self.stream_args(layout, &views),
        };
        let sum = biases.as_ref().map(|biases| &biases.sum);
        kernel.launch(queue, args, sum)
    }

    /// Queues the norm of the previous projection and its addition to the residual stream, in
    /// models that norm it.
    fn add_normed(&self, queue: &mut impl Queue, gamma: Option<&View<u8>>) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let (Some(kernel), Some(projected), Some(gamma)) =
            (&self.pipeline.add_normed, &self.workspace.projected, gamma)
        else {
            return Ok(());
        };

        let args = AddNormedArgs::<Host> {
            x: projected,
            gamma: &gamma.cast()?,
            y: &v.x,
            n: step.config.hidden,
            epsilon: step.config.epsilon,
            blocks: step.sms.max(step.batch),
            shared: step.attention.memory - AddNormed::SHARED,
        };
        queue.launch(kernel, args)
    }

    /// Queues the addition of `W x` to the residual stream, or only its computation in layers that
    /// norm it first.
    fn project(
        &self,
        queue: &mut impl Queue,
        norms: PipelineNorms,
        product: ProjectProduct<'_>,
        tiles: &View<u8>,
        x: &BlockFloatViews,
    ) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let y = match norms {
            PipelineNorms::Before => &v.x,
            // The buffer exists if any layer norms the output.
            PipelineNorms::BeforeAndAfter => self.workspace.projected.as_deref().unwrap_or(&v.x),
        };
        let GemvWithLora { kernel, layout } = product.kernel;
        let views = self.stream_views(layout, product.node);
        for tokens in self.sub_batches(kernel.plan().batch) {
            let lora = product.lora.as_ref().map(|lora| lora.sub_batch(&tokens));
            let args = ProjectArgs::<Host> {
                w: tiles,
                x: &tokens.rows(&x.values),
                x_scale: &tokens.rows(&x.scales),
                rows: step.config.hidden,
                n: product.n,
                y: &tokens.rows(y),
                stream: self.stream_args(layout, &views),
            };
            kernel.launch(queue, args, lora.as_ref(), product.bias.as_ref())?;
        }

        Ok(())
    }

    /// Queues the first half of a layer's feed-forward. With experts, it chooses them from the
    /// router's logits.
    pub(super) fn gate_up(
        &self,
        queue: &mut impl Queue,
        index: usize,
        layer: &PipelineLayer,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        match self.feed_forward_kernels(index, layer) {
            LayerFeedForward::Dense { dense, gate_up, .. } => {
                self.dense_gate_up(queue, index, dense, gate_up, tiles)
            }
            LayerFeedForward::Experts(experts) => {
                self.expert_gate_up(queue, index, &experts, tiles)
            }
        }
    }

    fn dense_gate_up(
        &self,
        queue: &mut impl Queue,
        index: usize,
        dense: &Dense,
        GemvWithLora { kernel, layout }: &GemvWithLora<LoadedGemv<GateUp>>,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let v = &self.vectors;
        let step = &self.pipeline.resolved;
        let gamma = &self.weights.blocks[index].ffn_norm;
        let lora = self.lora_normed(queue, GemvKind::GateUp, index, gamma)?;
        let views = self.stream_views(layout, NODES * index + 3);
        let inner = self.workspace.inner.first(step.batch * dense.width);
        for tokens in self.sub_batches(kernel.plan().batch) {
            let lora = lora.as_ref().map(|lora| lora.sub_batch(&tokens));
            let args = GateUpArgs::<Host> {
                w: tiles,
                x: &tokens.rows(&v.x),
                gamma: &gamma.cast()?,
                y: &tokens.rows(&inner.values),
                y_scale: &tokens.rows(&inner.scales),
                rows: dense.width,
                n: step.hidden_len(step.layers[index].gate_up_format()),
                epsilon: step.config.epsilon,
                stream: self.stream_args(layout, &views),
            };
            kernel.launch(queue, args, lora.as_ref())?;
        }

        Ok(())
    }

    /// Queues the computation of `u` from block floating point activations, if the GEMV has an
    /// adapter.
    fn lora(
        &self,
        queue: &mut impl Queue,
        product: GemvKind,
        layer: usize,
        x: &BlockFloatViews,
    ) -> Result<Option<LoraTokens>, Error> {
        let Some((kernels, lora, tokens)) = self.lora_of(product, layer) else {
            return Ok(None);
        };

        let args = LoraAArgs::<Host> {
            a: &lora.a,
            x: &x.values,
            x_scale: &x.scales,
            u: &tokens.u,
            ranks: lora.shape.ranks(),
            n: lora.shape.n,
            shared: self.pipeline.resolved.attention.memory - LORA_A_SHARED,
        };
        queue.launch(&kernels.plain, args)?;
        Ok(Some(tokens))
    }

    /// Queues the computation of `u` from the residual stream and a norm with these weights, if the
    /// GEMV has an adapter.
    fn lora_normed(
        &self,
        queue: &mut impl Queue,
        product: GemvKind,
        layer: usize,
        gamma: &View<u8>,
    ) -> Result<Option<LoraTokens>, Error> {
        let Some((kernels, lora, tokens)) = self.lora_of(product, layer) else {
            return Ok(None);
        };

        let args = LoraANormedArgs::<Host> {
            a: &lora.a,
            x: &self.vectors.x,
            gamma: &gamma.cast()?,
            u: &tokens.u,
            ranks: lora.shape.ranks(),
            n: lora.shape.n,
            epsilon: self.pipeline.resolved.config.epsilon,
            shared: self.pipeline.resolved.attention.memory - LORA_A_SHARED,
        };
        queue.launch(&kernels.normed, args)?;
        Ok(Some(tokens))
    }

    /// Returns the adapter of a GEMV, and the destination of its `u`.
    fn lora_of(
        &self,
        product: GemvKind,
        layer: usize,
    ) -> Option<(&'a LoraKernels, &'a DeviceLora, LoraTokens)> {
        let kernels = self.pipeline.lora.as_ref()?;
        let buffer = self.workspace.lora_u.as_ref()?;
        let lora = self.adapter?.gemv(product, layer)?;
        let len = self.pipeline.resolved.batch * lora.shape.ranks();
        let u = buffer.view_range(0..len as usize);
        Some((
            kernels,
            lora,
            LoraTokens {
                b: lora.b.clone(),
                u,
                rank: lora.shape.rank,
            },
        ))
    }

    /// Queues the logits and the choice of the argmax. For a batch of one it also updates the
    /// state, unless the state is done.
    pub(crate) fn lm_head(
        &self,
        queue: &mut impl Queue,
        tiles: &View<u8>,
        x: &View<f32>,
        head: HeadBuffers<'_>,
    ) -> Result<(), Error> {
        let step = &self.pipeline.resolved;
        let GemvWithLora { kernel, layout } = &self.pipeline.head;
        let blocks = (kernel.def().plan.batch * layout.blocks) as usize;
        let views = self.stream_views(layout, NODES * self.weights.blocks.len());
        for tokens in self.sub_batches(kernel.def().plan.batch) {
            let args = LmHeadArgs::<Host> {
                w: tiles,
                x: &tokens.rows(x),
                gamma: &self.weights.norm.cast()?,
                logits: &tokens.rows(&self.vectors.logits),
                value: &self.workspace.value.view_range(0..blocks),
                index: &self.workspace.index.view_range(0..blocks),
                ticket: &self.workspace.head_ticket,
                prompt: head.prompt,
                stop: head.stop,
                state: &tokens.rows(&head.state),
                out: head.out,
                rows: step.config.vocab,
                n: step.hidden_len(step.head.kernel.format),
                epsilon: step.config.epsilon,
                stops: head.stops,
                ctx: head.ctx,
                stream: self.stream_args(layout, &views),
            };
            queue.launch(kernel, args)?;
        }

        Ok(())
    }
}

/// A projection whose result is added to the residual stream.
struct ProjectProduct<'a> {
    kernel: &'a GemvWithLora<LoadedProject>,
    /// The index of its timestamps.
    node: usize,
    /// Its adapter, if it has one.
    lora: Option<LoraTokens>,
    /// Its bias, if it has one.
    bias: Option<View<f32>>,
    /// The number of columns with their padding.
    n: u32,
}

/// The feed-forward of a layer: its sizes, its kernels and the buffers that only it uses.
enum LayerFeedForward<'a, 'l> {
    Dense {
        dense: &'l Dense,
        gate_up: &'a GemvWithLora<LoadedGemv<GateUp>>,
        down: &'a GemvWithLora<LoadedProject>,
    },
    Experts(LayerExperts<'a, 'l>),
}

/// The mixture of experts of a layer.
struct LayerExperts<'a, 'l> {
    described: &'l Experts,
    kernels: &'a ExpertKernels,
    buffers: &'a ExpertBuffers,
}

/// The workspace buffers of one GEMV.
struct StreamViews {
    progress: View<u32>,
    timestamps: View<u64>,
}

/// The adapter of a GEMV, with `u` for all tokens of a step.
struct LoraTokens {
    b: View<f32>,
    u: View<f32>,
    rank: u32,
}

impl LoraTokens {
    /// Returns the adapter with `u` for a sub-batch.
    fn sub_batch(&self, tokens: &SubBatch) -> LoraViews {
        LoraViews {
            b: self.b.clone(),
            u: tokens.rows(&self.u),
            rank: self.rank,
        }
    }
}

/// The tokens of one launch, if a batch is launched in parts.
struct SubBatch {
    range: Range<u32>,
    /// The number of tokens in the whole batch.
    batch: u32,
}

impl SubBatch {
    /// Returns the sub-batch's rows of a buffer with one row per token.
    fn rows<T: Elem>(&self, all: &View<T>) -> View<T> {
        let len = all.len() / self.batch as usize;
        all.view_range(self.range.start as usize * len..self.range.end as usize * len)
    }
}
