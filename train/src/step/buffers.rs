//! What the forward keeps for the backward, and workspace.

use warpwright_driver::{Buffer, Context};
use warpwright_kernels::train::clip::PARTS;

use super::sizes::Sizes;
use crate::reference::Adapters;
use crate::weights::LayerWeights;
use crate::{Error, Projection};

/// Shapes are in rows of tokens: `hidden` means `[tokens, hidden]`.
pub(super) struct Buffers {
    pub(super) layers: Vec<Layer>,
    /// `hidden`: the residual stream after the last layer.
    pub(super) h: Buffer<f32>,
    pub(super) head: Head,
    pub(super) work: Workspace,
}

/// What the forward keeps of a layer; the names are those of
/// [`LayerActivations`](crate::reference::LayerActivations).
pub(super) struct Layer {
    pub(super) h: Buffer<f32>,
    pub(super) inv1: Buffer<f32>,
    pub(super) x1: Buffer<f32>,
    pub(super) q: Rotated,
    pub(super) k: Rotated,
    pub(super) v: Buffer<f32>,
    pub(super) o: Buffer<f32>,
    pub(super) lse: Buffer<f32>,
    pub(super) h1: Buffer<f32>,
    pub(super) inv2: Buffer<f32>,
    pub(super) x2: Buffer<f32>,
    pub(super) g: Buffer<f32>,
    pub(super) up: Buffer<f32>,
    pub(super) a: Buffer<f32>,
    /// `rank` of each projection with an adapter.
    pub(super) u: [Option<Buffer<f32>>; 7],
}

/// Queries or keys.
pub(super) struct Rotated {
    /// Before the head norm, and its `inv`; none without one.
    pub(super) normed: Option<[Buffer<f32>; 2]>,
    pub(super) rotated: Buffer<f32>,
}

/// What the head gives.
pub(super) struct Head {
    /// `hidden`: what the last norm gave.
    pub(super) x: Buffer<f32>,
    pub(super) inv: Buffer<f32>,
    /// `[chunk, vocab]`: logits, then their gradients.
    pub(super) logits: Buffer<f32>,
    pub(super) lse: Buffer<f32>,
    pub(super) losses: Buffer<f32>,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: Buffer<f32>,
}

/// What no kernel needs for long.
pub(super) struct Workspace {
    /// A matrix, unpacked.
    pub(super) w: Buffer<f32>,
    /// The longest input of a projection, with dropout; or a gradient of it.
    pub(super) masked: Buffer<f32>,
    /// `rank`
    pub(super) du: Buffer<f32>,
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: Buffer<f32>,
    /// `hidden`: the gradient of what a norm gave.
    pub(super) dx: Buffer<f32>,
    /// `feed_forward`
    pub(super) da: Buffer<f32>,
    pub(super) dg: Buffer<f32>,
    pub(super) dup: Buffer<f32>,
    /// Queries: the gradient of attention's output.
    pub(super) grad: Buffer<f32>,
    /// `heads`
    pub(super) delta: Buffer<f32>,
    /// Queries: gradients of the rotated queries, and through their norm.
    pub(super) dq: [Buffer<f32>; 2],
    /// Queries: gradients of keys and values of each query head.
    pub(super) parts: [Buffer<f32>; 2],
    /// Keys: gradients of the rotated keys, and through their norm.
    pub(super) dk: [Buffer<f32>; 2],
    /// Keys
    pub(super) dv: Buffer<f32>,
    /// Sums of squares of the gradients.
    pub(super) squares: Buffer<f32>,
}

impl Buffers {
    /// For weights and adapters like these; `chunk` tokens have logits at once.
    pub(super) fn new<V, M>(
        context: &Context,
        sizes: &Sizes,
        layers: &[LayerWeights<V, M>],
        adapters: &Adapters,
        chunk: u32,
    ) -> Result<Buffers, Error> {
        let all = Allocator { context, sizes };
        let layer = |(l, weights): (usize, &LayerWeights<V, M>)| all.layer(l, weights, adapters);
        Ok(Buffers {
            layers: layers.iter().enumerate().map(layer).collect::<Result<_, _>>()?,
            h: all.rows("h", sizes.hidden)?,
            head: all.head(chunk)?,
            work: all.workspace(!layers.is_empty())?,
        })
    }
}

