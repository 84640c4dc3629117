//! The device buffers that only the pipeline uses.

use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{Layout, block_float, plan};
use warpwright_kernels::shared::state;
use warpwright_model::layer::{Attention, Experts};

use super::cache_layout::CacheLayout;
use super::resolved::{ResolvedLayer, ResolvedStep};
use crate::buffers::DecoderBuffers;

/// The number of kernels per layer that may record timestamps.
pub(super) const NODES: usize = 5;

/// The workspace of a step. A buffer "per token" has one row for each token of the batch.
pub(crate) struct PipelineWorkspace {
    /// The cosine and sine at the position, per token: `[ropes, head_dim / 2, 2]`.
    pub(super) angles: Buffer<f32>,
    /// The cosine 1 and the sine 0 of layers that are not rotated, per token: `[head_dim / 2, 2]`.
    /// Only models have it in which the QKV kernel would read the angles of a single rotation.
    pub(super) still: Option<Buffer<f32>>,
    /// The queries, keys and values before the head norm, per token: `[heads + 2 * kv_heads,
    /// head_dim]`.
    pub(super) raw: Buffer<f32>,
    /// The output of a projection that is normed before it is added, per token: `[hidden]`.
    pub(super) projected: Option<Buffer<f32>>,
    /// The largest logit of each block of the LM head, per token: `[max_blocks]`.
    pub(super) value: Buffer<f32>,
    /// The token of the largest logit of each block, per token: `[max_blocks]`.
    pub(super) index: Buffer<u32>,
    /// The number of finished blocks of the LM head, `[1]`.
    pub(super) head_ticket: Buffer<u32>,
    /// The output of attention, which is the input of the output projection, per token: `[heads,
    /// head_dim]`.
    pub(super) heads: BlockFloatBuffer,
    /// The output of gate and up, which is the input of the down projection, per token:
    /// `[inner_len]`.
    pub(super) inner: BlockFloatBuffer,
    /// The buffers of mixtures of experts, in models that have them.
    pub(super) experts: Option<ExpertBuffers>,
    /// The partial results of the splits of attention, per token: `[heads, splits, partial_len]`.
    pub(super) attention_partials: Buffer<f32>,
    /// The number of finished splits of attention, per token: `[tickets]`.
    pub(super) attention_ticket: Buffer<u32>,
    /// The progress flags, `[max_blocks]`: the sequence number of the latest GEMV whose block has
    /// issued its last load.
    pub(super) progress: Buffer<u32>,
    /// The number of splits of attention.
    pub(super) splits: u32,
    /// The intermediate result `u` of the current GEMV's adapter, per token: `[max_ranks]`.
    pub(super) lora_u: Option<Buffer<f32>>,
    /// The vectors of batches larger than 1 of a decoder. A batch of one uses the decoder's
    /// buffers. Steps over a paged cache are given their vectors.
    batch: Option<BatchVectors>,
    /// The timestamps, `[nodes, node_timestamps]`, if the kernels profile: see
    /// `warpwright_kernels::pipeline::plan`. Otherwise unused.
    timestamps: Buffer<u64>,
    /// The number of timestamps per kernel, or 0 if the kernels do not profile.
    node_timestamps: usize,
}

/// Block floating point activations: see `warpwright_kernels::pipeline::block_float`.
pub(super) struct BlockFloatBuffer {
    pub(super) values: Buffer<u16>,
    pub(super) scales: Buffer<f32>,
}

impl BlockFloatBuffer {
    /// Allocates activations that are zero, for rows with padding that no kernel writes.
    fn zeroed(context: &Context, name: &str, len: u32) -> Result<BlockFloatBuffer, Error> {
        let (values, scales) = block_float::encode(&vec![0.0; len as usize]);
        Ok(BlockFloatBuffer {
            values: Buffer::from_slice(context, &values)?.labelled(name),
            scales: Buffer::from_slice(context, &scales)?.labelled(&format!("{name}.scales")),
        })
    }

