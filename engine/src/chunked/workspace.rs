//! The device memory of chunked prefill besides weights and caches.

use warpwright_driver::{Buffer, Context, Element, Error, Host, View, f16};
use warpwright_kernels::matmul::AppendArgs;
use warpwright_kernels::matmul::plan::SCRATCH;
use warpwright_kernels::prompt::Item;
use warpwright_kernels::state;

use super::CHUNK;
use crate::model::config::Config;

/// Tokens that buffers have room for: a multiple of every width of a product, and at least [`CHUNK`].
pub(crate) const CAPACITY: u32 = 2304;
/// The same for a single token: products of few tokens fit, and a row has so many after it.
pub(super) const LAST_CAPACITY: u32 = 64;
const _: () = assert!(CHUNK - 1 + LAST_CAPACITY <= CAPACITY);

/// Activations of a product: see `warpwright_kernels::matmul::activations`.
pub(crate) struct Panels {
    /// `[n / 64, capacity, 64]`
    pub(crate) values: Buffer<f16>,
    /// `[capacity]`
    pub(crate) scale: Buffer<f32>,
}

/// What products with split columns work with, one after another: see `warpwright_kernels::matmul::plan::SCRATCH`.
pub(crate) struct Scratch {
    /// The sums of parts.
    pub(crate) partials: Buffer<f32>,
    /// Who has left one; zero between launches.
    pub(crate) tickets: Buffer<u32>,
}

/// Buffers, a row for each token.
pub(crate) struct Workspace {
    /// `[chunk, 8]`
    pub(crate) state: Buffer<u32>,
    /// `[chunk, 4]`: the work items of attention
    pub(super) items: Buffer<u32>,
    /// `[1, 4]`: that of a chunk's last token
    pub(super) last_item: Buffer<u32>,
    /// `[capacity, hidden]`: the residual stream
    pub(crate) x: Buffer<f32>,
    /// `[chunk, ropes, head_dim / 2, 2]`: cosine and sine at each position
    pub(super) angles: Buffer<f32>,
    /// The normed residual stream.
    pub(super) normed: Panels,
    /// The same in a second order of columns, for layers whose matrices differ.
    pub(super) normed2: Option<Buffer<f16>>,
    /// `[capacity]`: the sum of the squares of each token of `normed`
    pub(super) squares: Buffer<f32>,
    /// `[capacity, heads + 2 * kv_heads, head_dim]`: queries, keys and values before head norms
    pub(super) raw: Option<Buffer<f32>>,
    /// `[capacity, heads, head_dim]`
    pub(super) q: Buffer<f16>,
    /// The output of attention.
    pub(super) heads: Panels,
    /// The output of gate and up.
    pub(super) inner: Panels,
    /// `[capacity, hidden]`: what a projection gives, if it is normed before it is added
    pub(super) projected: Option<Buffer<f32>>,
    pub(crate) scratch: Scratch,
    pub(super) nothing: Nothing,
}

/// Buffers without elements: what an epilogue does not use.
pub(crate) struct Nothing {
    pub(crate) floats: Buffer<f32>,
    pub(crate) words: Buffer<u32>,
    pub(crate) halves: Buffer<f16>,
}

impl Nothing {
    pub(crate) fn new(context: &Context) -> Result<Nothing, Error> {
        Ok(Nothing {
            floats: Buffer::zeroed(context, 0)?,
            words: Buffer::zeroed(context, 0)?,
            halves: Buffer::zeroed(context, 0)?,
        })
    }

    /// Arguments of products that append nothing.
    pub(crate) fn append(&self) -> AppendArgs<Host<'_>> {
        AppendArgs::<Host> {
            bias: &self.floats,
            angles: &self.floats,
            state: &self.words,
            pages: &self.words,
            q: &self.halves,
            k_cache: &self.halves,
            v_cache: &self.halves,
            heads: 0,
            kv_heads: 0,
            cache_pages: 0,
            sequences: 0,
            max_pages: 0,
            angle_row: 0,
            angle_first: 0,
            scale: 0.0,
        }
    }
}

