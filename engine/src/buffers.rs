//! The device memory of a decoder except its weights.

use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::{Buffer, Pinned, View, f16};
use warpwright_driver::stream::Queue;
use warpwright_kernels::pipeline::DRAFTS_HEAD;
use warpwright_kernels::sample::SampleAdjust;
use warpwright_kernels::shared::{cache, state};
use warpwright_kernels::simple::rope::revolutions;
use warpwright_model::layer::{Attention, Mixer};
use warpwright_model::{Config, Layer, Outline};

use crate::Error;
use crate::decode::options::{Options, verified_at_once};
use crate::sampling::allowed::AllowedTokens;
use crate::sampling::device::{DeviceSampler, SampledRows, SamplerScratch, SamplerSize};
use crate::sampling::options::TokenChoice;
use crate::signed;
use crate::simple::experts::expert_bytes;

/// The state, the caches and the activations of a decoder. Both the simple kernels and the pipeline
/// use them.
pub(crate) struct DecoderBuffers {
    /// The number of positions.
    pub(crate) ctx: u32,
    /// The number of splits of attention.
    pub(crate) splits: u32,
    /// The tokens that end a text.
    pub(crate) stop_tokens: Vec<u32>,
    /// The state of the next step, `[8]`: see `warpwright_kernels::shared::state`.
    pub(crate) state: Buffer<u32>,
    /// The prompt, `[ctx]`. If tokens are sampled, it also has the chosen tokens at their
    /// positions.
    pub(crate) prompt: Buffer<u32>,
    /// The tokens that end a text, `[stops]`.
    pub(crate) stop: Buffer<u32>,
    /// The token after each position, `[ctx]`, in memory that the host reads.
    pub(crate) out: Pinned<u32>,
    /// The revolutions per position of each rotated pair, `[ropes, rope_dim / 2, 2]`. Each is the
    /// sum of two values.
    pub(crate) freq: Buffer<f32>,
    /// The keys, one buffer per layer, `[ceil(ctx / 64), kv_heads, 64, head_dim]`: see
    /// `warpwright_kernels::shared::cache`.
    pub(crate) k_cache: Vec<Buffer<f16>>,
    /// The values, with the shape of `k_cache`.
    pub(crate) v_cache: Vec<Buffer<f16>>,
    /// The residual stream, `[hidden]`.
    pub(crate) x: Buffer<f32>,
    /// The normed residual stream, `[hidden]`.
    pub(crate) normed: Buffer<f32>,
    /// The queries, `[heads, head_dim]`.
    pub(crate) q: Buffer<f32>,
    /// The new keys, `[kv_heads, head_dim]`.
    pub(crate) k: Buffer<f32>,
    /// The new values, `[kv_heads, head_dim]`.
    pub(crate) v: Buffer<f32>,
    /// The partial results of attention, `[heads, splits, head_dim + 2]`.
    pub(crate) partials: Buffer<f32>,
    /// The output of attention, `[heads, head_dim]`.
    pub(crate) heads: Buffer<f32>,
    /// The output of the gate projection, `[feed_forward]`.
    pub(crate) gate: Buffer<f32>,
    /// The output of the up projection, `[feed_forward]`.
    pub(crate) up: Buffer<f32>,
    /// The input of the down projection, `[feed_forward]`.
    pub(crate) inner: Buffer<f32>,
    /// The logits, `[vocab]`.
    pub(crate) logits: Buffer<f32>,
    /// The largest logit of each block of the argmax, `[blocks]`.
    pub(crate) value: Buffer<f32>,
    /// The token of the largest logit of each block, `[blocks]`.
    pub(crate) index: Buffer<u32>,
    /// The chosen token, `[1]`.
    pub(crate) token: Buffer<u32>,
    /// The sampler, if tokens are sampled.
    pub(crate) sampler: Option<DeviceSampler>,
    /// The allowed tokens, for constrained decoding.
    pub(crate) allowed: Option<AllowedTokens>,
    /// The row of the state, `[1]`, which is 0.
    rows: Buffer<u32>,
    /// The buffers that verify drafts.
    pub(crate) drafts: Option<DraftBuffers>,
}