    fn new(context: &Context, name: &str, len: u32) -> Result<BlockFloatBuffer, Error> {
        let scales = (len / block_float::BFP_BLOCK) as usize;
        Ok(BlockFloatBuffer {
            values: Buffer::uninit(context, len as usize)?.labelled(name),
            scales: Buffer::uninit(context, scales)?.labelled(&format!("{name}.scales")),
        })
    }
}

/// Activations of a [`BlockFloatBuffer`].
pub(super) struct BlockFloatViews {
    pub(super) values: View<u16>,
    pub(super) scales: View<f32>,
}

impl BlockFloatBuffer {
    /// Returns the first `len` activations.
    pub(super) fn first(&self, len: u32) -> BlockFloatViews {
        let scales = (len / block_float::BFP_BLOCK) as usize;
        BlockFloatViews {
            values: self.values.view_range(0..len as usize),
            scales: self.scales.view_range(0..scales),
        }
    }
}

/// The buffers of mixtures of experts.
pub(super) struct ExpertBuffers {
    /// The logits of the router, `[experts]`.
    pub(super) logits: Buffer<f32>,
    /// The indices of the chosen experts, `[blocks, chosen]`: each block of a GEMV has its own.
    chosen: Buffer<u32>,
    /// The weighted sum of the chosen experts' biases of the down projections, `[hidden]`, in models
    /// whose experts have biases.
    pub(super) bias_sum: Option<Buffer<f32>>,
}

impl ExpertBuffers {
    /// Allocates the buffers of a step, if a layer of it has experts.
    fn new(context: &Context, step: &ResolvedStep) -> Result<Option<ExpertBuffers>, Error> {
        let Some(count) = step.config.experts().map(|experts| experts.count).max() else {
            return Ok(None);
        };
        let chosen = step.config.experts().map(|experts| experts.chosen).max();
        let indices = step.max_blocks() * chosen.unwrap_or(0);
        Ok(Some(ExpertBuffers {
            logits: Buffer::uninit(context, count as usize)?.labelled("experts.logits"),
            chosen: Buffer::uninit(context, indices as usize)?.labelled("experts.chosen"),
            bias_sum: if step.config.experts().any(|experts| experts.biases) {
                let sum = Buffer::uninit(context, step.config.hidden as usize)?;
                Some(sum.labelled("experts.bias_sum"))
            } else {
                None
            },
        }))
    }

    /// Returns the indices of the chosen experts for each block of a GEMV.
    pub(super) fn chosen(&self, layout: &Layout, experts: &Experts) -> View<u32> {
        let len = layout.blocks * experts.chosen;
        self.chosen.view_range(0..len as usize)
    }
}

/// The vectors of each token of the batch.
#[derive(Clone)]
pub(crate) struct BatchVectors {
    pub(crate) state: View<u32>,
    /// The residual stream, `[hidden]`.
    pub(crate) x: View<f32>,
    /// The queries, `[heads, head_dim]`.
    pub(crate) q: View<f32>,
    /// The logits, `[vocab]`.
    pub(crate) logits: View<f32>,
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

    /// Returns the vectors of a batch of one, which are the decoder's buffers.
    fn single(b: &DecoderBuffers) -> BatchVectors {
        BatchVectors {
            state: b.state.view(),
            x: b.x.view(),
            q: b.q.view(),
            logits: b.logits.view(),
        }
    }
}

/// Returns cosines and sines that rotate nothing.
fn still(context: &Context, len: u32) -> Result<Buffer<f32>, Error> {
    let angles: Vec<f32> = [1.0, 0.0].into_iter().cycle().take(len as usize).collect();
    Ok(Buffer::from_slice(context, &angles)?.labelled("still"))
}

