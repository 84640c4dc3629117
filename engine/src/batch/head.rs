//! The end of a step: the last norm, the LM head, and the next tokens.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use warpwright_driver::{Buffer, Context, Error, Host, Kernel, Pinned, Queue, Stream, View};
use warpwright_kernels::batch::{ChooseTokens, ChooseTokensArgs, GatherRows, GatherRowsArgs};
use warpwright_kernels::matmul::{Epilogue, MatmulArgs, NormTokens, NormTokensArgs};
use warpwright_kernels::state;
use warpwright_kernels::{Overlap, RowOrder};

use super::options::{BatchOptions, bucket};
use crate::chunked::kernels::order;
use crate::chunked::list::PassNode;
use crate::chunked::products::{Chosen, Cores, Product, ProductKernel};
use crate::chunked::weights::{Rows, rows_of};
use crate::chunked::workspace::{CAPACITY, Nothing, Panels, Scratch};
use crate::model::config::Config;
use crate::model::outline::Outline;
use crate::sampling::allowed::Allowed;
use crate::sampling::device::{Room, Rows as SampledRows, Sampler};
use crate::sampling::options::TokenChoice;
use crate::signed;

/// Blocks that choose a token, all rows together, for each multiprocessor.
const BLOCKS: u32 = 2;
/// Blocks that choose a token, of a row.
const MAX_BLOCKS: u32 = 64;

/// Kernels and buffers of the head, for a number of rows.
pub(super) struct Head {
    cores: Cores,
    /// Rows that buffers have room for.
    capacity: u32,
    rows: Rows,
    gather: Kernel<GatherRows>,
    norm: Kernel<NormTokens>,
    products: BTreeMap<Product, ProductKernel>,
    choose: Kernel<ChooseTokens>,
    /// `[capacity]`: the rows of the step that go through the head
    pub(super) selected: Buffer<u32>,
    /// `[capacity, hidden]`
    x: Buffer<f32>,
    normed: Panels,
    /// `[capacity]`
    squares: Buffer<f32>,
    /// `[capacity, vocab]`
    logits: Buffer<f32>,
    /// `[capacity, blocks]`: the largest logits of blocks, and where they are
    value: Buffer<f32>,
    index: Buffer<u32>,
    /// `[capacity]`
    ticket: Buffer<u32>,
    /// `[stops]`
    stop: Buffer<u32>,
    /// `[sequences, ctx]`: the token after each position, for the host to read
    pub(super) out: Pinned<u32>,
    /// Where tokens are sampled.
    pub(super) sampler: Option<Sampler>,
    /// Where they are sampled within grammars.
    pub(super) allowed: Option<Allowed>,
    /// `[sequences, ctx]`: the token at each position, of those that penalties look back to; see
    /// [`write_latest`](Head::write_latest)
    tokens: Buffer<u32>,
    nothing: Nothing,
}

/// The rows of a step that go through the head.
#[derive(Clone, Copy)]
pub(super) struct Selected<'a> {
    /// `[CAPACITY, hidden]`: the residual stream
    pub(super) x: &'a Buffer<f32>,
    pub(super) count: u32,
    /// Whether these are the first rows in their order, so that none is moved.
    pub(super) in_order: bool,
    /// Rows that the product is chosen for.
    pub(super) bucket: u32,
    pub(super) scratch: &'a Scratch,
}