/// The buffers that verify drafts.
pub(crate) struct DraftBuffers {
    /// The position and the tokens to verify, `[2 + 8]`: see
    /// `warpwright_kernels::pipeline::PlaceDraftsArgs`.
    pub(crate) given: Buffer<u32>,
    /// The maximum number of drafts per step.
    pub(crate) most: u32,
    /// The rows of the states, `[8]`, which are 0 to 7.
    rows: Buffer<u32>,
    /// The first sampling kernel and the sampler's scratch memory, if tokens are sampled. The
    /// kernel does not overlap with its predecessors, because one of them writes the states that it
    /// reads.
    sampling: Option<(Kernel<SampleAdjust>, SamplerScratch)>,
}

/// The number of positions per split of attention.
const SPLIT: u32 = 32;
/// The maximum number of splits, for long contexts.
const MAX_SPLITS: u32 = 64;

/// The number of logits per block of the first argmax kernel.
const ARGMAX_SHARE: u32 = 2048;

/// Returns the revolutions per position of each rotated pair of a head, for each kind of rotation
/// in the model.
fn frequencies(outline: &Outline, ctx: u32) -> Vec<f32> {
    let factors = outline.rope_factors.as_ref().map(|factors| factors.of(ctx));
    let ropes = outline.config.ropes.iter();
    ropes
        .flat_map(|rope| rope.revolutions(factors))
        .flat_map(revolutions)
        .collect()
}

impl DecoderBuffers {
    /// Allocates the buffers. If `overlap` is true, the sampling kernels may start before their
    /// predecessors end.
    pub(crate) fn new(
        context: &Context,
        outline: &Outline,
        options: Options,
        overlap: bool,
    ) -> Result<DecoderBuffers, Error> {
        let c = &outline.config;
        let ctx = options.ctx;
        let choice = options.choice;
        let splits = splits(ctx);
        let floats =
            |name: &str, len: u32| Buffer::uninit(context, len as usize).map(|b| b.labelled(name));
        let caches = |name: &str| -> Result<Vec<Buffer<f16>>, Error> {
            let layers = c.layers.iter().enumerate();
            let cache = |(i, layer): (usize, &Layer)| {
                let len = match &layer.mixer {
                    Mixer::Attention(attention) => cache_len(attention, ctx),
                };
                Ok(Buffer::uninit(context, len)?.labelled(&format!("{name}.{i}")))
            };
            layers.map(cache).collect()
        };
        let freq = frequencies(outline, ctx);
        let argmax_blocks = c.vocab.div_ceil(ARGMAX_SHARE) as usize;

        // An empty buffer has no address. The id `u32::MAX` is in no vocabulary, so it never ends a
        // text.
        let stop = if outline.stop.is_empty() {
            &[u32::MAX][..]
        } else {
            &outline.stop
        };
        Ok(DecoderBuffers {
            ctx,
            splits,
            stop_tokens: stop.to_vec(),
            state: Buffer::zeroed(context, state::LEN)?.labelled("state"),
            prompt: Buffer::zeroed(context, ctx as usize)?.labelled("prompt"),
            stop: Buffer::from_slice(context, stop)?.labelled("stop"),
            out: Pinned::zeroed(context, ctx as usize)?.labelled("out"),
            freq: Buffer::from_slice(context, &freq)?.labelled("freq"),
            k_cache: caches("k_cache")?,
            v_cache: caches("v_cache")?,
            x: floats("x", c.hidden)?,
            normed: floats("normed", c.hidden)?,
            q: floats("q", c.q_len())?,
            k: floats("k", c.kv_len())?,
            v: floats("v", c.kv_len())?,
            partials: floats("partials", splits * c.most_of_attention(simple_partial_len))?,
            heads: floats("heads", c.q_len())?,
            gate: floats("gate", c.feed_forward())?,
            up: floats("up", c.feed_forward())?,
            inner: floats("inner", c.feed_forward())?,
            logits: floats("logits", c.vocab)?,
            value: Buffer::uninit(context, argmax_blocks)?.labelled("argmax.value"),
            index: Buffer::uninit(context, argmax_blocks)?.labelled("argmax.index"),
            token: Buffer::zeroed(context, 1)?.labelled("token"),
            sampler: sampler(context, c.vocab, ctx, choice, overlap)?,
            allowed: allowed(context, c.vocab, choice, overlap)?,
            rows: Buffer::zeroed(context, 1)?.labelled("rows"),
            drafts: DraftBuffers::new(context, c.vocab, options)?,
        })
    }

