//! The launches of the pipeline.
//!
//! The pipeline computes the same sums as `simple/step.rs` in five kernels per layer:
//! - QKV: norm, three GEMVs, bias, rotary embedding, and the append to the cache
//! - attention
//! - the output projection
//! - gate and up: norm, two GEMVs, and the gate
//! - the down projection
//!
//! In layers with head norms, the first kernel stops after the bias, and a sixth kernel norms,
//! rotates and appends. Layers that norm the outputs of attention and the feed-forward have one
//! more kernel for each. The projection in front of it stores its sums, and the kernel norms them
//! and adds them to the residual stream.
//!
//! A step starts with a kernel that embeds the token and ends with the LM head, which chooses a
//! token and advances the state. Each kernel prefetches weights while its predecessor still runs.
//! It waits for the predecessor's end before it reads anything else.
//!
//! The same pipeline prefills several prompt tokens as a batch: see `warpwright_kernels::pipeline`.
//! It then starts with a kernel that assigns the tokens, and ends before the choice of a token.
//! Drafts are verified by a batch that chooses the token after each. If the activations of a whole
//! batch do not fit into shared memory, a GEMV is launched several times with a smaller batch.

use std::cell::Cell;
use std::ops::Range;

use warpwright_driver::Error;
use warpwright_driver::launch::{Elem, Host};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::pipeline::advance::AdvanceArgs;
use warpwright_kernels::pipeline::{
    EmbedTokenArgs, GateUpArgs, HeadNormArgs, LORA_A_SHARED, Layout, LmHeadArgs, LoraAArgs,
    LoraANormedArgs, PipelinedAttentionArgs, PlaceDraftsArgs, Project, ProjectArgs, QkvArgs,
    QkvOutput, SplitPromptArgs, StreamArgs,
};
use warpwright_kernels::{AddNormed, AddNormedArgs};
use warpwright_model::layer::{Attention, Dense, NormPositions};

use super::adapter::{DeviceLora, LoadedAdapter, LoadedGemv, LoraKernels, LoraViews};
use super::gemv_kind::GemvKind;
use super::kernels::{EmbedKernel, GemvWithLora, Pipeline};
use super::kinds::PipelineLayer;
use super::workspace::{BatchVectors, BlockFloatBuffer, NODES, PipelineWorkspace};
use crate::buffers::DecoderBuffers;
use crate::step::StepKind;
use crate::weights::packed::Packed;

/// Everything that a step of the pipeline needs.
pub(crate) struct PipelineStep<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) weights: &'a Packed<View<u8>>,
    pub(crate) buffers: &'a DecoderBuffers,
    pub(crate) workspace: &'a PipelineWorkspace,
    /// The adapter, if the model has one.
    pub(crate) adapter: Option<&'a LoadedAdapter>,
    /// The sequence number of the next GEMV, by which kernels compare their progress.
    pub(crate) sequence: Cell<u32>,
}

impl<'a> PipelineStep<'a> {
    pub(crate) fn new(
        pipeline: &'a Pipeline,
        weights: &'a Packed<View<u8>>,
        buffers: &'a DecoderBuffers,
        workspace: &'a PipelineWorkspace,
        adapter: Option<&'a LoadedAdapter>,
    ) -> Self {
        PipelineStep {
            pipeline,
            weights,
            buffers,
            workspace,
            adapter,
            sequence: Cell::new(0),
        }
    }

    /// Queues one step for every token of the batch.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        // Progress is compared only within a step, so the numbers start again.
        self.sequence.set(0);
        self.split_prompt(queue)?;
        self.place_drafts(queue)?;
        self.embed(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            let layer = self.layer(index);
            self.attention_part(queue, index, &layer.attention)?;
            self.add_normed(queue, block.attn_post_norm.as_ref())?;
            self.dense_part(queue, index, &layer.dense)?;
            self.add_normed(queue, block.ffn_post_norm.as_ref())?;
        }

