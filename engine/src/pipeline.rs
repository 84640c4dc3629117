//! The forward pass as a pipeline of overlapped kernels over packed weights.
//!
//! It computes the same sums as `forward.rs` in five kernels per layer: QKV (norm, three products, bias, rotary
//! embedding, append to the cache); attention; the output projection; gate and up (norm, two products, the gate); the
//! down projection. For models with head norms, the first kernel stops after the bias, and a sixth kernel norms,
//! rotates and appends. The pipeline starts with a kernel that embeds the token and ends with the LM head, which
//! samples and advances the state. Each kernel prefetches weights while its predecessor still runs, and waits for the
//! predecessor's end before it reads anything else.
//!
//! The same pipeline prefills several tokens of a prompt as a batch: see `warpwright_kernels::tiled`. It then starts
//! with a kernel that assigns the tokens and ends before sampling. If the shared memory does not hold the activations
//! of the whole batch, a product is launched several times with a smaller batch.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use warpwright_driver::{Buffer, Context, Elem, Error, Kernel, Queue, View};
use warpwright_kernels::advance::AdvanceArgs;
use warpwright_kernels::tiled::{
    EmbedRows, EmbedTiled, EmbedTokenArgs, GateUp, GateUpArgs, HeadNorm, HeadNormArgs, Layout, LmHead,
    LmHeadArgs, PipelinedAttention, PipelinedAttentionArgs, Project, ProjectArgs, Qkv, QkvArgs, SplitPrompt,
    SplitPromptArgs, block_float, plan,
};
use warpwright_kernels::{Advance, Format, state};

use crate::buffers::Buffers;
use crate::decoder::StepKind;
use crate::kernels::by_key;
use crate::model::{Outline, Weight, Weights};
use crate::packed::{Packed, PackedBlock};
use crate::path::ResolvedPlan;
use crate::weights::DeviceTensor;

/// Kernels of a layer.
const NODES: usize = 5;

/// The loaded kernels, and their launch parameters.
pub(crate) struct Pipeline {
    pub(crate) plan: ResolvedPlan,
    /// For batches larger than 1.
    split_prompt: Option<Kernel<SplitPrompt>>,
    embed: EmbedKernel,
    qkv: BTreeMap<[Format; 3], Kernel<Qkv>>,
    /// For models with head norms.
    head_norm: Option<Kernel<HeadNorm>>,
    attention: Kernel<PipelinedAttention>,
    project: BTreeMap<Project, Kernel<Project>>,
    gate_up: BTreeMap<Format, Kernel<GateUp>>,
    head: Kernel<LmHead>,
    advance: Kernel<Advance>,
}

/// The kernel that embeds a token.
enum EmbedKernel {
    Tiles(Kernel<EmbedTiled>),
    Rows(Kernel<EmbedRows>),
}

/// The pipeline's workspace: buffers that only the pipeline uses. Buffers "per token" have one row for each token of
/// the batch.
pub(crate) struct Workspace {
    /// `[head_dim / 2, 2]`, per token: cosine and sine at the position
    angles: Buffer<f32>,
    /// `[heads + 2 * kv_heads, head_dim]`, per token: queries, keys and values before the head norm
    raw: Buffer<f32>,
    /// `[max_blocks]`, per token: the largest logit of each block of the LM head, and its token
    value: Buffer<f32>,
    index: Buffer<u32>,
    /// `[1]`: finished blocks of the LM head
    head_ticket: Buffer<u32>,
    /// `[heads, head_dim]`, per token: attention's output, the input of the output projection
    heads: BlockFloatBuffer,
    /// `[feed_forward]`, per token: the output of gate and up, the input of the down projection
    inner: BlockFloatBuffer,
    /// `[heads, splits, partial_len]`, per token: partial results of attention's splits
    attention_partials: Buffer<f32>,
    /// `[tickets]`, per token: finished splits of attention
    attention_ticket: Buffer<u32>,
    /// `[max_blocks]`: progress flags, the sequence number of the latest product that has issued its last load
    progress: Buffer<u32>,
    /// Splits of attention.
    splits: u32,
    /// For batches larger than 1; otherwise the buffers that both paths share.
    batch: Option<BatchVectors>,
    /// `[nodes, node_timestamps]` if the kernels profile, otherwise unused: see `warpwright_kernels::tiled::plan`.
    timestamps: Buffer<u64>,
    /// Timestamps per kernel; 0 if none profile.
    node_timestamps: usize,
}

