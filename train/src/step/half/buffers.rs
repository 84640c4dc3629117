//! What the forward keeps for the backward, and workspace. `H` is a buffer of `bf16` and `F` one of
//! `f32`, or their sizes where memory is only counted.

use warpwright_driver::{Buffer, Context, bf16};

use super::limits::padded;
use super::workspaces::room;
use crate::step::buffers::{KeptActivations, Layers, ProjectionInputs};
use crate::step::common::CommonState;
use crate::step::sizes::TrainingSizes;
use crate::{Error, Projection};

/// Shapes are in rows of tokens: `hidden` means `[tokens, hidden]`.
pub(crate) struct Bf16Buffers<H = Buffer<bf16>, F = Buffer<f32>> {
    pub(super) kept: KeptActivations<H, Bf16LayerBuffers<H, F>>,
    pub(crate) head: Bf16HeadBuffers<H, F>,
    pub(super) work: Bf16Workspace<H, F>,
}

/// What the forward keeps of a layer.
pub(super) struct Bf16LayerBuffers<H = Buffer<bf16>, F = Buffer<f32>> {
    pub(super) inv1: F,
    pub(super) q: Bf16RotatedBuffers<H, F>,
    pub(super) k: Bf16RotatedBuffers<H, F>,
    pub(super) v: H,
    pub(super) o: H,
    pub(super) lse: F,
    pub(super) h1: H,
    pub(super) inv2: F,
    pub(super) g: H,
    pub(super) up: H,
    /// `rank`, padded, of each projection with an adapter.
    pub(super) u: [Option<H>; 7],
}

/// Queries or keys.
pub(super) struct Bf16RotatedBuffers<H = Buffer<bf16>, F = Buffer<f32>> {
    /// Before the head norm, and its `inv`; none without one.
    pub(super) normed: Option<(H, F)>,
    pub(super) rotated: H,
}

/// What the head gives.
pub(crate) struct Bf16HeadBuffers<H = Buffer<bf16>, F = Buffer<f32>> {
    /// `hidden`: what the last norm gave.
    pub(super) x: H,
    pub(super) inv: F,
    /// `[chunk, vocab]`
    pub(super) logits: F,
    /// `[chunk, vocab]`: their gradients, times the labelled tokens. Beside the head, unpacked
    /// matrices: see `unpacked.rs`.
    pub(super) dl: H,
    pub(super) lse: F,
    pub(crate) losses: F,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: H,
}

impl<H, F> Bf16HeadBuffers<H, F> {
    pub(crate) fn logits(&self) -> &F {
        &self.logits
    }
}

/// What no kernel needs for long.
pub(super) struct Bf16Workspace<H = Buffer<bf16>, F = Buffer<f32>> {
    /// Unpacked matrices; others are where the head has gradients of logits: see `unpacked.rs`.
    pub(super) w: H,
    /// The adapters, rounded.
    pub(super) adapters: H,
    /// Queries and keys before they are rotated.
    pub(super) raw: [H; 2],
    /// With dropout: the longest input of a projection, or a gradient of it; the same once more.
    /// Else a row.
    pub(super) masked: [H; 2],
    /// `rank`, padded, of each projection: gradients of adapters are made while the next ones are.
    pub(super) du: [H; 7],
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: H,
    /// `hidden`: the gradient of what a norm gave; with dropout a sum that goes into it, else a
    /// row.
    pub(super) dx: [H; 2],
    /// With dropout: `feed_forward`. Else a row.
    pub(super) da: H,
    /// `feed_forward`
    pub(super) dg: H,
    pub(super) dup: H,
    /// Queries: the gradient of attention's output.
    pub(super) grad: H,
    /// `heads`
    pub(super) delta: F,
    /// Queries: the gradient of the rotated queries.
    pub(super) dq_rotated: F,
    /// Queries: gradients of rotated keys and of values, for each query head.
    pub(super) parts: [F; 2],
    /// Gradients of the products of queries, keys and values.
    pub(super) dq: H,
    pub(super) dk: H,
    pub(super) dv: H,
}

impl Bf16Buffers {
    pub(super) fn allocate(
        context: &Context,
        sizes: &TrainingSizes,
        shape: &Layers<'_>,
        common: &CommonState,
    ) -> Result<Bf16Buffers, Error> {
        let halves = |label: &str, len| Ok(Buffer::zeroed(context, len)?.labelled(label));
        let singles = |label: &str, len| Ok(Buffer::zeroed(context, len)?.labelled(label));
        Bf16Buffers::new(
            sizes,
            shape,
            [common.head_chunk as usize, common.flat.layout.len()],
            &halves,
            &singles,
        )
    }
}