    /// Queues the sampling of a token and the update of the state, if tokens are sampled. Returns
    /// false if they are not.
    pub(crate) fn sample(&self, queue: &mut impl Queue) -> Result<bool, warpwright_driver::Error> {
        let Some(sampler) = &self.sampler else {
            return Ok(false);
        };
        sampler.run(queue, self.row())?;
        Ok(true)
    }

    /// Queues the sampling of a token among the allowed ones, and the update of the state.
    pub(crate) fn choose(&self, queue: &mut impl Queue) -> Result<(), warpwright_driver::Error> {
        if let (Some(allowed), Some(sampler)) = (&self.allowed, &self.sampler) {
            allowed.copy(queue, 0)?;
            allowed.forbid(queue, self.row(), sampler.rows(self.row()))?;
        }
        self.sample(queue).map(drop)
    }

    /// Returns the single row of logits, with its state.
    fn row(&self) -> SampledRows<'_> {
        let DecoderBuffers {
            logits,
            rows,
            state,
            prompt,
            stop,
            out,
            ..
        } = self;
        SampledRows {
            logits,
            rows,
            count: 1,
            state,
            tokens: prompt,
            stop,
            out,
        }
    }

    /// Queues the sampling of the token after each draft, if tokens are sampled.
    pub(crate) fn sample_drafts(
        &self,
        queue: &mut impl Queue,
        logits: &View<f32>,
        state: &View<u32>,
    ) -> Result<(), warpwright_driver::Error> {
        let DecoderBuffers {
            sampler: Some(sampler),
            drafts: Some(drafts),
            prompt,
            stop,
            out,
            ..
        } = self
        else {
            return Ok(());
        };

        let Some((adjust, scratch)) = &drafts.sampling else {
            return Ok(());
        };

        let count = (state.len() / state::LEN) as u32;
        let rows = SampledRows {
            logits,
            rows: &drafts.rows,
            count,
            state,
            tokens: prompt,
            stop,
            out,
        };
        sampler.run_in(queue, adjust, &scratch.of_rows(count), rows)
    }
}

impl DraftBuffers {
    /// Allocates the buffers, or returns `None` if the options request no drafts.
    fn new(context: &Context, vocab: u32, options: Options) -> Result<Option<DraftBuffers>, Error> {
        if options.drafts() == 0 {
            return Ok(None);
        }

        let sampling = match options.choice {
            // Constrained decoding verifies no drafts.
            TokenChoice::Greedy | TokenChoice::Constrained { .. } => None,
            TokenChoice::Sampled { .. } => Some((
                signed::load(context, SampleAdjust { overlap: false })?,
                SamplerScratch::new(context, vocab, MAX_BATCH)?,
            )),
        };
        let rows: Vec<u32> = (0..MAX_BATCH).collect();
        Ok(Some(DraftBuffers {
            given: Buffer::zeroed(context, (DRAFTS_HEAD + MAX_BATCH) as usize)?.labelled("drafts"),
            most: options.drafts(),
            rows: Buffer::from_slice(context, &rows)?.labelled("draft.rows"),
            sampling,
        }))
    }
}