/// Block floating point activations: see `warpwright_kernels::tiled::block_float`.
struct BlockFloatBuffer {
    values: Buffer<u16>,
    scales: Buffer<f32>,
}

impl BlockFloatBuffer {
    fn new(context: &Context, name: &str, len: u32) -> Result<BlockFloatBuffer, Error> {
        let scales = (len / block_float::BFP_BLOCK) as usize;
        Ok(BlockFloatBuffer {
            values: Buffer::uninit(context, len as usize)?.labelled(name),
            scales: Buffer::uninit(context, scales)?.labelled(&format!("{name}.scales")),
        })
    }
}

/// Per-token buffers.
#[derive(Clone)]
struct BatchVectors {
    state: View<u32>,
    /// `[hidden]`
    x: View<f32>,
    /// `[heads, head_dim]`
    q: View<f32>,
    /// `[vocab]`
    logits: View<f32>,
}

impl BatchVectors {
    fn new(context: &Context, plan: &ResolvedPlan) -> Result<BatchVectors, Error> {
        let c = &plan.config;
        let floats = |name: &str, len: u32| -> Result<View<f32>, Error> {
            let len = plan.batch as usize * len as usize;
            Ok(Buffer::uninit(context, len)?.labelled(&format!("batch.{name}")).view())
        };
        let state = Buffer::zeroed(context, plan.batch as usize * state::LEN)?.labelled("batch.state");
        Ok(BatchVectors {
            state: state.view(),
            x: floats("x", c.hidden)?,
            q: floats("q", c.q_len())?,
            logits: floats("logits", c.vocab)?,
        })
    }

    fn of(b: &Buffers) -> BatchVectors {
        BatchVectors { state: b.state.view(), x: b.x.view(), q: b.q.view(), logits: b.logits.view() }
    }
}

impl Pipeline {
    /// Loads the kernels of a model that the pipeline supports.
    pub(crate) fn load(context: &Context, plan: ResolvedPlan, outline: &Outline) -> Result<Pipeline, Error> {
        let (w, blocks) = (&outline.weights, || outline.weights.blocks.iter());
        let qkv = blocks().map(|b| [&b.q, &b.k, &b.v].map(|w| w.format));
        let down = |b: &crate::model::Block<Weight>| plan.down(b.gate.format, b.down.format);
        let projects = blocks().flat_map(|b| [plan.o(b.o.format), down(b)]);
        let split_prompt = (plan.batch > 1).then_some(SplitPrompt { batch: plan.batch });
        Ok(Pipeline {
            split_prompt: split_prompt.map(|kernel| Kernel::load(context, kernel)).transpose()?,
            embed: EmbedKernel::load(context, w, &plan)?,
            qkv: by_key(context, qkv, |formats| resolved(plan.qkv(formats)).0)?,
            head_norm: plan.head_norm().map(|kernel| Kernel::load(context, kernel)).transpose()?,
            attention: Kernel::load(context, plan.attention())?,
            project: by_key(context, projects.map(|project| resolved(project).0), |project| project)?,
            gate_up: by_key(context, blocks().map(|b| b.gate.format), |format| {
                resolved(plan.gate_up(format)).0
            })?,
            head: Kernel::load(context, resolved(plan.head(w.head().format)).0)?,
            advance: Kernel::load(context, Advance)?,
            plan,
        })
    }
}

/// A [`ResolvedPlan`] was validated with every matrix of its model.
fn resolved<T>(plan: Result<T, String>) -> T {
    plan.expect("the plan was checked with every matrix")
}

impl EmbedKernel {
    fn load(context: &Context, w: &Weights<Weight>, plan: &ResolvedPlan) -> Result<EmbedKernel, Error> {
        let (format, overlap, batch) = (w.embed.format, plan.overlaps(), plan.batch);
        Ok(match w.head {
            None => EmbedKernel::Tiles(Kernel::load(context, EmbedTiled { format, overlap, batch })?),
            Some(_) => EmbedKernel::Rows(Kernel::load(context, EmbedRows { format, overlap, batch })?),
        })
    }
}

