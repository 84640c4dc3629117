//! The end of a step: the last norm, the LM head, and the choice of the next tokens.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::{Buffer, Pinned, View};
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::{Context, Error};
use warpwright_kernels::batch::{ChooseTokens, ChooseTokensArgs, GatherRows, GatherRowsArgs};
use warpwright_kernels::matmul::{Epilogue, MatmulArgs, NormTokens, NormTokensArgs};
use warpwright_kernels::shared::state;
use warpwright_kernels::{Overlap, RowOrder};
use warpwright_model::{Config, Outline};

use super::options::{BatchOptions, bucket};
use crate::chunked::kernels::order;
use crate::chunked::list::PassNode;
use crate::chunked::panels::Panels;
use crate::chunked::products::{ChunkGemm, ColumnSplits, LoadedGemm, PassShape, TensorCores};
use crate::chunked::weights::{MatrixRows, rows_of};
use crate::chunked::workspace::{CAPACITY, EmptyBuffers, SplitScratch};
use crate::kernel_terms::kernel_format;
use crate::sampling::allowed::AllowedTokens;
use crate::sampling::device::{DeviceSampler, SampledRows, SamplerSize};
use crate::sampling::options::TokenChoice;
use crate::signed;

/// The number of blocks that choose tokens, per multiprocessor and over all rows.
const BLOCKS: u32 = 2;
/// The maximum number of blocks that choose the token of one row.
const MAX_BLOCKS: u32 = 64;

/// The kernels and buffers of the LM head.
pub(super) struct BatchHead {
    cores: TensorCores,
    /// The number of rows that the buffers can hold.
    pub(super) capacity: u32,
    rows: MatrixRows,
    gather: Kernel<GatherRows>,
    norm: Kernel<NormTokens>,
    products: BTreeMap<ChunkGemm, LoadedGemm>,
    choose: Kernel<ChooseTokens>,
    /// The rows of the step that go through the head, `[capacity]`.
    pub(super) selected: Buffer<u32>,
    /// The gathered rows of the residual stream, `[capacity, hidden]`.
    x: Buffer<f32>,
    normed: Panels,
    /// The sums of squares of each row, `[capacity]`.
    squares: Buffer<f32>,
    /// The logits, `[capacity, vocab]`.
    logits: Buffer<f32>,
    /// The largest logit of each block, `[capacity, blocks]`.
    value: Buffer<f32>,
    /// The token of the largest logit of each block, `[capacity, blocks]`.
    index: Buffer<u32>,
    /// The tickets of the blocks of a row, `[capacity]`.
    ticket: Buffer<u32>,
    /// The tokens that end a text, `[stops]`.
    stop: Buffer<u32>,
    /// The token after each position, `[sequences, ctx]`, in memory that the host reads.
    pub(super) out: Pinned<u32>,
    /// The sampler, if tokens are sampled.
    pub(super) sampler: Option<DeviceSampler>,
    /// The masks of constrained decoding.
    pub(super) allowed: Option<AllowedTokens>,
    /// The token at each position, `[sequences, ctx]`, for the positions that penalties look back
    /// to: see [`write_latest`](BatchHead::write_latest).
    tokens: Buffer<u32>,
    nothing: EmptyBuffers,
}

/// The parameters by which the matmul of the head is selected.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadShape {
    /// The number of rows.
    pub(super) bucket: u32,
    pub(super) splits: ColumnSplits,
}

/// The rows of a step that go through the head.
#[derive(Clone, Copy)]
pub(super) struct SelectedRows<'a> {
    /// The residual stream, `[CAPACITY, hidden]`.
    pub(super) x: &'a Buffer<f32>,
    /// The number of selected rows.
    pub(super) count: u32,
    /// Whether the selected rows are the first rows in their order, so that none is moved.
    pub(super) in_order: bool,
    pub(super) shape: HeadShape,
    pub(super) scratch: &'a SplitScratch,
}

