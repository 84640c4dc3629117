//! The forward pass as a pipeline of overlapped kernels over packed weights.
//!
//! It computes the same sums as `forward.rs` in five kernels per layer: QKV (norm, three products, bias, rotary
//! embedding, append to the cache); attention; the output projection; gate and up (norm, two products, the gate); the
//! down projection. For models with head norms, the first kernel stops after the bias, and a sixth kernel norms,
//! rotates and appends. Models with norms after attention and the feed-forward have a kernel for each: the projection
//! before it stores its sums, and it norms them and adds them to the residual stream. The pipeline starts with a kernel that embeds the token and ends with the LM head, which
//! samples and advances the state. Each kernel prefetches weights while its predecessor still runs, and waits for the
//! predecessor's end before it reads anything else.
//!
//! The same pipeline prefills several tokens of a prompt as a batch: see `warpwright_kernels::pipeline`. It then starts
//! with a kernel that assigns the tokens and ends before sampling. Drafts are verified by a batch that chooses the token
//! after each. If the shared memory does not hold the activations
//! of the whole batch, a product is launched several times with a smaller batch.

use std::cell::Cell;
use std::ops::Range;

use warpwright_driver::{Elem, Error, Host, Queue, View};
use warpwright_kernels::advance::AdvanceArgs;
use warpwright_kernels::pipeline::{
    EmbedTokenArgs, GateUpArgs, HeadNormArgs, LORA_A_SHARED, Layout, LmHeadArgs, LoraAArgs,
    LoraANormedArgs, PipelinedAttentionArgs, PlaceDraftsArgs, Project, ProjectArgs, QkvArgs,
    SplitPromptArgs, StreamArgs,
};
use warpwright_kernels::{AddNormed, AddNormedArgs};

use super::adapter::{DeviceLora, LoadedAdapter, LoraKernels, LoraViews, ProductKernel};
use super::kernels::{EmbedKernel, LoadedProduct, Pipeline};
use super::product::Product;
use super::workspace::{BatchVectors, BlockFloatBuffer, NODES, Workspace};
use crate::buffers::Buffers;
use crate::step::StepKind;
use crate::weights::info;
use crate::weights::packed::Packed;

/// Everything that a step of the pipeline needs.
pub(crate) struct PipelineStep<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) weights: &'a Packed<View<u8>>,
    pub(crate) buffers: &'a Buffers,
    pub(crate) workspace: &'a Workspace,
    /// Of a model that has one.
    pub(crate) adapter: Option<&'a LoadedAdapter>,
    /// The sequence number of the next product.
    pub(crate) sequence: Cell<u32>,
}