impl Workspace {
    pub(crate) fn new(context: &Context, plan: &ResolvedPlan, ctx: u32) -> Result<Workspace, crate::Error> {
        let (blocks, c, attention) = (plan.max_blocks() as usize, &plan.config, plan.attention());
        let floats = |len: u32| Buffer::uninit(context, plan.batch as usize * len as usize);
        let (splits, nodes) = (plan.splits(ctx), NODES * plan.config.layers as usize + 1);
        let tickets = (plan.batch * attention.tickets(c.kv_heads)) as usize;
        let node_timestamps =
            if plan.tuning.profile { (plan.attention_blocks(splits) * plan::TIMESTAMPS) as usize } else { 0 };
        Ok(Workspace {
            angles: floats(c.head_dim)?.labelled("angles"),
            raw: floats(c.q_len() + 2 * c.kv_len())?.labelled("raw"),
            value: floats(plan.max_blocks())?.labelled("head.value"),
            index: Buffer::uninit(context, plan.batch as usize * blocks)?.labelled("head.index"),
            head_ticket: Buffer::zeroed(context, 1)?.labelled("head.ticket"),
            heads: BlockFloatBuffer::new(context, "heads", plan.batch * c.q_len())?,
            inner: BlockFloatBuffer::new(context, "inner", plan.batch * c.feed_forward)?,
            attention_partials: floats(c.heads * splits * attention.partial_len())?
                .labelled("attention.partials"),
            attention_ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            progress: Buffer::zeroed(context, blocks)?.labelled("progress"),
            splits,
            batch: (plan.batch > 1).then(|| BatchVectors::new(context, plan)).transpose()?,
            timestamps: Buffer::zeroed(context, (nodes * node_timestamps).max(1))?.labelled("timestamps"),
            node_timestamps,
        })
    }

    /// The timestamp buffer of a kernel.
    fn timestamps(&self, node: usize) -> View<u64> {
        match self.node_timestamps {
            0 => self.timestamps.view(),
            len => self.timestamps.view_range(node * len..(node + 1) * len),
        }
    }

    /// The timestamps of the latest step: per kernel, per block, by [`Timestamp`](plan::Timestamp).
    pub(crate) fn times(&self) -> Result<Vec<Vec<[u64; 8]>>, Error> {
        let timestamps = self.timestamps.to_vec()?;
        let blocks = |node: &[u64]| node.as_chunks().0.to_vec();
        Ok(timestamps.chunks(self.node_timestamps).map(blocks).collect())
    }
}

/// A matrix product of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// Queries, keys and values.
    Qkv,
    /// The output projection after attention.
    O,
    /// The gate and up projections.
    GateUp,
    /// The down projection.
    Down,
    /// The LM head.
    Head,
}

impl Product {
    /// The products of a layer.
    pub const OF_LAYER: [Product; 4] = [Product::Qkv, Product::O, Product::GateUp, Product::Down];

    /// As a [`Tuning`](crate::Tuning) names it.
    pub fn name(self) -> &'static str {
        match self {
            Product::Qkv => "qkv",
            Product::O => "o",
            Product::GateUp => "gate_up",
            Product::Down => "down",
            Product::Head => "head",
        }
    }
}

/// Everything that a step of the pipeline needs.
pub(crate) struct PipelineStep<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) weights: &'a Packed,
    pub(crate) buffers: &'a Buffers,
    pub(crate) workspace: &'a Workspace,
    /// The sequence number of the next product.
    pub(crate) sequence: Cell<u32>,
}

impl<'a> PipelineStep<'a> {
    pub(crate) fn new(
        pipeline: &'a Pipeline,
        weights: &'a Packed,
        buffers: &'a Buffers,
        workspace: &'a Workspace,
    ) -> Self {
        PipelineStep { pipeline, weights, buffers, workspace, sequence: Cell::new(0) }
    }

    /// Launches one step for every token of the batch.
    pub(crate) fn run(&self, queue: &mut impl Queue, kind: StepKind) -> Result<(), Error> {
        self.sequence.set(0);
        self.split_prompt(queue)?;
        self.embed(queue)?;
        for (index, block) in self.weights.blocks.iter().enumerate() {
            self.qkv(queue, index, block)?;
            self.head_norm(queue, index, block)?;
            self.attention(queue, index)?;
            self.o(queue, index, &block.o)?;
            self.gate_up(queue, index, block)?;
            self.down(queue, index, block)?;
        }
        match kind {
            StepKind::Decode | StepKind::LogitsBatch => self.head(queue, &self.weights.head),
            StepKind::Prefill => self.advance(queue),
            StepKind::PrefillBatch => Ok(()),
        }
    }