impl Panels {
    /// Zeros: rows past the chunk are multiplied and thrown away.
    pub(crate) fn new(
        context: &Context,
        name: &str,
        capacity: u32,
        n: u32,
    ) -> Result<Panels, Error> {
        Ok(Panels {
            values: Buffer::zeroed(context, (capacity * n) as usize)?.labelled(name),
            scale: Buffer::zeroed(context, capacity as usize)?.labelled(&format!("{name}.scale")),
        })
    }
}

impl Workspace {
    pub(crate) fn new(context: &Context, c: &Config, two_orders: bool) -> Result<Workspace, Error> {
        let floats = |name: &str, rows: u32, len: u32| -> Result<Buffer<f32>, Error> {
            Ok(Buffer::zeroed(context, rows as usize * len as usize)?.labelled(name))
        };
        let second = two_orders.then(|| Buffer::zeroed(context, (CAPACITY * c.hidden) as usize));
        let projected = c
            .architecture
            .norms_after
            .then(|| floats("chunk.projected", CAPACITY, c.hidden));
        let raw = c
            .architecture
            .head_norms
            .then(|| floats("chunk.raw", CAPACITY, raw_len(c)));
        Ok(Workspace {
            state: Buffer::zeroed(context, CHUNK as usize * state::LEN)?.labelled("chunk.state"),
            items: Buffer::zeroed(context, CHUNK as usize * Item::LEN)?.labelled("chunk.items"),
            last_item: Buffer::zeroed(context, Item::LEN)?.labelled("chunk.last_item"),
            x: floats("chunk.x", CAPACITY, c.hidden)?,
            angles: floats("chunk.angles", CHUNK, c.ropes().len() as u32 * c.head_dim)?,
            normed: Panels::new(context, "chunk.normed", CAPACITY, c.hidden)?,
            normed2: second
                .transpose()?
                .map(|buffer| buffer.labelled("chunk.normed2")),
            squares: floats("chunk.squares", CAPACITY, 1)?,
            raw: raw.transpose()?,
            q: Buffer::zeroed(context, (CAPACITY * c.q_len()) as usize)?.labelled("chunk.q"),
            heads: Panels::new(context, "chunk.heads", CAPACITY, c.q_len())?,
            inner: Panels::new(context, "chunk.inner", CAPACITY, c.feed_forward)?,
            projected: projected.transpose()?,
            scratch: Scratch {
                partials: Buffer::zeroed(context, SCRATCH[0])?.labelled("chunk.partials"),
                tickets: Buffer::zeroed(context, SCRATCH[1])?.labelled("chunk.tickets"),
            },
            nothing: Nothing::new(context)?,
        })
    }

    /// The state of a token.
    pub(super) fn state_of(&self, token: u32) -> View<u32> {
        let first = token as usize * state::LEN;
        self.state.view_range(first..first + state::LEN)
    }

    /// So many work items.
    pub(crate) fn items(&self, count: u32) -> View<u32> {
        Workspace::rows(&self.items, count, Item::LEN as u32)
    }

    /// The first rows of a buffer.
    pub(super) fn rows<T: Element>(all: &Buffer<T>, rows: u32, len: u32) -> View<T> {
        all.view_range(0..(rows * len) as usize)
    }
}

/// Queries, keys and values of a token.
pub(super) fn raw_len(c: &Config) -> u32 {
    c.q_len() + 2 * c.kv_len()
}

/// Bytes of all buffers.
pub(crate) fn bytes(c: &Config) -> u64 {
    let after = if c.architecture.norms_after {
        c.hidden
    } else {
        0
    };
    let raw = if c.architecture.head_norms {
        raw_len(c)
    } else {
        0
    };
    let floats = c.hidden + after + raw + c.ropes().len() as u32 * c.head_dim + 12;
    let halves = 2 * c.hidden + 2 * c.q_len() + c.feed_forward;
    let scratch = 4 * SCRATCH.iter().sum::<usize>() as u64;
    u64::from(CAPACITY) * (4 * u64::from(floats) + 2 * u64::from(halves)) + scratch
}