impl<H, F> Bf16Buffers<H, F> {
    /// For weights like these; so many tokens have logits at once, and so many numbers are in the
    /// adapters.
    pub(crate) fn new(
        sizes: &TrainingSizes,
        shape: &Layers<'_>,
        [chunk, adapters]: [usize; 2],
        halves: &dyn Fn(&str, usize) -> Result<H, Error>,
        singles: &dyn Fn(&str, usize) -> Result<F, Error>,
    ) -> Result<Bf16Buffers<H, F>, Error> {
        let all = Bf16Allocator {
            sizes,
            halves,
            singles,
        };
        let dropout = shape.lora.dropout > 0.0;
        let unpacked = room(sizes);
        let stream = |l| all.half(&format!("h before layer {l}"), sizes.hidden);
        let inputs = |l| {
            ProjectionInputs::new(sizes, |name, len| {
                all.half(&format!("{name} of layer {l}"), len)
            })
        };
        Ok(Bf16Buffers {
            kept: KeptActivations::new(shape, stream, |l| all.layer(l, shape), inputs)?,
            head: all.head(chunk, unpacked[1])?,
            work: all.workspace([adapters, unpacked[0]], dropout)?,
        })
    }
}

struct Bf16Allocator<'a, H, F> {
    sizes: &'a TrainingSizes,
    halves: &'a dyn Fn(&str, usize) -> Result<H, Error>,
    singles: &'a dyn Fn(&str, usize) -> Result<F, Error>,
}

impl<H, F> Bf16Allocator<'_, H, F> {
    fn half(&self, label: &str, len: u32) -> Result<H, Error> {
        (self.halves)(label, self.sizes.rows(len))
    }

    fn single(&self, label: &str, len: u32) -> Result<F, Error> {
        (self.singles)(label, self.sizes.rows(len))
    }

    fn layer(&self, l: usize, shape: &Layers<'_>) -> Result<Bf16LayerBuffers<H, F>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            kv_heads,
            rank,
            ..
        } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let half = |name: &str, len| self.half(&format!("{name} of layer {l}"), len);
        let single = |name: &str, len| self.single(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, len, heads| -> Result<Bf16RotatedBuffers<H, F>, Error> {
            let normed = match shape.head_norms {
                true => Some((
                    half(&format!("{name}, raw,"), len)?,
                    single(&format!("inv of {name}"), heads)?,
                )),
                false => None,
            };
            Ok(Bf16RotatedBuffers {
                normed,
                rotated: half(name, len)?,
            })
        };
        let mut u = [const { None }; 7];
        for p in &shape.lora.targets {
            u[*p as usize] = Some(half(&format!("u of {}", p.name()), padded(rank))?);
        }
        Ok(Bf16LayerBuffers {
            inv1: single("inv1", 1)?,
            q: rotated("q", queries, heads)?,
            k: rotated("k", keys, kv_heads)?,
            v: half("v", keys)?,
            o: half("o", queries)?,
            lse: single("lse", heads)?,
            h1: half("h1", hidden)?,
            inv2: single("inv2", 1)?,
            g: half("g", feed_forward)?,
            up: half("up", feed_forward)?,
            u,
        })
    }

    fn head(&self, chunk: usize, unpacked: usize) -> Result<Bf16HeadBuffers<H, F>, Error> {
        let logits = chunk * self.sizes.vocab as usize;
        Ok(Bf16HeadBuffers {
            x: self.half("x of the head", self.sizes.hidden)?,
            inv: self.single("inv of the last norm", 1)?,
            logits: (self.singles)("logits", logits)?,
            dl: (self.halves)("gradients of logits", logits.max(unpacked))?,
            lse: self.single("lse of the logits", 1)?,
            losses: self.single("losses", 1)?,
            dx: self.half("dx of the head", self.sizes.hidden)?,
        })
    }

    fn workspace(
        &self,
        [adapters, unpacked]: [usize; 2],
        dropout: bool,
    ) -> Result<Bf16Workspace<H, F>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            rank,
            ..
        } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let du = |p: Projection| self.half(&format!("du of {}", p.name()), padded(rank));
        let [q, k, v, o, gate, up, down] = Projection::ALL.map(du);
        let with_dropout = |len: u32| if dropout { len } else { 8 };
        let input = with_dropout(hidden.max(feed_forward).max(queries));
        Ok(Bf16Workspace {
            w: (self.halves)("unpacked matrices", unpacked)?,
            adapters: (self.halves)("the adapters, rounded", adapters)?,
            raw: [
                self.half("queries, raw", queries)?,
                self.half("keys, raw", keys)?,
            ],
            masked: [
                self.half("masked", input)?,
                self.half("masked, summed", input)?,
            ],
            du: [q?, k?, v?, o?, gate?, up?, down?],
            dh: self.half("dh", hidden)?,
            dx: [
                self.half("dx", hidden)?,
                self.half("dx, in part", with_dropout(hidden))?,
            ],
            da: self.half("da", with_dropout(feed_forward))?,
            dg: self.half("dg", feed_forward)?,
            dup: self.half("dup", feed_forward)?,
            grad: self.half("do", queries)?,
            delta: self.single("delta", heads)?,
            dq_rotated: self.single("dq, rotated", queries)?,
            parts: [
                self.single("dk of each head", queries)?,
                self.single("dv of each head", queries)?,
            ],
            dq: self.half("dq", queries)?,
            dk: self.half("dk", keys)?,
            dv: self.half("dv", keys)?,
        })
    }
}
