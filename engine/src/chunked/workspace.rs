//! The device memory of chunked passes except weights and caches.

use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, Element, View, f16};
use warpwright_driver::{Context, Error};
use warpwright_kernels::matmul::AppendArgs;
use warpwright_kernels::matmul::plan::SCRATCH;
use warpwright_kernels::prompt::Item;
use warpwright_kernels::shared::state;
use warpwright_model::Config;

use super::CHUNK;
use super::experts::buffers::{self, ExpertBuffers};
use super::panels::Panels;
use super::weights;

/// The number of tokens that the buffers can hold: at least [`CHUNK`], and a multiple of every tile
/// width.
pub(crate) const CAPACITY: u32 = 2304;
/// The number of rows for a single token. Matmuls of few tokens fit, and every row of a buffer has
/// this many rows after it.
pub(super) const LAST_CAPACITY: u32 = 64;
const _: () = assert!(CHUNK - 1 + LAST_CAPACITY <= CAPACITY);

/// The scratch memory of matmuls with split columns, which use it one after another: see
/// `warpwright_kernels::matmul::plan::SCRATCH`.
pub(crate) struct SplitScratch {
    /// The partial sums of the splits.
    pub(crate) partials: Buffer<f32>,
    /// The tickets that count the splits already summed. They are zero between launches.
    pub(crate) tickets: Buffer<u32>,
}

/// The buffers of a pass, with one row per token.
pub(crate) struct ChunkWorkspace {
    /// The state of each token, `[chunk, 8]`.
    pub(crate) state: Buffer<u32>,
    /// The work items of attention, `[chunk, 4]`.
    pub(super) items: Buffer<u32>,
    /// The work item of a chunk's last token, `[1, 4]`.
    pub(super) last_item: Buffer<u32>,
    /// The residual stream, `[capacity, hidden]`.
    pub(crate) x: Buffer<f32>,
    /// The cosine and sine at each position, `[chunk, ropes, head_dim / 2, 2]`.
    pub(super) angles: Buffer<f32>,
    /// The normed residual stream.
    pub(super) normed: Panels,
    /// The normed residual stream in a second column order, for layers whose matrices differ in it.
    pub(super) normed2: Option<Buffer<f16>>,
    /// The sum of squares of each token of `normed`, `[capacity]`.
    pub(super) squares: Buffer<f32>,
    /// The queries, keys and values before head norms, `[capacity, heads + 2 * kv_heads,
    /// head_dim]`.
    pub(super) raw: Option<Buffer<f32>>,
    /// The rotated queries, `[capacity, heads, head_dim]`.
    pub(super) q: Buffer<f16>,
    /// The output of attention.
    pub(super) heads: Panels,
    /// The gated output of gate and up.
    pub(super) inner: Panels,
    /// The output of a projection, `[capacity, hidden]`, in models that norm it before it is added.
    pub(super) projected: Option<Buffer<f32>>,
    /// The buffers of mixtures of experts, in models that have them.
    pub(super) experts: Option<ExpertBuffers>,
    pub(crate) scratch: SplitScratch,
    pub(super) nothing: EmptyBuffers,
}

/// Buffers without elements, for arguments that an epilogue does not use.
pub(crate) struct EmptyBuffers {
    pub(crate) floats: Buffer<f32>,
    pub(crate) words: Buffer<u32>,
    pub(crate) halves: Buffer<f16>,
}

impl EmptyBuffers {
    pub(crate) fn new(context: &Context) -> Result<EmptyBuffers, Error> {
        Ok(EmptyBuffers {
            floats: Buffer::zeroed(context, 0)?,
            words: Buffer::zeroed(context, 0)?,
            halves: Buffer::zeroed(context, 0)?,
        })
    }

    /// Returns the arguments of matmuls that append nothing.
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

impl ChunkWorkspace {
    pub(crate) fn new(
        context: &Context,
        c: &Config,
        two_orders: bool,
    ) -> Result<ChunkWorkspace, Error> {
        let floats = |name: &str, rows: u32, len: u32| -> Result<Buffer<f32>, Error> {
            Ok(Buffer::zeroed(context, rows as usize * len as usize)?.labelled(name))
        };
        let normed2 = if two_orders {
            let len = (CAPACITY * c.hidden) as usize;
            Some(Buffer::zeroed(context, len)?.labelled("chunk.normed2"))
        } else {
            None
        };
        let projected = if c.has_norms_after() {
            Some(floats("chunk.projected", CAPACITY, c.hidden)?)
        } else {
            None
        };
        let raw = match weights::raw_len(c) {
            0 => None,
            len => Some(floats("chunk.raw", CAPACITY, len)?),
        };
        Ok(ChunkWorkspace {
            state: Buffer::zeroed(context, CHUNK as usize * state::LEN)?.labelled("chunk.state"),
            items: Buffer::zeroed(context, CHUNK as usize * Item::LEN)?.labelled("chunk.items"),
            last_item: Buffer::zeroed(context, Item::LEN)?.labelled("chunk.last_item"),
            x: floats("chunk.x", CAPACITY, c.hidden)?,
            angles: floats("chunk.angles", CHUNK, c.angles_len())?,
            normed: Panels::new(context, "chunk.normed", CAPACITY, c.hidden)?,
            normed2,
            squares: floats("chunk.squares", CAPACITY, 1)?,
            raw,
            q: Buffer::zeroed(context, (CAPACITY * c.q_len()) as usize)?.labelled("chunk.q"),
            heads: Panels::new(context, "chunk.heads", CAPACITY, c.q_len())?,
            inner: Panels::new(context, "chunk.inner", CAPACITY, c.feed_forward())?,
            projected,
            experts: ExpertBuffers::new(context, c)?,
            scratch: SplitScratch {
                partials: Buffer::zeroed(context, SCRATCH[0])?.labelled("chunk.partials"),
                tickets: Buffer::zeroed(context, SCRATCH[1])?.labelled("chunk.tickets"),
            },
            nothing: EmptyBuffers::new(context)?,
        })
    }

    /// Returns the state of a token.
    pub(super) fn state_of(&self, token: u32) -> View<u32> {
        let first = token as usize * state::LEN;
        self.state.view_range(first..first + state::LEN)
    }

    /// Returns the first `count` work items.
    pub(crate) fn items(&self, count: u32) -> View<u32> {
        ChunkWorkspace::rows(&self.items, count, Item::LEN as u32)
    }

    /// Returns the first rows of a buffer.
    pub(super) fn rows<T: Element>(all: &Buffer<T>, rows: u32, len: u32) -> View<T> {
        all.view_range(0..(rows * len) as usize)
    }
}

/// Returns the bytes of all buffers.
pub(crate) fn bytes(c: &Config) -> u64 {
    let after = if c.has_norms_after() { c.hidden } else { 0 };
    let floats = c.hidden + after + weights::raw_len(c) + c.angles_len() + 12;
    let halves = 2 * c.hidden + 2 * c.q_len() + c.feed_forward();
    let scratch = 4 * SCRATCH.iter().sum::<usize>() as u64;
    let rows = u64::from(CAPACITY) * (4 * u64::from(floats) + 2 * u64::from(halves));
    rows + scratch + buffers::bytes(c)
}