impl BatchHead {
    pub(super) fn new(
        context: &Context,
        cores: TensorCores,
        outline: &Outline,
        tiles: &View<u8>,
        options: &BatchOptions,
    ) -> Result<BatchHead, crate::Error> {
        let c = &outline.config;
        let weight = outline.weights.head();
        let capacity = capacity(options);
        let rows = rows_of(
            context,
            kernel_format(weight.format),
            RowOrder::PLAIN,
            tiles,
            c.vocab,
            c.hidden,
        )?;
        let norm = NormTokens {
            order: order(&rows),
            second: None,
            overlap: Overlap::No,
        };

        // An empty buffer has no address. The id `u32::MAX` is in no vocabulary, so it never ends a
        // text.
        let stop = if outline.stop.is_empty() {
            &[u32::MAX][..]
        } else {
            &outline.stop
        };
        let floats = |name: &str, len: u32| -> Result<Buffer<f32>, Error> {
            Ok(Buffer::zeroed(context, capacity as usize * len as usize)?.labelled(name))
        };
        let words = |name: &str, len: u32| -> Result<Buffer<u32>, Error> {
            Ok(Buffer::zeroed(context, capacity as usize * len as usize)?.labelled(name))
        };
        Ok(BatchHead {
            cores,
            capacity,
            gather: signed::load(context, GatherRows)?,
            norm: signed::load(context, norm)?,
            products: BTreeMap::new(),
            choose: signed::load(context, ChooseTokens)?,
            selected: words("head.selected", 1)?,
            x: floats("head.x", c.hidden)?,
            normed: Panels::new(context, "head.normed", capacity, c.hidden)?,
            squares: floats("head.squares", 1)?,
            logits: floats("head.logits", c.vocab)?,
            value: floats("head.value", MAX_BLOCKS)?,
            index: words("head.index", MAX_BLOCKS)?,
            ticket: words("head.ticket", 1)?,
            stop: Buffer::from_slice(context, stop)?.labelled("stop"),
            out: Pinned::zeroed(context, options.sequences as usize * options.ctx as usize)?
                .labelled("out"),
            sampler: sampler_size(c, options)
                .map(|size| DeviceSampler::new(context, size))
                .transpose()?,
            allowed: allowed(context, c.vocab, options)?,
            tokens: token_buffer(context, options)?,
            nothing: EmptyBuffers::new(context)?,
            rows,
        })
    }

    /// Compiles the matmul of a shape, unless it is compiled already.
    pub(super) fn prepare(&mut self, context: &Context, shape: HeadShape) -> Result<(), Error> {
        let product = self.product(shape);
        if let Entry::Vacant(entry) = self.products.entry(product) {
            entry.insert(product.load(context)?);
        }
        Ok(())
    }

    /// Returns the matmul of a shape.
    fn product(&self, HeadShape { bucket, splits }: HeadShape) -> ChunkGemm {
        self.cores.product(
            &self.rows,
            Epilogue::Store,
            PassShape {
                bucket,
                splits,
                overlap: false,
            },
            self.capacity,
        )
    }

    /// Returns the logits of a row that went through the head.
    pub(super) fn logits(&self, row: u32) -> View<f32> {
        let vocab = self.rows.rows as usize;
        self.logits
            .view_range(row as usize * vocab..(row as usize + 1) * vocab)
    }

    /// Returns the logits of the first `count` rows that went through the head.
    pub(super) fn first_logits(&self, count: u32) -> View<f32> {
        self.logits
            .view_range(0..count as usize * self.rows.rows as usize)
    }

    /// Returns the tokens that end a text.
    pub(super) fn stop(&self) -> &View<u32> {
        &self.stop
    }

    /// Returns the kernels of a decode step of `count` rows, in the order of their launches.
    pub(super) fn list(&self, shape: HeadShape, count: u32) -> Vec<PassNode> {
        let product = &self.products[&self.product(shape)];
        let before = [
            PassNode::plain("norm", &self.norm),
            PassNode::product("head", product.name(), [&self.rows], count),
        ];
        let last = match &self.sampler {
            Some(sampler) => sampler.list().into(),
            None => vec![PassNode::plain("choose", &self.choose)],
        };
        before.into_iter().chain(last).collect()
    }

    /// Writes the latest tokens of the sequence `row` to the device, up to the position `end`.
    pub(super) fn write_latest(
        &self,
        stream: &Stream,
        options: &BatchOptions,
        row: u32,
        end: u32,
        latest: &[u32],
    ) -> Result<(), Error> {
        let end = row as usize * options.ctx as usize + end as usize;
        stream.write(&self.tokens.view_range(end - latest.len()..end), latest)
    }

    /// Queues the logits of the selected rows.
    pub(super) fn logits_of(
        &self,
        queue: &mut impl Queue,
        c: &Config,
        gamma: &View<u8>,
        selected: SelectedRows<'_>,
    ) -> Result<(), Error> {
        let SelectedRows {
            x,
            count,
            shape,
            in_order,
            ..
        } = selected;

        // In a decode step the selected rows are the first ones already.
        if !in_order {
            let args = GatherRowsArgs::<Host> {
                x,
                rows: &self.selected,
                y: &self.x,
                capacity: CAPACITY,
                count,
                n: c.hidden,
            };
            queue.launch(&self.gather, args)?;
        }

        let x = if in_order { x } else { &self.x };
        let args = NormTokensArgs::<Host> {
            x: &x.view_range(0..(count * c.hidden) as usize),
            gamma: &gamma.cast()?,
            y: &self.normed.values,
            y2: &self.nothing.halves,
            y_scale: &self.normed.scale.view_range(0..count as usize),
            squares: &self.squares.view_range(0..count as usize),
            n: c.hidden,
            capacity: self.capacity,
            epsilon: c.epsilon,
        };
        queue.launch(&self.norm, args)?;
        self.multiply(queue, count, shape, selected.scratch)
    }