struct Allocator<'a> {
    context: &'a Context,
    sizes: &'a Sizes,
}

impl Allocator<'_> {
    fn rows(&self, label: &str, len: u32) -> Result<Buffer<f32>, Error> {
        self.elements(label, self.sizes.rows(len))
    }

    fn elements(&self, label: &str, len: usize) -> Result<Buffer<f32>, Error> {
        Ok(Buffer::zeroed(self.context, len)?.labelled(label))
    }

    fn layer<V, M>(
        &self,
        l: usize,
        weights: &LayerWeights<V, M>,
        adapters: &Adapters,
    ) -> Result<Layer, Error> {
        let Sizes { hidden, feed_forward, heads, kv_heads, rank, .. } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let rows = |name: &str, len| self.rows(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, has_norm, len, heads| -> Result<Rotated, Error> {
            let normed = match has_norm {
                true => Some([rows(&format!("{name}, raw,"), len)?, rows(&format!("inv of {name}"), heads)?]),
                false => None,
            };
            Ok(Rotated { normed, rotated: rows(name, len)? })
        };
        let mut u = [const { None }; 7];
        for p in Projection::ALL.into_iter().filter(|&p| adapters.of(l, p).is_some()) {
            u[p as usize] = Some(rows(&format!("u of {}", p.name()), rank)?);
        }
        Ok(Layer {
            h: rows("h", hidden)?,
            inv1: rows("inv1", 1)?,
            x1: rows("x1", hidden)?,
            q: rotated("q", weights.q_norm.is_some(), queries, heads)?,
            k: rotated("k", weights.k_norm.is_some(), keys, kv_heads)?,
            v: rows("v", keys)?,
            o: rows("o", queries)?,
            lse: rows("lse", heads)?,
            h1: rows("h1", hidden)?,
            inv2: rows("inv2", 1)?,
            x2: rows("x2", hidden)?,
            g: rows("g", feed_forward)?,
            up: rows("up", feed_forward)?,
            a: rows("a", feed_forward)?,
            u,
        })
    }

    fn head(&self, chunk: u32) -> Result<Head, Error> {
        Ok(Head {
            x: self.rows("x of the head", self.sizes.hidden)?,
            inv: self.rows("inv of the last norm", 1)?,
            logits: self.elements("logits", chunk as usize * self.sizes.vocab as usize)?,
            lse: self.rows("lse of the logits", 1)?,
            losses: self.rows("losses", 1)?,
            dx: self.rows("dx of the head", self.sizes.hidden)?,
        })
    }

    fn workspace(&self, layers: bool) -> Result<Workspace, Error> {
        let Sizes { hidden, feed_forward, heads, rank, .. } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let shapes = Projection::ALL.map(|p| self.sizes.of(p).map(|n| n as usize));
        let matrix = if layers { shapes.map(|[n, k]| n * k).into_iter().max().unwrap_or(0) } else { 0 };
        let input = hidden.max(feed_forward).max(queries);
        Ok(Workspace {
            w: self.elements("the unpacked matrix", matrix)?,
            masked: self.rows("masked", input)?,
            du: self.rows("du", rank)?,
            dh: self.rows("dh", hidden)?,
            dx: self.rows("dx", hidden)?,
            da: self.rows("da", feed_forward)?,
            dg: self.rows("dg", feed_forward)?,
            dup: self.rows("dup", feed_forward)?,
            grad: self.rows("do", queries)?,
            delta: self.rows("delta", heads)?,
            dq: [self.rows("dq", queries)?, self.rows("dq, raw", queries)?],
            parts: [self.rows("dk of each head", queries)?, self.rows("dv of each head", queries)?],
            dk: [self.rows("dk", keys)?, self.rows("dk, raw", keys)?],
            dv: self.rows("dv", keys)?,
            squares: self.elements("sums of squares", PARTS as usize)?,
        })
    }
}
