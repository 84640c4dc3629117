//! The activations that the forward pass keeps for the backward pass, and the workspace of a `bf16`
//! step.
//!
//! `H` is the type of a `bf16` buffer and `F` of an `f32` buffer. Code that only counts memory uses
//! `()` instead of real buffers.

use warpwright_driver::{Buffer, Context, bf16};

use super::limits::padded;
use super::workspaces::room;
use crate::step::buffers::{KeptActivations, Layers, ProjectionInputs};
use crate::step::common::CommonState;
use crate::step::sizes::TrainingSizes;
use crate::{Error, Projection};

/// The activations, the LM head's buffers and the workspace of a `bf16` step.
///
/// Shapes list the length of a token's row only. For example, `hidden` means `[tokens, hidden]`.
pub(crate) struct Bf16Buffers<H = Buffer<bf16>, F = Buffer<f32>> {
    pub(super) kept: KeptActivations<H, Bf16LayerBuffers<H, F>>,
    pub(crate) head: Bf16HeadBuffers<H, F>,
    pub(super) work: Bf16Workspace<H, F>,
}

/// The activations of a layer, named as in
/// [`LayerActivations`](crate::reference::LayerActivations).
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
    /// The padded `rank`: `scale x A^T` of each projection that has an adapter.
    pub(super) u: [Option<H>; 7],
}

/// The queries or keys of a layer.
pub(super) struct Bf16RotatedBuffers<H = Buffer<bf16>, F = Buffer<f32>> {
    /// The input of the head norm and its `inv`, or `None` if the model has no head norms.
    pub(super) normed: Option<(H, F)>,
    /// The queries or keys after RoPE.
    pub(super) rotated: H,
}

/// The buffers of the LM head.
pub(crate) struct Bf16HeadBuffers<H = Buffer<bf16>, F = Buffer<f32>> {
    /// `hidden`: the output of the last norm.
    pub(super) x: H,
    pub(super) inv: F,
    /// `[chunk, vocab]`
    pub(super) logits: F,
    /// `[chunk, vocab]`: the gradients of the logits, times the number of labelled tokens. While
    /// the layers run, this buffer holds unpacked matrices (see `unpacked.rs`).
    pub(super) dl: H,
    pub(super) lse: F,
    pub(crate) losses: F,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: H,
}

impl<H, F> Bf16HeadBuffers<H, F> {
    /// Returns the logits of the last chunk, `[chunk, vocab]`.
    pub(crate) fn logits(&self) -> &F {
        &self.logits
    }
}

/// Scratch buffers, which all layers share.
pub(super) struct Bf16Workspace<H = Buffer<bf16>, F = Buffer<f32>> {
    /// One of the two workspaces of unpacked matrices. The other is [`Bf16HeadBuffers::dl`].
    pub(super) w: H,
    /// The adapters, rounded to `bf16`.
    pub(super) adapters: H,
    /// Queries and keys before RoPE, for models without head norms.
    pub(super) raw: [H; 2],
    /// The input of a projection after dropout or a gradient of it, and the sum of the masked
    /// gradient and a residual. Without dropout, both have rows of 8 elements.
    pub(super) masked: [H; 2],
    /// The padded `rank`: the gradient of `u` of each projection. Projections have separate
    /// buffers, so the gradients of one adapter can still run while the next `du` is computed.
    pub(super) du: [H; 7],
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: H,
    /// `hidden`: the gradient of a norm's output, and a partial sum of it. The partial sum has rows
    /// of 8 elements without dropout.
    pub(super) dx: [H; 2],
    /// `feed_forward`: the gradient of the down projection's input. It has rows of 8 elements
    /// without dropout.
    pub(super) da: H,
    /// `feed_forward`: the gradient of the gate projection's output.
    pub(super) dg: H,
    /// `feed_forward`: the gradient of the up projection's output.
    pub(super) dup: H,
    /// `heads * head_dim`: the gradient of attention's output.
    pub(super) grad: H,
    /// `heads`: the dot product of attention's output and its gradient, for each head.
    pub(super) delta: F,
    /// `heads * head_dim`: the gradient of the queries after RoPE.
    pub(super) dq_rotated: F,
    /// `heads * head_dim`: the gradients of the keys after RoPE and of the values, for each query
    /// head or summed over a group of heads.
    pub(super) parts: [F; 2],
    /// The gradients of the outputs of the Q, K and V projections.
    pub(super) dq: H,
    pub(super) dk: H,
    pub(super) dv: H,
}

impl Bf16Buffers {
    /// Allocates zeroed buffers on the device.
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
    /// Allocates all buffers with `halves` and `singles`, which take the label and the number of
    /// elements of each.
    ///
    /// The head has logits for `chunk` tokens at the same time, and `adapters` is the number of
    /// elements in all adapters.
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

/// Allocates buffers of the sizes of a step.
struct Bf16Allocator<'a, H, F> {
    sizes: &'a TrainingSizes,
    halves: &'a dyn Fn(&str, usize) -> Result<H, Error>,
    singles: &'a dyn Fn(&str, usize) -> Result<F, Error>,
}

impl<H, F> Bf16Allocator<'_, H, F> {
    /// Allocates a `bf16` buffer with a row of `len` elements for each token.
    fn half(&self, label: &str, len: u32) -> Result<H, Error> {
        (self.halves)(label, self.sizes.rows(len))
    }

    /// Allocates an `f32` buffer with a row of `len` elements for each token.
    fn single(&self, label: &str, len: u32) -> Result<F, Error> {
        (self.singles)(label, self.sizes.rows(len))
    }

    /// Allocates the activations of layer `l`.
    fn layer(&self, l: usize, shape: &Layers<'_>) -> Result<Bf16LayerBuffers<H, F>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            kv_heads,
            rank,
            ..
        } = *self.sizes;
        let queries = self.sizes.queries();
        let keys = self.sizes.keys();
        let half = |name: &str, len| self.half(&format!("{name} of layer {l}"), len);
        let single = |name: &str, len| self.single(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, len, heads| -> Result<Bf16RotatedBuffers<H, F>, Error> {
            let normed = if shape.head_norms {
                Some((
                    half(&format!("{name}, raw,"), len)?,
                    single(&format!("inv of {name}"), heads)?,
                ))
            } else {
                None
            };
            Ok(Bf16RotatedBuffers {
                normed,
                rotated: half(name, len)?,
            })
        };
        // Only the gradients of adapters read `u`.
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

    /// Allocates the buffers of the LM head. The gradients of its logits must fit `unpacked`
    /// weights.
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

    /// Allocates the scratch buffers, with room for `unpacked` weights.
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
        let queries = self.sizes.queries();
        let keys = self.sizes.keys();
        let du = |p: Projection| self.half(&format!("du of {}", p.name()), padded(rank));
        let [q, k, v, o, gate, up, down] = Projection::ALL.map(du);
        // Without dropout, fused kernels replace the ones that use these buffers.
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
