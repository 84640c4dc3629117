//! The device memory of chunked prefill besides weights and caches.

use warpwright_driver::{Buffer, Context, Element, Error, View, f16};
use warpwright_kernels::state;

use super::CHUNK;
use crate::model::config::Config;

/// Tokens that buffers have room for: a multiple of every width of a product, and at least [`CHUNK`].
pub(crate) const CAPACITY: u32 = 2304;

/// Activations of a product: see `warpwright_kernels::matmul::activations`.
pub(super) struct Panels {
    /// `[n / 64, capacity, 64]`
    pub(super) values: Buffer<f16>,
    /// `[capacity]`
    pub(super) scale: Buffer<f32>,
}

/// Buffers, a row for each token.
pub(crate) struct Workspace {
    /// `[chunk, 8]`
    pub(super) state: Buffer<u32>,
    /// `[capacity, hidden]`: the residual stream
    pub(super) x: Buffer<f32>,
    /// `[chunk, ropes, head_dim / 2, 2]`: cosine and sine at each position. The embedding makes them;
    /// here nobody reads them, as the rotation makes its own.
    pub(super) angles: Buffer<f32>,
    /// The normed residual stream.
    pub(super) normed: Panels,
    /// The same in a second order of columns, for layers whose matrices differ.
    pub(super) normed2: Option<Buffer<f16>>,
    /// `[capacity]`: the sum of the squares of each token of `normed`
    pub(super) squares: Buffer<f32>,
    /// `[capacity, heads + 2 * kv_heads, head_dim]`
    pub(super) raw: Buffer<f32>,
    /// `[capacity, heads, head_dim]`
    pub(super) q: Buffer<f16>,
    /// The output of attention.
    pub(super) heads: Panels,
    /// The output of gate and up.
    pub(super) inner: Panels,
    /// `[capacity, hidden]`: what a projection gives, if it is normed before it is added
    pub(super) projected: Option<Buffer<f32>>,
    /// Of no elements: what an epilogue does not use.
    pub(super) none: Buffer<f32>,
    pub(super) none16: Buffer<f16>,
}

impl Panels {
    /// Zeros: rows past the chunk are multiplied and thrown away.
    fn new(context: &Context, name: &str, n: u32) -> Result<Panels, Error> {
        Ok(Panels {
            values: Buffer::zeroed(context, (CAPACITY * n) as usize)?.labelled(name),
            scale: Buffer::zeroed(context, CAPACITY as usize)?.labelled(&format!("{name}.scale")),
        })
    }
}

impl Workspace {
    pub(crate) fn new(context: &Context, c: &Config, two_orders: bool) -> Result<Workspace, Error> {
        let floats = |name: &str, rows: u32, len: u32| -> Result<Buffer<f32>, Error> {
            Ok(Buffer::zeroed(context, rows as usize * len as usize)?.labelled(name))
        };
        let second = two_orders.then(|| Buffer::zeroed(context, (CAPACITY * c.hidden) as usize));
        let projected = c.architecture.norms_after.then(|| floats("chunk.projected", CAPACITY, c.hidden));
        Ok(Workspace {
            state: Buffer::zeroed(context, CHUNK as usize * state::LEN)?.labelled("chunk.state"),
            x: floats("chunk.x", CAPACITY, c.hidden)?,
            angles: floats("chunk.angles", CHUNK, c.ropes().len() as u32 * c.head_dim)?,
            normed: Panels::new(context, "chunk.normed", c.hidden)?,
            normed2: second.transpose()?.map(|buffer| buffer.labelled("chunk.normed2")),
            squares: floats("chunk.squares", CAPACITY, 1)?,
            raw: floats("chunk.raw", CAPACITY, c.q_len() + 2 * c.kv_len())?,
            q: Buffer::zeroed(context, (CAPACITY * c.q_len()) as usize)?.labelled("chunk.q"),
            heads: Panels::new(context, "chunk.heads", c.q_len())?,
            inner: Panels::new(context, "chunk.inner", c.feed_forward)?,
            projected: projected.transpose()?,
            none: Buffer::zeroed(context, 0)?,
            none16: Buffer::zeroed(context, 0)?,
        })
    }

    /// The first rows of a buffer.
    pub(super) fn rows<T: Element>(all: &Buffer<T>, rows: u32, len: u32) -> View<T> {
        all.view_range(0..(rows * len) as usize)
    }
}

/// Bytes of all buffers.
pub(crate) fn bytes(c: &Config) -> u64 {
    let after = if c.architecture.norms_after { c.hidden } else { 0 };
    let floats = c.hidden + after + c.q_len() + 2 * c.kv_len() + c.ropes().len() as u32 * c.head_dim + 12;
    let halves = 2 * c.hidden + 2 * c.q_len() + c.feed_forward;
    u64::from(CAPACITY) * (4 * u64::from(floats) + 2 * u64::from(halves))
}
