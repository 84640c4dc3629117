//! The pipeline's workspace: device buffers that only the pipeline uses.

use warpwright_driver::{Buffer, Context, Error, View};
use warpwright_kernels::pipeline::{block_float, plan};
use warpwright_kernels::state;

use super::resolved::ResolvedStep;
use crate::buffers::Buffers;

/// Kernels of a layer that may record timestamps.
pub(super) const NODES: usize = 5;

/// The workspace of a step. Buffers "per token" have one row for each token of the batch.
pub(crate) struct Workspace {
    /// `[ropes, head_dim / 2, 2]`, per token: cosine and sine at the position
    pub(super) angles: Buffer<f32>,
    /// `[heads + 2 * kv_heads, head_dim]`, per token: queries, keys and values before the head norm
    pub(super) raw: Buffer<f32>,
    /// `[hidden]`, per token: what a projection gives, if it is normed before it is added
    pub(super) projected: Option<Buffer<f32>>,
    /// `[max_blocks]`, per token: the largest logit of each block of the LM head, and its token
    pub(super) value: Buffer<f32>,
    pub(super) index: Buffer<u32>,
    /// `[1]`: finished blocks of the LM head
    pub(super) head_ticket: Buffer<u32>,
    /// `[heads, head_dim]`, per token: attention's output, the input of the output projection
    pub(super) heads: BlockFloatBuffer,
    /// `[feed_forward]`, per token: the output of gate and up, the input of the down projection
    pub(super) inner: BlockFloatBuffer,
    /// `[heads, splits, partial_len]`, per token: partial results of attention's splits
    pub(super) attention_partials: Buffer<f32>,
    /// `[tickets]`, per token: finished splits of attention
    pub(super) attention_ticket: Buffer<u32>,
    /// `[max_blocks]`: progress flags, the sequence number of the latest product that has issued its last load
    pub(super) progress: Buffer<u32>,
    /// Splits of attention.
    pub(super) splits: u32,
    /// `[max_ranks]`, per token: what a product's adapter has made of the product's input
    pub(super) lora_u: Option<Buffer<f32>>,
    /// For batches larger than 1; otherwise the buffers that both paths share.
    batch: Option<BatchVectors>,
    /// `[nodes, node_timestamps]` if the kernels profile, otherwise unused: see `warpwright_kernels::pipeline::plan`.
    timestamps: Buffer<u64>,
    /// Timestamps per kernel; 0 if none profile.
    node_timestamps: usize,
}

/// Block floating point activations: see `warpwright_kernels::pipeline::block_float`.
pub(super) struct BlockFloatBuffer {
    pub(super) values: Buffer<u16>,
    pub(super) scales: Buffer<f32>,
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
pub(super) struct BatchVectors {
    pub(super) state: View<u32>,
    /// `[hidden]`
    pub(super) x: View<f32>,
    /// `[heads, head_dim]`
    pub(super) q: View<f32>,
    /// `[vocab]`
    pub(super) logits: View<f32>,
}

impl BatchVectors {
    fn new(context: &Context, step: &ResolvedStep) -> Result<BatchVectors, Error> {
        let c = &step.config;
        let floats = |name: &str, len: u32| -> Result<View<f32>, Error> {
            let len = step.batch as usize * len as usize;
            Ok(Buffer::uninit(context, len)?
                .labelled(&format!("batch.{name}"))
                .view())
        };
        let state =
            Buffer::zeroed(context, step.batch as usize * state::LEN)?.labelled("batch.state");
        Ok(BatchVectors {
            state: state.view(),
            x: floats("x", c.hidden)?,
            q: floats("q", c.q_len())?,
            logits: floats("logits", c.vocab)?,
        })
    }

    fn of(b: &Buffers) -> BatchVectors {
        BatchVectors {
            state: b.state.view(),
            x: b.x.view(),
            q: b.q.view(),
            logits: b.logits.view(),
        }
    }
}

impl Workspace {
    /// A workspace for contexts of `ctx` positions.
    pub(crate) fn new(
        context: &Context,
        step: &ResolvedStep,
        ctx: u32,
    ) -> Result<Workspace, Error> {
        let (blocks, c, attention) = (step.max_blocks() as usize, &step.config, &step.attention);
        let floats = |len: u32| Buffer::uninit(context, step.batch as usize * len as usize);
        let projected = step.add_normed.map(|_| floats(c.hidden));
        let lora_u = step.lora.map(|lora| floats(lora.max_ranks)).transpose()?;
        let (splits, nodes) = (step.splits(ctx), NODES * step.layers.len() + 1);
        let tickets = (step.batch * attention.tickets(c.kv_heads)) as usize;
        let node_timestamps = if step.profile {
            (step.attention_blocks(splits) * plan::TIMESTAMPS) as usize
        } else {
            0
        };
        Ok(Workspace {
            angles: floats(c.ropes().len() as u32 * c.head_dim)?.labelled("angles"),
            raw: floats(c.q_len() + 2 * c.kv_len())?.labelled("raw"),
            projected: projected
                .transpose()?
                .map(|buffer| buffer.labelled("projected")),
            value: floats(step.max_blocks())?.labelled("head.value"),
            index: Buffer::uninit(context, step.batch as usize * blocks)?.labelled("head.index"),
            head_ticket: Buffer::zeroed(context, 1)?.labelled("head.ticket"),
            heads: BlockFloatBuffer::new(context, "heads", step.batch * c.q_len())?,
            inner: BlockFloatBuffer::new(context, "inner", step.batch * c.feed_forward)?,
            attention_partials: floats(c.heads * splits * attention.partial_len())?
                .labelled("attention.partials"),
            attention_ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            progress: Buffer::zeroed(context, blocks)?.labelled("progress"),
            splits,
            lora_u: lora_u.map(|buffer| buffer.labelled("lora.u")),
            batch: (step.batch > 1)
                .then(|| BatchVectors::new(context, step))
                .transpose()?,
            timestamps: Buffer::zeroed(context, (nodes * node_timestamps).max(1))?
                .labelled("timestamps"),
            node_timestamps,
        })
    }

    /// The per-token buffers; those of a batch of one are in `buffers`.
    pub(super) fn vectors(&self, buffers: &Buffers) -> BatchVectors {
        self.batch
            .clone()
            .unwrap_or_else(|| BatchVectors::of(buffers))
    }

    /// The timestamp buffer of a kernel.
    pub(super) fn timestamps(&self, node: usize) -> View<u64> {
        match self.node_timestamps {
            0 => self.timestamps.view(),
            len => self.timestamps.view_range(node * len..(node + 1) * len),
        }
    }

    /// The timestamps of the latest step: per kernel, per block, by [`Timestamp`](plan::Timestamp).
    pub(crate) fn times(&self) -> Result<Vec<Vec<[u64; 8]>>, Error> {
        let timestamps = self.timestamps.to_vec()?;
        let blocks = |node: &[u64]| node.as_chunks().0.to_vec();
        Ok(timestamps
            .chunks(self.node_timestamps)
            .map(blocks)
            .collect())
    }
}