    /// The logits of each token of the batch.
    pub(crate) fn logits(&self) -> View<f32> {
        self.vectors().logits
    }

    fn vectors(&self) -> BatchVectors {
        self.workspace.batch.clone().unwrap_or_else(|| BatchVectors::of(self.buffers))
    }

    /// The progress flags, and the sequence number of the next product.
    fn progress(&self, blocks: u32) -> (View<u32>, u32) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        (self.workspace.progress.view_range(0..blocks as usize), sequence)
    }

    /// The batch in sub-batches of `at_once` tokens.
    fn sub_batches(&self, at_once: u32) -> impl Iterator<Item = SubBatch> {
        let batch = self.pipeline.plan.batch;
        (0..batch)
            .step_by(at_once as usize)
            .map(move |first| SubBatch { range: first..first + at_once, batch })
    }

    /// Assigns the tokens of a batch.
    fn split_prompt(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (Some(kernel), b) = (&self.pipeline.split_prompt, self.buffers) else {
            return Ok(());
        };
        let (prompt, state) = (b.prompt.view(), b.state.view());
        queue.launch(kernel, SplitPromptArgs { prompt, state, columns: self.vectors().state, ctx: b.ctx })
    }

    /// Launches a product of a layer over other tiles of its format.
    pub(crate) fn product(
        &self,
        queue: &mut impl Queue,
        product: Product,
        index: usize,
        tiles: View<u8>,
    ) -> Result<(), Error> {
        let block = self.weights.blocks[index].clone();
        let loaded = |like: &DeviceTensor| DeviceTensor { bytes: tiles.clone(), format: like.format };
        match product {
            Product::Qkv => self.qkv(queue, index, &PackedBlock { qkv: tiles, ..block }),
            Product::O => self.o(queue, index, &loaded(&block.o)),
            Product::GateUp => {
                self.gate_up(queue, index, &PackedBlock { gate_up: loaded(&block.gate_up), ..block })
            }
            Product::Down => self.down(queue, index, &PackedBlock { down: loaded(&block.down), ..block }),
            Product::Head => self.head(queue, &loaded(&self.weights.head)),
        }
    }

    /// The tiles of a product of a layer.
    pub(crate) fn tiles(&self, product: Product, index: usize) -> &View<u8> {
        let block = &self.weights.blocks[index];
        match product {
            Product::Qkv => &block.qkv,
            Product::O => &block.o.bytes,
            Product::GateUp => &block.gate_up.bytes,
            Product::Down => &block.down.bytes,
            Product::Head => &self.weights.head.bytes,
        }
    }

    /// The formats of a product, without duplicates: `Q4_K + Q6_K`.
    pub(crate) fn formats(&self, product: Product, index: usize) -> String {
        let block = &self.weights.blocks[index];
        let mut formats = match product {
            Product::Qkv => block.formats.to_vec(),
            Product::O => vec![block.o.format],
            Product::GateUp => vec![block.gate_up.format],
            Product::Down => vec![block.down.format],
            Product::Head => vec![self.weights.head.format],
        };
        formats.dedup();
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(" + ")
    }

    /// The name of the kernel of a product of a layer.
    pub(crate) fn kernel(&self, product: Product, index: usize) -> &str {
        let (block, pipeline) = (&self.weights.blocks[index], self.pipeline);
        let project = |kernel| pipeline.project[&kernel].function();
        let function = match product {
            Product::Qkv => pipeline.qkv[&block.formats].function(),
            Product::O => project(resolved(pipeline.plan.o(block.o.format)).0),
            Product::GateUp => pipeline.gate_up[&block.gate_up.format].function(),
            Product::Down => project(resolved(pipeline.plan.down(block.gate_up.format, block.down.format)).0),
            Product::Head => pipeline.head.function(),
        };
        function.name()
    }

    /// The name of the kernel of attention.
    pub(crate) fn attention_kernel(&self) -> &str {
        self.pipeline.attention.function().name()
    }

    /// Bytes of keys and values that one layer's attention reads over this many positions, in f16.
    pub(crate) fn kv_bytes(&self, attended: u32) -> u64 {
        2 * 2 * u64::from(self.pipeline.plan.config.kv_len()) * u64::from(attended)
    }

    fn embed(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let (b, v, plan) = (self.buffers, self.vectors(), &self.pipeline.plan);
        let c = &plan.config;
        let args = EmbedTokenArgs {
            state: v.state,
            table: self.weights.embed.bytes.clone(),
            freq: b.freq.view(),
            y: v.x,
            angles: self.workspace.angles.view(),
            n: c.hidden,
            vocab: c.vocab,
            rope_dim: c.rope_dim,
            blocks: plan.blocks,
            shared: plan.shared,
        };
        match &self.pipeline.embed {
            EmbedKernel::Tiles(kernel) => queue.launch(kernel, args),
            EmbedKernel::Rows(kernel) => queue.launch(kernel, args),
        }
    }

    fn qkv(&self, queue: &mut impl Queue, index: usize, w: &PackedBlock) -> Result<(), Error> {
        let (b, v, plan) = (self.buffers, self.vectors(), &self.pipeline.plan);
        let c = &plan.config;
        let (kernel, layout) = resolved(plan.qkv(w.formats));
        let q = if w.qk_norm.is_some() { self.workspace.raw.view() } else { v.q };
        self.sub_batches(kernel.plan.batch).try_for_each(|tokens| {
            let (progress, sequence) = self.progress(layout.blocks);
            let args = QkvArgs {
                w: w.qkv.clone(),
                x: tokens.of(&v.x),
                gamma: w.attn_norm.clone(),
                // Without a bias it is not read, but the launch needs a valid buffer.
                bias: w.bias.clone().unwrap_or(w.attn_norm.clone()),
                state: tokens.of(&v.state),
                angles: tokens.of(&self.workspace.angles),
                q: tokens.of(&q),
                k_cache: b.k_cache[index].view(),
                v_cache: b.v_cache[index].view(),
                heads: c.heads,
                kv_heads: c.kv_heads,
                head_dim: c.head_dim,
                ctx: b.ctx,
                n: c.hidden,
                epsilon: c.epsilon,
                blocks: layout.blocks,
                parts: layout.max_row_blocks,
                stages: layout.stages,
                shared: layout.shared,
                asked: progress,
                turn: sequence,
                stamps: self.workspace.timestamps(NODES * index),
            };
            queue.launch(&self.pipeline.qkv[&w.formats], args)
        })
    }

    /// Head norm, rotary embedding and append to the cache, for models with head norms.
    fn head_norm(&self, queue: &mut impl Queue, index: usize, w: &PackedBlock) -> Result<(), Error> {
        let (Some(kernel), Some(gamma)) = (&self.pipeline.head_norm, &w.qk_norm) else {
            return Ok(());
        };
        let (b, v, plan) = (self.buffers, self.vectors(), &self.pipeline.plan);
        let c = &plan.config;
        let args = HeadNormArgs {
            x: self.workspace.raw.view(),
            gamma: gamma.clone(),
            state: v.state,
            angles: self.workspace.angles.view(),
            q: v.q,
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ctx: b.ctx,
            epsilon: c.epsilon,
            blocks: plan.blocks,
            shared: plan.attention_shared,
        };
        queue.launch(kernel, args)
    }

    pub(crate) fn attention(&self, queue: &mut impl Queue, index: usize) -> Result<(), Error> {
        let (b, v, plan, splits) = (self.buffers, self.vectors(), &self.pipeline.plan, self.workspace.splits);
        let c = &plan.config;
        let args = PipelinedAttentionArgs {
            state: v.state,
            q: v.q,
            k_cache: b.k_cache[index].view(),
            v_cache: b.v_cache[index].view(),
            y: self.workspace.heads.values.view(),
            y_scale: self.workspace.heads.scales.view(),
            part: self.workspace.attention_partials.view(),
            ticket: self.workspace.attention_ticket.view(),
            heads: c.heads,
            kv_heads: c.kv_heads,
            ctx: b.ctx,
            splits,
            scale: 1.0 / (c.head_dim as f32).sqrt(),
            blocks: plan.attention_blocks(splits),
            shared: plan.attention_shared,
            stamps: self.workspace.timestamps(NODES * index + 1),
        };
        queue.launch(&self.pipeline.attention, args)
    }

    fn o(&self, queue: &mut impl Queue, index: usize, w: &DeviceTensor) -> Result<(), Error> {
        let product = resolved(self.pipeline.plan.o(w.format));
        self.project(queue, NODES * index + 2, w, &self.workspace.heads, product)
    }

    fn down(&self, queue: &mut impl Queue, index: usize, w: &PackedBlock) -> Result<(), Error> {
        let product = resolved(self.pipeline.plan.down(w.gate_up.format, w.down.format));
        self.project(queue, NODES * index + 4, &w.down, &self.workspace.inner, product)
    }

    /// Adds `W x` to the residual stream.
    fn project(
        &self,
        queue: &mut impl Queue,
        node: usize,
        w: &DeviceTensor,
        x: &BlockFloatBuffer,
        (kernel, layout): (Project, Layout),
    ) -> Result<(), Error> {
        let (y, batch) = (self.vectors().x, self.pipeline.plan.batch);
        self.sub_batches(kernel.plan.batch).try_for_each(|tokens| {
            let (progress, sequence) = self.progress(layout.blocks);
            let args = ProjectArgs {
                w: w.bytes.clone(),
                x: tokens.of(&x.values),
                x_scale: tokens.of(&x.scales),
                rows: y.len() as u32 / batch,
                n: x.values.len() as u32 / batch,
                y: tokens.of(&y),
                blocks: layout.blocks,
                parts: layout.max_row_blocks,
                stages: layout.stages,
                shared: layout.shared,
                asked: progress,
                turn: sequence,
                stamps: self.workspace.timestamps(node),
            };
            queue.launch(&self.pipeline.project[&kernel], args)
        })
    }

    fn gate_up(&self, queue: &mut impl Queue, index: usize, w: &PackedBlock) -> Result<(), Error> {
        let (v, plan) = (self.vectors(), &self.pipeline.plan);
        let (kernel, layout) = resolved(plan.gate_up(w.gate_up.format));
        self.sub_batches(kernel.plan.batch).try_for_each(|tokens| {
            let (progress, sequence) = self.progress(layout.blocks);
            let args = GateUpArgs {
                w: w.gate_up.bytes.clone(),
                x: tokens.of(&v.x),
                gamma: w.ffn_norm.clone(),
                y: tokens.of(&self.workspace.inner.values),
                y_scale: tokens.of(&self.workspace.inner.scales),
                rows: plan.config.feed_forward,
                n: plan.config.hidden,
                epsilon: plan.config.epsilon,
                blocks: layout.blocks,
                parts: layout.max_row_blocks,
                stages: layout.stages,
                shared: layout.shared,
                asked: progress,
                turn: sequence,
                stamps: self.workspace.timestamps(NODES * index + 3),
            };
            queue.launch(&self.pipeline.gate_up[&w.gate_up.format], args)
        })
    }

    /// The logits and the argmax token; for a batch of one also the next position.
    fn head(&self, queue: &mut impl Queue, head: &DeviceTensor) -> Result<(), Error> {
        let (b, v, plan) = (self.buffers, self.vectors(), &self.pipeline.plan);
        let (kernel, layout) = resolved(plan.head(head.format));
        let blocks = (kernel.plan.batch * layout.blocks) as usize;
        self.sub_batches(kernel.plan.batch).try_for_each(|tokens| {
            let (progress, sequence) = self.progress(layout.blocks);
            let args = LmHeadArgs {
                w: head.bytes.clone(),
                x: tokens.of(&v.x),
                gamma: self.weights.norm.clone(),
                logits: tokens.of(&v.logits),
                value: self.workspace.value.view_range(0..blocks),
                index: self.workspace.index.view_range(0..blocks),
                ticket: self.workspace.head_ticket.view(),
                prompt: b.prompt.view(),
                stop: b.stop.view(),
                state: tokens.of(&v.state),
                out: b.out.view(),
                rows: plan.config.vocab,
                n: plan.config.hidden,
                epsilon: plan.config.epsilon,
                stops: b.stop_tokens.len() as u32,
                ctx: b.ctx,
                blocks: layout.blocks,
                parts: layout.max_row_blocks,
                stages: layout.stages,
                shared: layout.shared,
                asked: progress,
                turn: sequence,
                stamps: self.workspace.timestamps(NODES * self.weights.blocks.len()),
            };
            queue.launch(&self.pipeline.head, args)
        })
    }

    fn advance(&self, queue: &mut impl Queue) -> Result<(), Error> {
        let b = self.buffers;
        let args = AdvanceArgs {
            token: b.token.view(),
            prompt: b.prompt.view(),
            stop: b.stop.view(),
            state: b.state.view(),
            out: b.out.view(),
            stops: b.stop_tokens.len() as u32,
            ctx: b.ctx,
        };
        queue.launch(&self.pipeline.advance, args)
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