fn sampler(
    context: &Context,
    vocab: u32,
    ctx: u32,
    choice: TokenChoice,
    overlap: bool,
) -> Result<Option<DeviceSampler>, Error> {
    let Some(logprobs) = choice.logprobs() else {
        return Ok(None);
    };
    Ok(Some(DeviceSampler::new(
        context,
        SamplerSize {
            vocab,
            capacity: 1,
            sequences: 1,
            ctx,
            logprobs,
            overlap,
        },
    )?))
}

fn allowed(
    context: &Context,
    vocab: u32,
    choice: TokenChoice,
    overlap: bool,
) -> Result<Option<AllowedTokens>, Error> {
    let TokenChoice::Constrained { .. } = choice else {
        return Ok(None);
    };
    Ok(Some(AllowedTokens::new(context, vocab, 1, overlap)?))
}

fn splits(ctx: u32) -> u32 {
    ctx.div_ceil(SPLIT).min(MAX_SPLITS)
}

/// Returns the number of key elements of a layer, rounded up to whole pages.
fn cache_len(attention: &Attention, ctx: u32) -> usize {
    attention.kv_len() as usize * cache_positions(ctx) as usize
}

/// Returns the number of positions of a cache, in whole pages.
fn cache_positions(ctx: u32) -> u64 {
    u64::from(cache::pages(ctx)) * u64::from(cache::PAGE)
}

/// Returns the number of partial results of a split of attention in the simple kernels.
fn simple_partial_len(attention: &Attention) -> u32 {
    attention.heads * (attention.head_dim + 2)
}

/// Returns the bytes of the key and value caches.
pub(crate) fn cache_bytes(c: &Config, ctx: u32) -> u64 {
    let layers = c.layers.iter();
    let bytes: u64 = layers.map(Layer::kv_bytes_per_position).sum();
    bytes * cache_positions(ctx)
}

/// Returns the bytes of everything else, except a few kilobytes.
pub(crate) fn work_bytes(c: &Config, ctx: u32) -> u64 {
    // Partial results of attention. A pipeline with batch 1 and one with a larger batch together
    // use up to three times as much.
    let part = 4 * u64::from(c.most_of_attention(simple_partial_len)) * u64::from(splits(ctx));
    let rest = [2 * c.hidden, 2 * c.q_len(), 2 * c.kv_len(), c.vocab, ctx];
    let ffn = 3 * u64::from(c.feed_forward());
    4 * (part + ffn + rest.into_iter().map(u64::from).sum::<u64>())
        + batch_bytes(c)
        + expert_bytes(c)
}

/// The largest batch of a pipeline.
const MAX_BATCH: u32 = 8;

/// Returns the bytes of the additional buffers of a batched pipeline.
fn batch_bytes(c: &Config) -> u64 {
    // The output of a projection before it is normed, in models that norm it.
    let raw = if c.has_norms_after() { c.hidden } else { 0 };
    let floats = [
        c.hidden + raw,
        2 * c.q_len(),
        c.q_len() + 2 * c.kv_len(),
        c.feed_forward(),
        c.vocab,
    ];
    4 * u64::from(MAX_BATCH) * floats.into_iter().map(u64::from).sum::<u64>()
}

/// Returns the bytes that verifying the requested number of drafts needs.
pub(crate) fn draft_bytes(c: &Config, options: Options) -> u64 {
    let tokens: u32 = verified_at_once(options.drafts()).sum();

    // Each token has its own splits of attention.
    let partials = 6 * u64::from(MAX_SPLITS) * u64::from(c.q_len());
    let steps = u64::from(tokens) * (batch_bytes(c) / u64::from(MAX_BATCH) + partials);
    let size = |logprobs| SamplerSize {
        vocab: c.vocab,
        capacity: MAX_BATCH,
        sequences: 1,
        ctx: options.ctx,
        logprobs,
        overlap: false,
    };
    match options.choice {
        TokenChoice::Sampled { logprobs } if tokens > 0 => steps + size(logprobs).bytes(),
        _ => steps,
    }
}
