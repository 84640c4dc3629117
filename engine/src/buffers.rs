//! A decoder's memory on the device besides the weights.

use warpwright_driver::{Buffer, Context, Kernel, Pinned, Queue, View, f16};
use warpwright_kernels::pipeline::DRAFTS_HEAD;
use warpwright_kernels::sample::SampleAdjust;
use warpwright_kernels::simple::rope::revolutions;
use warpwright_kernels::{cache, state};

use crate::Error;
use crate::decode::options::{Options, verified_at_once};
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::sampling::allowed::Allowed;
use crate::sampling::device::{Room, Rows, Sampler, Scratch};
use crate::sampling::options::TokenChoice;
use crate::signed;

/// State and activations that both paths use.
pub(crate) struct Buffers {
    /// Positions.
    pub(crate) ctx: u32,
    /// Splits of attention.
    pub(crate) splits: u32,
    /// Tokens that end a text.
    pub(crate) stop_tokens: Vec<u32>,
    /// `[8]`: see `warpwright_kernels::state`
    pub(crate) state: Buffer<u32>,
    /// `[ctx]`
    pub(crate) prompt: Buffer<u32>,
    /// `[stops]`
    pub(crate) stop: Buffer<u32>,
    /// `[ctx]`: the token after each position, for the host to read
    pub(crate) out: Pinned<u32>,
    /// `[ropes, rope_dim / 2, 2]`: revolutions a position, each the sum of two
    pub(crate) freq: Buffer<f32>,
    /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`, one a layer: see `warpwright_kernels::cache`
    pub(crate) k_cache: Vec<Buffer<f16>>,
    /// As `k_cache`
    pub(crate) v_cache: Vec<Buffer<f16>>,
    /// `[hidden]`, the residual stream
    pub(crate) x: Buffer<f32>,
    /// `[hidden]`
    pub(crate) normed: Buffer<f32>,
    /// `[heads, head_dim]`
    pub(crate) q: Buffer<f32>,
    /// `[kv_heads, head_dim]`
    pub(crate) k: Buffer<f32>,
    /// `[kv_heads, head_dim]`
    pub(crate) v: Buffer<f32>,
    /// `[heads, splits, head_dim + 2]`
    pub(crate) partials: Buffer<f32>,
    /// `[heads, head_dim]`
    pub(crate) heads: Buffer<f32>,
    /// `[feed_forward]`
    pub(crate) gate: Buffer<f32>,
    /// `[feed_forward]`
    pub(crate) up: Buffer<f32>,
    /// `[feed_forward]`
    pub(crate) inner: Buffer<f32>,
    /// `[vocab]`
    pub(crate) logits: Buffer<f32>,
    /// `[blocks]`
    pub(crate) value: Buffer<f32>,
    /// `[blocks]`
    pub(crate) index: Buffer<u32>,
    /// `[1]`
    pub(crate) token: Buffer<u32>,
    /// Where tokens are sampled. Then the prompt has the chosen tokens, too, each at its position.
    pub(crate) sampler: Option<Sampler>,
    /// Where they are sampled within a grammar.
    pub(crate) allowed: Option<Allowed>,
    /// `[1]`: the row of the state
    rows: Buffer<u32>,
    /// Where drafts are verified.
    pub(crate) drafts: Option<DraftBuffers>,
}

/// What verifying drafts needs.
pub(crate) struct DraftBuffers {
    /// `[2 + 8]`: see `warpwright_kernels::pipeline::PlaceDraftsArgs`
    pub(crate) given: Buffer<u32>,
    /// Drafts of a step, at most.
    pub(crate) most: u32,
    /// `[8]`: the rows of the states, each its own
    rows: Buffer<u32>,
    /// Where tokens are sampled. The first kernel does not overlap with those before it, one of which writes the states that
    /// it reads.
    sampling: Option<(Kernel<SampleAdjust>, Scratch)>,
}

/// Positions per split of attention.
const SPLIT: u32 = 32;
const MAX_SPLITS: u32 = 64;

/// Logits of one block of the first half of argmax.
const ARGMAX_SHARE: u32 = 2048;

/// Revolutions a position of each pair of a head, for each kind of rotation that the layers have.
fn frequencies(outline: &Outline, ctx: u32) -> Vec<f32> {
    let factors = outline.rope_factors.as_ref().map(|factors| factors.of(ctx));
    let ropes = outline.config.ropes().into_iter();
    ropes
        .flat_map(|rope| rope.revolutions(factors))
        .flat_map(revolutions)
        .collect()
}

impl Buffers {
    /// `overlap`: whether the kernels of sampling may start before those before them have ended.
    pub(crate) fn new(
        context: &Context,
        outline: &Outline,
        options: Options,
        overlap: bool,
    ) -> Result<Buffers, Error> {
        let (c, ctx, choice) = (&outline.config, options.ctx, options.choice);
        let splits = splits(ctx);
        let floats =
            |name: &str, len: u32| Buffer::uninit(context, len as usize).map(|b| b.labelled(name));
        let caches =
            |name: &str| -> Result<Vec<Buffer<f16>>, Error> {
                (0..c.layers)
                    .map(|i| {
                        Ok(Buffer::uninit(context, cache_len(c, ctx))?
                            .labelled(&format!("{name}.{i}")))
                    })
                    .collect()
            };
        let freq = frequencies(outline, ctx);
        let argmax_blocks = c.vocab.div_ceil(ARGMAX_SHARE) as usize;
        // An empty buffer has no address; a token that is in no vocabulary never stops anything.
        let stop = if outline.stop.is_empty() {
            &[u32::MAX][..]
        } else {
            &outline.stop
        };
        Ok(Buffers {
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
            partials: floats("partials", c.heads * splits * (c.head_dim + 2))?,
            heads: floats("heads", c.q_len())?,
            gate: floats("gate", c.feed_forward)?,
            up: floats("up", c.feed_forward)?,
            inner: floats("inner", c.feed_forward)?,
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

    /// Samples a token by its logits, where tokens are sampled, and steps the state. Gives whether it did.
    pub(crate) fn sample(&self, queue: &mut impl Queue) -> Result<bool, warpwright_driver::Error> {
        let Some(sampler) = &self.sampler else {
            return Ok(false);
        };
        sampler.run(queue, self.row())?;
        Ok(true)
    }

    /// Samples a token by its logits, of those that are allowed, and steps the state.
    pub(crate) fn choose(&self, queue: &mut impl Queue) -> Result<(), warpwright_driver::Error> {
        if let (Some(allowed), Some(sampler)) = (&self.allowed, &self.sampler) {
            allowed.copy(queue, 0)?;
            allowed.forbid(queue, self.row(), sampler.rows(self.row()))?;
        }
        self.sample(queue).map(drop)
    }

    fn row(&self) -> Rows<'_> {
        let Buffers {
            logits,
            rows,
            state,
            prompt,
            stop,
            out,
            ..
        } = self;
        Rows {
            logits,
            rows,
            count: 1,
            state,
            tokens: prompt,
            stop,
            out,
        }
    }

    /// Samples the token after each draft by its logits, where tokens are sampled.
    pub(crate) fn sample_drafts(
        &self,
        queue: &mut impl Queue,
        logits: &View<f32>,
        state: &View<u32>,
    ) -> Result<(), warpwright_driver::Error> {
        let Buffers {
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
        let (Some((adjust, scratch)), rows) = (&drafts.sampling, &drafts.rows) else {
            return Ok(());
        };
        let count = (state.len() / state::LEN) as u32;
        let rows = Rows {
            logits,
            rows,
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
    /// `None` if the options ask for no drafts.
    fn new(context: &Context, vocab: u32, options: Options) -> Result<Option<DraftBuffers>, Error> {
        if options.drafts() == 0 {
            return Ok(None);
        }
        let sampling = match options.choice {
            // What is within a grammar verifies none.
            TokenChoice::Greedy | TokenChoice::Within { .. } => None,
            TokenChoice::Sampled { .. } => Some((
                signed::load(context, SampleAdjust { overlap: false })?,
                Scratch::new(context, vocab, MAX_BATCH)?,
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
) -> Result<Option<Sampler>, Error> {
    let Some(logprobs) = choice.logprobs() else {
        return Ok(None);
    };
    Ok(Some(Sampler::new(
        context,
        Room {
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
) -> Result<Option<Allowed>, Error> {
    let TokenChoice::Within { .. } = choice else {
        return Ok(None);
    };
    Ok(Some(Allowed::new(context, vocab, 1, overlap)?))
}

fn splits(ctx: u32) -> u32 {
    ctx.div_ceil(SPLIT).min(MAX_SPLITS)
}

/// Numbers of the keys of a layer: those of whole pages.
fn cache_len(c: &Config, ctx: u32) -> usize {
    c.kv_len() as usize * cache::pages(ctx) as usize * cache::PAGE as usize
}

/// Bytes of the key and value caches.
pub(crate) fn cache_bytes(c: &Config, ctx: u32) -> u64 {
    u64::from(c.layers) * cache_len(c, ctx) as u64 * 2 * 2
}

/// Bytes of everything else, but for a few kilobytes.
pub(crate) fn work_bytes(c: &Config, ctx: u32) -> u64 {
    // Partial results of attention; a pipeline with batch 1 and one with a larger batch together use up to three
    // times as much.
    let part = 4 * u64::from(c.heads) * u64::from(splits(ctx)) * u64::from(c.head_dim + 2);
    let rest = [2 * c.hidden, 2 * c.q_len(), 2 * c.kv_len(), c.vocab, ctx];
    let ffn = 3 * u64::from(c.feed_forward);
    4 * (part + ffn + rest.into_iter().map(u64::from).sum::<u64>()) + batch_bytes(c)
}

/// The largest batch of a pipeline.
const MAX_BATCH: u32 = 8;

/// Bytes of a batched pipeline's own buffers.
fn batch_bytes(c: &Config) -> u64 {
    // What the projections give before it is normed.
    let raw = if c.architecture.norms_after {
        c.hidden
    } else {
        0
    };
    let floats = [
        c.hidden + raw,
        2 * c.q_len(),
        c.q_len() + 2 * c.kv_len(),
        c.feed_forward,
        c.vocab,
    ];
    4 * u64::from(MAX_BATCH) * floats.into_iter().map(u64::from).sum::<u64>()
}

/// Bytes of what verifies up to so many drafts.
pub(crate) fn draft_bytes(c: &Config, options: Options) -> u64 {
    let tokens: u32 = verified_at_once(options.drafts()).sum();
    // Attention of each token has splits of its own.
    let partials = 6 * u64::from(c.heads * MAX_SPLITS) * u64::from(c.head_dim);
    let steps = u64::from(tokens) * (batch_bytes(c) / u64::from(MAX_BATCH) + partials);
    let room = |logprobs| {
        let Options { ctx, .. } = options;
        Room {
            vocab: c.vocab,
            capacity: MAX_BATCH,
            sequences: 1,
            ctx,
            logprobs,
            overlap: false,
        }
    };
    match options.choice {
        TokenChoice::Sampled { logprobs } if tokens > 0 => steps + room(logprobs).bytes(),
        _ => steps,
    }
}