    /// Queues the matmul of the head.
    fn multiply(
        &self,
        queue: &mut impl Queue,
        count: u32,
        shape: HeadShape,
        scratch: &SplitScratch,
    ) -> Result<(), Error> {
        let product = self.product(shape);
        let args = MatmulArgs::<Host> {
            w: &self.rows.tiles,
            unit: &self.rows.unit,
            x: &self.normed.values,
            x_scale: &self.normed.scale,
            squares: &self.nothing.floats,
            y: &self.logits,
            gated: &self.nothing.halves,
            gated_scale: &self.nothing.floats,
            bound: 0.0,
            rows: self.rows.rows,
            n: self.rows.n,
            y_rows: self.rows.rows,
            y_first: 0,
            tokens_given: count,
            capacity: self.capacity,
            blocks: self.cores.blocks(&product),
            partials: &scratch.partials,
            tickets: &scratch.tickets,
            append: self.nothing.append(),
        };
        self.products[&product].launch(queue, args)
    }

    /// Queues the choice of tokens from the logits. `state` is `[states, 8]`.
    pub(super) fn choose(
        &self,
        queue: &mut impl Queue,
        c: &Config,
        options: &BatchOptions,
        state: &View<u32>,
        count: u32,
    ) -> Result<(), Error> {
        if let Some(sampler) = &self.sampler {
            return sampler.run(queue, self.sampled(state, count));
        }
        let args = ChooseTokensArgs::<Host> {
            logits: &self.logits,
            rows: &self.selected,
            value: &self.value,
            index: &self.index,
            ticket: &self.ticket,
            stop: &self.stop,
            state,
            out: &self.out,
            vocab: c.vocab,
            count,
            capacity: self.capacity,
            blocks: (BLOCKS * self.cores.sms)
                .div_ceil(count)
                .clamp(1, MAX_BLOCKS),
            stops: self.stop.len() as u32,
            states: (state.len() / state::LEN) as u32,
            sequences: options.sequences,
            max_tokens: options.ctx,
        };
        queue.launch(&self.choose, args)
    }
}

impl BatchHead {
    /// Queues the choice of tokens among the allowed ones.
    pub(super) fn choose_constrained(
        &self,
        queue: &mut impl Queue,
        state: &View<u32>,
        count: u32,
    ) -> Result<(), Error> {
        let rows = self.sampled(state, count);
        if let (Some(allowed), Some(sampler)) = (&self.allowed, &self.sampler) {
            allowed.forbid(queue, rows, sampler.rows(rows))?;
            sampler.run(queue, rows)?;
        }
        Ok(())
    }

    /// Returns the first `count` rows of logits, with their states.
    pub(super) fn sampled<'a>(&'a self, state: &'a View<u32>, count: u32) -> SampledRows<'a> {
        let BatchHead {
            logits,
            selected: rows,
            tokens,
            stop,
            out,
            ..
        } = self;
        SampledRows {
            logits,
            rows,
            count,
            state,
            tokens,
            stop,
            out,
        }
    }
}

/// Returns the number of rows that the head can hold: a multiple of the tile width of every matmul
/// that is selected for so few rows.
fn capacity(options: &BatchOptions) -> u32 {
    bucket(options.sequences)
        .next_power_of_two()
        .max(options.bucket.unwrap_or(0).next_power_of_two())
        .max(64)
}

/// Returns the size of the sampler, or `None` if tokens are not sampled.
fn sampler_size(c: &Config, options: &BatchOptions) -> Option<SamplerSize> {
    let logprobs = options.choice.logprobs()?;
    let BatchOptions { sequences, ctx, .. } = *options;
    Some(SamplerSize {
        vocab: c.vocab,
        capacity: capacity(options),
        sequences,
        ctx,
        logprobs,
        overlap: false,
    })
}

/// Allocates the masks of constrained decoding, or returns `None` without it.
fn allowed(
    context: &Context,
    vocab: u32,
    options: &BatchOptions,
) -> Result<Option<AllowedTokens>, Error> {
    let TokenChoice::Constrained { .. } = options.choice else {
        return Ok(None);
    };
    AllowedTokens::new(context, vocab, options.sequences, false).map(Some)
}

/// Allocates the tokens that penalties read, or one element if tokens are not sampled.
fn token_buffer(context: &Context, options: &BatchOptions) -> Result<Buffer<u32>, Error> {
    let len = match options.choice.logprobs() {
        None => 1,
        Some(_) => options.sequences as usize * options.ctx as usize,
    };
    Ok(Buffer::zeroed(context, len)?.labelled("tokens"))
}

/// Returns the bytes of the head's device buffers.
pub(super) fn bytes(c: &Config, options: &BatchOptions) -> u64 {
    let row = 4 * (u64::from(c.hidden) + u64::from(c.vocab) + 2 * u64::from(MAX_BLOCKS))
        + 2 * u64::from(c.hidden);
    let tokens = 4 * u64::from(options.sequences) * u64::from(options.ctx);
    let sampled = sampler_size(c, options).map_or(0, |size| size.bytes() + tokens);
    let allowed = match options.choice {
        TokenChoice::Constrained { .. } => AllowedTokens::bytes(c.vocab, options.sequences),
        TokenChoice::Greedy | TokenChoice::Sampled { .. } => 0,
    };
    u64::from(capacity(options)) * (row + 16) + sampled + allowed
}