impl<'a> PipelineStep<'a> {
    pub(crate) fn new(
        pipeline: &'a Pipeline,
        weights: &'a Packed<View<u8>>,
        buffers: &'a Buffers,
        workspace: &'a Workspace,
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

    /// Launches one step for every token of the batch.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        self.sequence.set(0);
        self.split_prompt(queue)?;
        self.place_drafts(queue)?;
        self.embed(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            self.qkv(queue, index, &block.qkv)?;
            self.head_norm(queue, index)?;
            self.attention(queue, index)?;
            self.o(queue, index, &block.o)?;
            self.add_normed(queue, block.attn_post_norm.as_ref())?;
            self.gate_up(queue, index, &block.gate_up)?;
            self.down(queue, index, &block.down)?;
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

    /// The logits of each token of the batch.
    pub(crate) fn logits(&self) -> View<f32> {
        self.vectors().logits
    }

    /// The residual stream of each token of the batch.
    pub(crate) fn residual_stream(&self) -> View<f32> {
        self.vectors().x
    }

    fn vectors(&self) -> BatchVectors {
        self.workspace.vectors(self.buffers)
    }

    /// What the next product has besides its own arguments.
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

    /// The memory of these.
    fn stream_views(&self, layout: &Layout, node: usize) -> StreamViews {
        StreamViews {
            progress: self
                .workspace
                .progress
                .view_range(0..layout.blocks as usize),
            timestamps: self.workspace.timestamps(node),
        }
    }

    /// The batch in sub-batches of `at_once` tokens.
    fn sub_batches(&self, at_once: u32) -> impl Iterator<Item = SubBatch> {
        let batch = self.pipeline.resolved.batch;
        (0..batch)
            .step_by(at_once as usize)
            .map(move |first| SubBatch {
                range: first..first + at_once,
                batch,
            })
    }

    /// Assigns the tokens of a batch.
    fn split_prompt(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (Some(kernel), b) = (&self.pipeline.split_prompt, self.buffers) else {
            return Ok(());
        };
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

    /// Assigns drafts.
    fn place_drafts(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let (Some(kernel), Some(drafts)) = (&self.pipeline.place_drafts, &b.drafts) else {
            return Ok(());
        };
        let (drafts, batch_state) = (&drafts.given, &self.vectors().state);
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

    /// Launches a product of a layer over these tiles: the layer's own, or others of the same formats.
    pub(crate) fn product(
        &self,
        queue: &mut impl Queue,
        product: Product,
        layer: usize,
        tiles: &View<u8>,
    ) -> Result<(), Error> {
        match product {
            Product::Qkv => self.qkv(queue, layer, tiles),
            Product::O => self.o(queue, layer, tiles),
            Product::GateUp => self.gate_up(queue, layer, tiles),
            Product::Down => self.down(queue, layer, tiles),
            Product::Head => self.head(queue, tiles, &self.vectors().x),
        }
    }

    /// The tiles of a product of a layer.
    pub(crate) fn tiles(&self, product: Product, layer: usize) -> &'a View<u8> {
        let block = &self.weights.blocks[layer];
        match product {
            Product::Qkv => &block.qkv,
            Product::O => &block.o,
            Product::GateUp => &block.gate_up,
            Product::Down => &block.down,
            Product::Head => &self.weights.head,
        }
    }

    /// Bytes of keys and values that a layer's attention reads at this many positions, in f16.
    pub(crate) fn kv_bytes(&self, layer: usize, attended: u32) -> u64 {
        info::kv_bytes_of(&self.pipeline.resolved.config, layer as u32, attended)
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, v, step) = (self.buffers, self.vectors(), &self.pipeline.resolved);
        let c = &step.config;
        let args = EmbedTokenArgs::<Host> {
            state: &v.state,
            table: self.weights.embed(),
            freq: &b.freq,
            y: &v.x,
            angles: &self.workspace.angles,
            n: c.hidden,
            vocab: c.vocab,
            rope_dim: c.rope.dim * c.ropes().len() as u32,
            blocks: step.sms,
            shared: step.shared,
        };
        match &self.pipeline.embed {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn qkv(&self, queue: &mut impl Queue, index: usize, tiles: &View<u8>) -> Result<(), Error> {
        let (b, v, step) = (self.buffers, self.vectors(), &self.pipeline.resolved);
        let c = &step.config;
        let (w, LoadedProduct { kernel, layout }) = (
            &self.weights.blocks[index],
            &self.pipeline.layers[index].qkv,
        );
        let q = if w.qk_norm.is_some() {
            &*self.workspace.raw
        } else {
            &v.q
        };
        // Those of the first rope; where there are several, head norms rotate, and this kernel reads none.
        let angles = self
            .workspace
            .angles
            .view_range(0..(step.batch * c.head_dim) as usize);
        let lora = self.lora_normed(queue, Product::Qkv, index, &w.attn_norm)?;
        let views = self.stream_views(layout, NODES * index);
        self.sub_batches(kernel.plan().batch)
            .try_for_each(|tokens| {
                let lora = lora.as_ref().map(|lora| lora.of(&tokens));
                let args = QkvArgs::<Host> {
                    w: tiles,
                    x: &tokens.of(&v.x),
                    gamma: &w.attn_norm.cast()?,
                    // Without a bias it is not read, but the launch needs a valid buffer.
                    bias: &w.bias.as_ref().unwrap_or(&w.attn_norm).cast()?,
                    state: &tokens.of(&v.state),
                    angles: &tokens.of(&angles),
                    q: &tokens.of(q),
                    k_cache: &b.k_cache[index],
                    v_cache: &b.v_cache[index],
                    heads: c.heads,
                    kv_heads: c.kv_heads,
                    head_dim: c.head_dim,
                    ctx: b.ctx,
                    n: c.hidden,
                    epsilon: c.epsilon,
                    stream: self.stream_args(layout, &views),
                };
                kernel.launch(queue, args, lora.as_ref())
            })
    }

    /// Head norm, rotary embedding and append to the cache, for models with head norms.
    fn head_norm(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let kernel = &self.pipeline.layers[index].head_norm;
        let (Some(kernel), Some(gamma)) = (kernel, &self.weights.blocks[index].qk_norm) else {
            return Ok(());
        };
        let (b, v, step) = (self.buffers, self.vectors(), &self.pipeline.resolved);
        let c = &step.config;
        let args = HeadNormArgs::<Host> {
            x: &self.workspace.raw,
            gamma: &gamma.cast()?,
            state: &v.state,
            angles: &self.workspace.angles,
            q: &v.q,
            k_cache: &b.k_cache[index],
            v_cache: &b.v_cache[index],
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ctx: b.ctx,
            epsilon: c.epsilon,
            blocks: step.sms,
            shared: step.attention.memory,
        };
        queue.launch(kernel, args)
    }

    pub(crate) fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, v, step, splits) = (
            self.buffers,
            self.vectors(),
            &self.pipeline.resolved,
            self.workspace.splits,
        );
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
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            splits,
            scale: c.score_scale(),
            blocks: step.attention_blocks(splits),
            shared: step.attention.memory,
            timestamps: &self.workspace.timestamps(NODES * index + 1),
        };
        queue.launch(&self.pipeline.layers[index].attention, args)
    }

    fn o(&self, queue: &mut impl Queue, index: usize, tiles: &View<u8>) -> Result<(), Error> {
        let lora = self.lora(queue, Product::O, index, &self.workspace.heads)?;
        let (product, x) = (&self.pipeline.layers[index].o, &self.workspace.heads);
        self.project(queue, NODES * index + 2, product, (tiles, x), lora)
    }

    fn down(&self, queue: &mut impl Queue, index: usize, tiles: &View<u8>) -> Result<(), Error> {
        let lora = self.lora(queue, Product::Down, index, &self.workspace.inner)?;
        let (product, x) = (&self.pipeline.layers[index].down, &self.workspace.inner);
        self.project(queue, NODES * index + 4, product, (tiles, x), lora)
    }

    /// Norms what the product before gives, and adds it to the residual stream: for models with norms after.
    fn add_normed(&self, queue: &mut impl Queue, gamma: Option<&View<u8>>) -> Result<(), Error> {
        let (v, step) = (self.vectors(), &self.pipeline.resolved);
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

    /// Adds `W x` to the residual stream; or stores it, for models with norms after.
    fn project(
        &self,
        queue: &mut impl Queue,
        node: usize,
        LoadedProduct { kernel, layout }: &LoadedProduct<ProductKernel<Project>>,
        (tiles, x): (&View<u8>, &BlockFloatBuffer),
        lora: Option<LoraTokens>,
    ) -> Result<(), Error> {
        let (v, batch) = (self.vectors(), self.pipeline.resolved.batch);
        let y = self.workspace.projected.as_deref().unwrap_or(&v.x);
        let views = self.stream_views(layout, node);
        self.sub_batches(kernel.plan().batch)
            .try_for_each(|tokens| {
                let lora = lora.as_ref().map(|lora| lora.of(&tokens));
                let args = ProjectArgs::<Host> {
                    w: tiles,
                    x: &tokens.of(&x.values),
                    x_scale: &tokens.of(&x.scales),
                    rows: y.len() as u32 / batch,
                    n: x.values.len() as u32 / batch,
                    y: &tokens.of(y),
                    stream: self.stream_args(layout, &views),
                };
                kernel.launch(queue, args, lora.as_ref())
            })
    }

    fn gate_up(&self, queue: &mut impl Queue, index: usize, tiles: &View<u8>) -> Result<(), Error> {
        let (v, step) = (self.vectors(), &self.pipeline.resolved);
        let LoadedProduct { kernel, layout } = &self.pipeline.layers[index].gate_up;
        let gamma = &self.weights.blocks[index].ffn_norm;
        let lora = self.lora_normed(queue, Product::GateUp, index, gamma)?;
        let views = self.stream_views(layout, NODES * index + 3);
        self.sub_batches(kernel.plan().batch)
            .try_for_each(|tokens| {
                let lora = lora.as_ref().map(|lora| lora.of(&tokens));
                let args = GateUpArgs::<Host> {
                    w: tiles,
                    x: &tokens.of(&v.x),
                    gamma: &gamma.cast()?,
                    y: &tokens.of(&self.workspace.inner.values),
                    y_scale: &tokens.of(&self.workspace.inner.scales),
                    rows: step.config.feed_forward,
                    n: step.config.hidden,
                    epsilon: step.config.epsilon,
                    stream: self.stream_args(layout, &views),
                };
                kernel.launch(queue, args, lora.as_ref())
            })
    }

    /// What the adapter of a product makes of block floating point, if the product has one.
    fn lora(
        &self,
        queue: &mut impl Queue,
        product: Product,
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

    /// The same of the residual stream, by a norm of these weights.
    fn lora_normed(
        &self,
        queue: &mut impl Queue,
        product: Product,
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

    /// The adapter of a product, and where its `u` goes.
    fn lora_of(
        &self,
        product: Product,
        layer: usize,
    ) -> Option<(&'a LoraKernels, &'a DeviceLora, LoraTokens)> {
        let (kernels, buffer) = (
            self.pipeline.lora.as_ref()?,
            self.workspace.lora_u.as_ref()?,
        );
        let lora = self.adapter?.of(product, layer)?;
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

    /// The logits and the argmax token after a row of the residual stream, and the next position: the end of a step of
    /// this kind that other kernels began.
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

    /// The logits and the next token; for a batch of one also the next position.
    fn head(&self, queue: &mut impl Queue, tiles: &View<u8>, x: &View<f32>) -> Result<(), Error> {
        if self.buffers.sampler.is_none() || self.pipeline.resolved.batch > 1 {
            return self.lm_head(queue, tiles, x, &self.vectors());
        }
        self.head_alone(queue, tiles, x)?;
        self.buffers.sample(queue).map(drop)
    }

    /// The logits, where tokens are sampled: the head chooses nothing.
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

    /// The logits and the argmax token; for a batch of one also the next position, unless the state is done.
    fn lm_head(
        &self,
        queue: &mut impl Queue,
        tiles: &View<u8>,
        x: &View<f32>,
        v: &BatchVectors,
    ) -> Result<(), Error> {
        let (b, step) = (self.buffers, &self.pipeline.resolved);
        let LoadedProduct { kernel, layout } = &self.pipeline.head;
        let blocks = (kernel.def().plan.batch * layout.blocks) as usize;
        let views = self.stream_views(layout, NODES * self.weights.blocks.len());
        self.sub_batches(kernel.def().plan.batch)
            .try_for_each(|tokens| {
                let args = LmHeadArgs::<Host> {
                    w: tiles,
                    x: &tokens.of(x),
                    gamma: &self.weights.norm.cast()?,
                    logits: &tokens.of(&v.logits),
                    value: &self.workspace.value.view_range(0..blocks),
                    index: &self.workspace.index.view_range(0..blocks),
                    ticket: &self.workspace.head_ticket,
                    prompt: &b.prompt,
                    stop: &b.stop,
                    state: &tokens.of(&v.state),
                    out: &b.out,
                    rows: step.config.vocab,
                    n: step.config.hidden,
                    epsilon: step.config.epsilon,
                    stops: b.stop_tokens.len() as u32,
                    ctx: b.ctx,
                    stream: self.stream_args(layout, &views),
                };
                queue.launch(kernel, args)
            })
    }

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

/// What every product has of its own in the workspace.
struct StreamViews {
    progress: View<u32>,
    timestamps: View<u64>,
}

/// A product's adapter with `u` of all tokens of a step.
struct LoraTokens {
    b: View<f32>,
    u: View<f32>,
    rank: u32,
}

impl LoraTokens {
    /// The same of a sub-batch.
    fn of(&self, tokens: &SubBatch) -> LoraViews {
        LoraViews {
            b: self.b.clone(),
            u: tokens.of(&self.u),
            rank: self.rank,
        }
    }
}

/// A sub-batch.
struct SubBatch {
    range: Range<u32>,
    /// Tokens of the whole batch.
    batch: u32,
}

impl SubBatch {
    /// The sub-batch's rows of a buffer with one row per token.
    fn of<T: Elem>(&self, all: &View<T>) -> View<T> {
        let len = all.len() / self.batch as usize;
        all.view_range(self.range.start as usize * len..self.range.end as usize * len)
    }
}