        match kind {
            StepKind::Decode | StepKind::LogitsBatch => {
                self.head(queue, &self.weights.head, &self.vectors().x)
            }
            StepKind::Logits => self.head_alone(queue, &self.weights.head, &self.vectors().x),
            StepKind::Prefill => self.advance(queue),
            StepKind::PrefillBatch | StepKind::Choose => Ok(()),
            StepKind::Verify(_) => {
                self.head(queue, &self.weights.head, &self.vectors().x)?;
                self.buffers
                    .sample_drafts(queue, &self.vectors().logits, &self.vectors().state)
            }
        }
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
        self.o(queue, index, attention, &block.o)
    }

    /// Queues the feed-forward of a layer, up to its down projection.
    fn dense_part(&self, queue: &mut impl Queue, index: usize, dense: &Dense) -> Result<(), Error> {
        let block = &self.weights.blocks[index];
        self.gate_up(queue, index, dense, &block.gate_up)?;
        self.down(queue, index, dense, &block.down)
    }

    /// Returns the description of a layer.
    fn layer(&self, index: usize) -> &'a PipelineLayer {
        &self.pipeline.resolved.layers[index].described
    }

    /// Returns the logits of each token of the batch.
    pub(crate) fn logits(&self) -> View<f32> {
        self.vectors().logits
    }

    /// Returns the residual stream of each token of the batch.
    pub(crate) fn residual_stream(&self) -> View<f32> {
        self.vectors().x
    }

    fn vectors(&self) -> BatchVectors {
        self.workspace.vectors(self.buffers)
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

    /// Queues the assignment of prompt tokens to the batch.
    fn split_prompt(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let Some(kernel) = &self.pipeline.split_prompt else {
            return Ok(());
        };

        let b = self.buffers;
        let batch_state = &self.vectors().state;
        queue.launch(
            kernel,
            SplitPromptArgs {
                prompt: &b.prompt,
                state: &b.state,
                batch_state,
                ctx: b.ctx,
            },
        )
    }

    /// Queues the assignment of drafts to the batch.
    fn place_drafts(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let (Some(kernel), Some(drafts)) = (&self.pipeline.place_drafts, &b.drafts) else {
            return Ok(());
        };

        let drafts = &drafts.given;
        let batch_state = &self.vectors().state;
        queue.launch(
            kernel,
            PlaceDraftsArgs {
                drafts,
                tokens: &b.prompt,
                batch_state,
                ctx: b.ctx,
            },
        )
    }

    /// Queues a GEMV of a layer over these tiles, which may be another layer's if the formats are
    /// the same.
    pub(crate) fn product(
        &self,
        queue: &mut impl Queue,
        product: GemvKind,
        layer: usize,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let PipelineLayer {
            attention, dense, ..
        } = self.layer(layer);
        match product {
            GemvKind::Qkv => self.qkv(queue, layer, attention, tiles),
            GemvKind::O => self.o(queue, layer, attention, tiles),
            GemvKind::GateUp => self.gate_up(queue, layer, dense, tiles),
            GemvKind::Down => self.down(queue, layer, dense, tiles),
            GemvKind::Head => self.head(queue, tiles, &self.vectors().x),
        }
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
        let b = self.buffers;
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let args = EmbedTokenArgs::<Host> {
            state: &v.state,
            table: self.weights.embed(),
            freq: &b.freq,
            y: &v.x,
            angles: &self.workspace.angles,
            n: c.hidden,
            vocab: c.vocab,
            rope_dim: c.rotated_len(),
            blocks: step.sms,
            shared: step.shared,
        };
        match &self.pipeline.embed {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn qkv(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let b = self.buffers;
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let w = &self.weights.blocks[index];
        let GemvWithLora { kernel, layout } = &self.pipeline.layers[index].qkv;
        let q = match step.layers[index].qkv.kernel.output {
            QkvOutput::Append => &v.q,
            QkvOutput::Raw => &*self.workspace.raw,
        };

        // The angles of the first rope. In models with several ropes the head norm kernel rotates,
        // and this kernel reads no angles.
        let angles = self
            .workspace
            .angles
            .view_range(0..(step.batch * attention.head_dim) as usize);
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
                k_cache: &b.k_cache[index],
                v_cache: &b.v_cache[index],
                heads: attention.heads,
                kv_heads: attention.kv_heads,
                head_dim: attention.head_dim,
                ctx: b.ctx,
                n: c.hidden,
                epsilon: c.epsilon,
                stream: self.stream_args(layout, &views),
            };
            kernel.launch(queue, args, lora.as_ref())?;
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

        let b = self.buffers;
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let c = &step.config;
        let args = HeadNormArgs::<Host> {
            x: &self.workspace.raw,
            gamma: &gamma.cast()?,
            state: &v.state,
            angles: &self.workspace.angles,
            q: &v.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            ctx: b.ctx,
            epsilon: c.epsilon,
            blocks: step.sms,
            shared: step.attention.memory,
        };
        queue.launch(kernel, args)
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
        let b = self.buffers;
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let splits = self.workspace.splits;
        let c = &step.config;
        let args = PipelinedAttentionArgs::<Host> {
            state: &v.state,
            q: &v.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            y: &self.workspace.heads.values,
            y_scale: &self.workspace.heads.scales,
            partials: &self.workspace.attention_partials,
            ticket: &self.workspace.attention_ticket,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            ctx: b.ctx,
            splits,
            scale: c.score_scale(attention),
            blocks: step.attention_blocks(splits),
            shared: step.attention.memory,
            timestamps: &self.workspace.timestamps(NODES * index + 1),
        };
        queue.launch(&self.pipeline.layers[index].attention, args)
    }

    fn o(
        &self,
        queue: &mut impl Queue,
        index: usize,
        attention: &Attention,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let x = &self.workspace.heads;
        let product = ProjectProduct {
            kernel: &self.pipeline.layers[index].o,
            node: NODES * index + 2,
            lora: self.lora(queue, GemvKind::O, index, x)?,
            n: attention.q_len(),
        };
        self.project(queue, self.layer(index).norms, product, tiles, x)
    }

    fn down(
        &self,
        queue: &mut impl Queue,
        index: usize,
        dense: &Dense,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let x = &self.workspace.inner;
        let product = ProjectProduct {
            kernel: &self.pipeline.layers[index].down,
            node: NODES * index + 4,
            lora: self.lora(queue, GemvKind::Down, index, x)?,
            n: dense.width,
        };
        self.project(queue, self.layer(index).norms, product, tiles, x)
    }

    /// Queues the norm of the previous projection and its addition to the residual stream, in
    /// models that norm it.
    fn add_normed(&self, queue: &mut impl Queue, gamma: Option<&View<u8>>) -> Result<(), Error> {
        let v = self.vectors();
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
        norms: NormPositions,
        product: ProjectProduct<'_>,
        tiles: &View<u8>,
        x: &BlockFloatBuffer,
    ) -> Result<(), Error> {
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let y = match norms {
            NormPositions::Before => &v.x,
            // The buffer exists if any layer norms the output.
            NormPositions::BeforeAndAfter => self.workspace.projected.as_deref().unwrap_or(&v.x),
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
            kernel.launch(queue, args, lora.as_ref())?;
        }

        Ok(())
    }

    fn gate_up(
        &self,
        queue: &mut impl Queue,
        index: usize,
        dense: &Dense,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        let v = self.vectors();
        let step = &self.pipeline.resolved;
        let GemvWithLora { kernel, layout } = &self.pipeline.layers[index].gate_up;
        let gamma = &self.weights.blocks[index].ffn_norm;
        let lora = self.lora_normed(queue, GemvKind::GateUp, index, gamma)?;
        let views = self.stream_views(layout, NODES * index + 3);
        for tokens in self.sub_batches(kernel.plan().batch) {
            let lora = lora.as_ref().map(|lora| lora.sub_batch(&tokens));
            let args = GateUpArgs::<Host> {
                w: tiles,
                x: &tokens.rows(&v.x),
                gamma: &gamma.cast()?,
                y: &tokens.rows(&self.workspace.inner.values),
                y_scale: &tokens.rows(&self.workspace.inner.scales),
                rows: dense.width,
                n: step.config.hidden,
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
        x: &BlockFloatBuffer,
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
            x: &self.vectors().x,
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

    /// Queues the end of a step that other kernels began: the LM head for rows of the residual
    /// stream, the choice of the next token, and the update of the state. With
    /// [`StepKind::Logits`], it queues only the logits.
    pub(crate) fn end(
        &self,
        queue: &mut impl Queue,
        x: &View<f32>,
        kind: StepKind,
    ) -> Result<(), Error> {
        self.sequence.set(0);
        match kind {
            StepKind::Logits => self.head_alone(queue, &self.weights.head, x),
            _ => self.head(queue, &self.weights.head, x),
        }
    }

    /// Queues the logits and the choice of the next token. For a batch of one it also updates the
    /// state.
    fn head(&self, queue: &mut impl Queue, tiles: &View<u8>, x: &View<f32>) -> Result<(), Error> {
        // The head chooses the argmax itself. A sampler chooses in additional kernels after it.
        if self.buffers.sampler.is_none() || self.pipeline.resolved.batch > 1 {
            return self.lm_head(queue, tiles, x, &self.vectors());
        }
        self.head_alone(queue, tiles, x)?;
        self.buffers.sample(queue).map(drop)
    }

    /// Queues the logits without a choice, by giving the head a state that is done.
    fn head_alone(
        &self,
        queue: &mut impl Queue,
        tiles: &View<u8>,
        x: &View<f32>,
    ) -> Result<(), Error> {
        let mut v = self.vectors();
        if let Some(sampler) = &self.buffers.sampler {
            v.state = sampler.idle.view();
        }
        self.lm_head(queue, tiles, x, &v)
    }

    /// Queues the logits and the choice of the argmax. For a batch of one it also updates the
    /// state, unless the state is done.
    fn lm_head(
        &self,
        queue: &mut impl Queue,
        tiles: &View<u8>,
        x: &View<f32>,
        v: &BatchVectors,
    ) -> Result<(), Error> {
        let b = self.buffers;
        let step = &self.pipeline.resolved;
        let GemvWithLora { kernel, layout } = &self.pipeline.head;
        let blocks = (kernel.def().plan.batch * layout.blocks) as usize;
        let views = self.stream_views(layout, NODES * self.weights.blocks.len());
        for tokens in self.sub_batches(kernel.def().plan.batch) {
            let args = LmHeadArgs::<Host> {
                w: tiles,
                x: &tokens.rows(x),
                gamma: &self.weights.norm.cast()?,
                logits: &tokens.rows(&v.logits),
                value: &self.workspace.value.view_range(0..blocks),
                index: &self.workspace.index.view_range(0..blocks),
                ticket: &self.workspace.head_ticket,
                prompt: &b.prompt,
                stop: &b.stop,
                state: &tokens.rows(&v.state),
                out: &b.out,
                rows: step.config.vocab,
                n: step.config.hidden,
                epsilon: step.config.epsilon,
                stops: b.stop_tokens.len() as u32,
                ctx: b.ctx,
                stream: self.stream_args(layout, &views),
            };
            queue.launch(kernel, args)?;
        }

        Ok(())
    }

    /// Queues the update of the state without logits.
    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let args = AdvanceArgs::<Host> {
            token: &b.token,
            prompt: &b.prompt,
            stop: &b.stop,
            state: &b.state,
            out: &b.out,
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.pipeline.advance, args)
    }
}

/// A projection whose result is added to the residual stream.
struct ProjectProduct<'a> {
    kernel: &'a GemvWithLora<LoadedGemv<Project>>,
    /// The index of its timestamps.
    node: usize,
    /// Its adapter, if it has one.
    lora: Option<LoraTokens>,
    /// The number of columns.
    n: u32,
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