impl Head {
    pub(super) fn new(
        context: &Context,
        cores: Cores,
        outline: &Outline,
        tiles: &View<u8>,
        options: &BatchOptions,
    ) -> Result<Head, crate::Error> {
        let (c, weight) = (&outline.config, outline.weights.head());
        let capacity = capacity(options);
        let rows = rows_of(
            context,
            weight.format,
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
        // An empty buffer has no address; a token that is in no vocabulary never stops anything.
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
        Ok(Head {
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
            sampler: room(c, options)
                .map(|room| Sampler::new(context, room))
                .transpose()?,
            allowed: allowed(context, c.vocab, options)?,
            tokens: words_of(context, options)?,
            nothing: Nothing::new(context)?,
            rows,
        })
    }

    /// Compiles what this bucket needs.
    pub(super) fn prepare(&mut self, context: &Context, bucket: u32) -> Result<(), Error> {
        let product = self.product(bucket);
        if let Entry::Vacant(entry) = self.products.entry(product) {
            entry.insert(product.load(context)?);
        }
        Ok(())
    }

    fn product(&self, bucket: u32) -> Product {
        self.cores.product(
            &self.rows,
            Epilogue::Store,
            Chosen {
                bucket,
                overlap: false,
            },
            self.capacity,
        )
    }

    /// The logits of a row that went through the head.
    pub(super) fn logits(&self, row: u32) -> View<f32> {
        let vocab = self.rows.rows as usize;
        self.logits
            .view_range(row as usize * vocab..(row as usize + 1) * vocab)
    }

    /// The kernels of a decode step of so many rows, in the order in which they are launched.
    pub(super) fn list(&self, bucket: u32, count: u32) -> Vec<PassNode> {
        let product = &self.products[&self.product(bucket)];
        let before = [
            PassNode::plain("norm", &self.norm),
            PassNode::product("head", product.name(), [&self.rows], count),
        ];
        let choose = || vec![PassNode::plain("choose", &self.choose)];
        let last = self
            .sampler
            .as_ref()
            .map_or_else(choose, |sampler| sampler.list().into());
        before.into_iter().chain(last).collect()
    }

    /// Writes the latest tokens of a sequence, which end before `end`.
    pub(super) fn write_latest(
        &self,
        stream: &Stream,
        options: &BatchOptions,
        (row, end): (u32, u32),
        latest: &[u32],
    ) -> Result<(), Error> {
        let end = row as usize * options.ctx as usize + end as usize;
        stream.write(&self.tokens.view_range(end - latest.len()..end), latest)
    }

    /// Makes the logits of the selected rows.
    pub(super) fn logits_of(
        &self,
        queue: &mut impl Queue,
        c: &Config,
        gamma: &View<u8>,
        selected: Selected<'_>,
    ) -> Result<(), Error> {
        let Selected {
            x,
            count,
            bucket,
            in_order,
            ..
        } = selected;
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
        self.multiply(queue, count, bucket, selected.scratch)
    }

    fn multiply(
        &self,
        queue: &mut impl Queue,
        count: u32,
        bucket: u32,
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let product = self.product(bucket);
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

    /// Chooses tokens by these logits: with sampling, of all tokens. `state` is `[states, 8]`.
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

impl Head {
    /// Chooses tokens of those that are allowed.
    pub(super) fn choose_within(
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

    fn sampled<'a>(&'a self, state: &'a View<u32>, count: u32) -> SampledRows<'a> {
        let Head {
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

/// Rows that the head has room for: a multiple of every width of a product with so many.
fn capacity(options: &BatchOptions) -> u32 {
    bucket(options.sequences)
        .max(options.bucket.unwrap_or(0).next_power_of_two())
        .max(64)
}

/// What sampling is made for, if tokens are sampled.
fn room(c: &Config, options: &BatchOptions) -> Option<Room> {
    let logprobs = options.choice.logprobs()?;
    let BatchOptions { sequences, ctx, .. } = *options;
    Some(Room {
        vocab: c.vocab,
        capacity: capacity(options),
        sequences,
        ctx,
        logprobs,
        overlap: false,
    })
}

/// What is allowed, where sequences may follow grammars.
fn allowed(
    context: &Context,
    vocab: u32,
    options: &BatchOptions,
) -> Result<Option<Allowed>, Error> {
    let TokenChoice::Within { .. } = options.choice else {
        return Ok(None);
    };
    Allowed::new(context, vocab, options.sequences, false).map(Some)
}

/// The tokens of sequences; nothing where tokens are not sampled.
fn words_of(context: &Context, options: &BatchOptions) -> Result<Buffer<u32>, Error> {
    let len = match options.choice.logprobs() {
        None => 1,
        Some(_) => options.sequences as usize * options.ctx as usize,
    };
    Ok(Buffer::zeroed(context, len)?.labelled("tokens"))
}

/// Bytes of the head's buffers on the device.
pub(super) fn bytes(c: &Config, options: &BatchOptions) -> u64 {
    let row = 4 * (u64::from(c.hidden) + u64::from(c.vocab) + 2 * u64::from(MAX_BLOCKS))
        + 2 * u64::from(c.hidden);
    let tokens = 4 * u64::from(options.sequences) * u64::from(options.ctx);
    let sampled = room(c, options).map_or(0, |room| room.bytes() + tokens);
    let within = matches!(options.choice, TokenChoice::Within { .. });
    let allowed = if within {
        Allowed::bytes(c.vocab, options.sequences)
    } else {
        0
    };
    u64::from(capacity(options)) * (row + 16) + sampled + allowed
}