impl PipelineWorkspace {
    /// Allocates the workspace of a step, for contexts of `ctx` positions.
    pub(crate) fn new(
        context: &Context,
        step: &ResolvedStep,
        ctx: u32,
    ) -> Result<PipelineWorkspace, Error> {
        let blocks = step.max_blocks() as usize;
        let c = &step.config;
        let attention = &step.attention;
        let floats = |len: u32| Buffer::uninit(context, step.batch as usize * len as usize);
        let projected = match step.add_normed {
            Some(_) => Some(floats(c.hidden)?.labelled("projected")),
            None => None,
        };
        let lora_u = step.lora.map(|lora| floats(lora.max_ranks)).transpose()?;
        let splits = step.splits(ctx);
        let nodes = NODES * step.layers.len() + 1;
        let tickets = (step.batch * attention.tickets(c.kv_heads())) as usize;

        // Attention has the most blocks of all kernels.
        let node_timestamps = if step.profile {
            (step.attention_blocks(splits) * plan::TIMESTAMPS) as usize
        } else {
            0
        };
        Ok(PipelineWorkspace {
            angles: floats(c.angles_len())?.labelled("angles"),
            still: match step.rotated {
                Some(_) => Some(still(context, step.batch * c.head_dim())?),
                None => None,
            },
            raw: floats(c.most_of_attention(Attention::qkv_len))?.labelled("raw"),
            projected,
            value: floats(step.max_blocks())?.labelled("head.value"),
            index: Buffer::uninit(context, step.batch as usize * blocks)?.labelled("head.index"),
            head_ticket: Buffer::zeroed(context, 1)?.labelled("head.ticket"),
            heads: if step.heads_len() > c.q_len() {
                BlockFloatBuffer::zeroed(context, "heads", step.batch * step.heads_len())?
            } else {
                BlockFloatBuffer::new(context, "heads", step.batch * c.q_len())?
            },
            inner: if step.layers.iter().any(ResolvedLayer::pads_inner) {
                BlockFloatBuffer::zeroed(context, "inner", step.batch * step.inner_len())?
            } else {
                BlockFloatBuffer::new(context, "inner", step.batch * step.inner_len())?
            },
            experts: ExpertBuffers::new(context, step)?,
            attention_partials: floats(c.heads() * splits * attention.partial_len())?
                .labelled("attention.partials"),
            attention_ticket: Buffer::zeroed(context, tickets)?.labelled("attention.ticket"),
            progress: Buffer::zeroed(context, blocks)?.labelled("progress"),
            splits,
            lora_u: lora_u.map(|buffer| buffer.labelled("lora.u")),
            batch: match (step.cache, step.batch) {
                (CacheLayout::Own, 2..) => Some(BatchVectors::new(context, step)?),
                (CacheLayout::Own | CacheLayout::Paged, _) => None,
            },
            timestamps: Buffer::zeroed(context, (nodes * node_timestamps).max(1))?
                .labelled("timestamps"),
            node_timestamps,
        })
    }

    /// Returns the cosines and sines that a step computes for each token, which are all of the buffer
    /// unless only one embedding rotates.
    pub(super) fn computed_angles(&self, step: &ResolvedStep) -> View<f32> {
        match step.rotated {
            None => self.angles.view(),
            Some(_) => {
                let len = step.batch * step.config.head_dim();
                self.angles.view_range(0..len as usize)
            }
        }
    }

    /// Returns the vectors of each token. Those of a batch of one are in `buffers`.
    pub(super) fn vectors(&self, buffers: &DecoderBuffers) -> BatchVectors {
        self.batch
            .clone()
            .unwrap_or_else(|| BatchVectors::single(buffers))
    }

    /// Returns the timestamp buffer of a kernel.
    pub(super) fn timestamps(&self, node: usize) -> View<u64> {
        match self.node_timestamps {
            0 => self.timestamps.view(),
            len => self.timestamps.view_range(node * len..(node + 1) * len),
        }
    }

    /// Returns the timestamps of the latest step: by kernel, by block, by
    /// [`Timestamp`](plan::Timestamp).
    pub(crate) fn times(&self) -> Result<Vec<Vec<[u64; 8]>>, Error> {
        let timestamps = self.timestamps.to_vec()?;
        let blocks = |node: &[u64]| node.as_chunks().0.to_vec();
        Ok(timestamps
            .chunks(self.node_timestamps)
            .map(blocks)
            .collect())
    }
}
