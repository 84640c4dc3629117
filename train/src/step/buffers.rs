//! The activations that the forward pass keeps for the backward pass, and the workspace of an `f32`
//! step.
//!
//! `T` is the type of a buffer. Code that only counts memory uses `()` instead of a real buffer.

use warpwright_driver::Buffer;

use super::settings::Recomputation;
use super::sizes::TrainingSizes;
use crate::{Config, Error, Lora, Projection};

/// The activations, the LM head's buffers and the workspace of an `f32` step.
///
/// Shapes list the length of a token's row only. For example, `hidden` means `[tokens, hidden]`.
pub(super) struct F32Buffers<T = Buffer<f32>> {
    pub(super) kept: KeptActivations<T, F32LayerBuffers<T>>,
    pub(super) head: F32HeadBuffers<T>,
    pub(super) work: F32Workspace<T>,
}

/// The activations that the forward pass keeps for the backward pass.
///
/// `H` is the buffer type of the residual stream, and `L` holds the other activations of a layer.
pub(super) struct KeptActivations<H, L> {
    /// `hidden`: the residual stream before each layer, and after the last.
    pub(super) streams: Vec<H>,
    /// The activations of each layer, or one element that all layers share.
    layers: Vec<L>,
    /// The projection inputs of each layer, or one element that all layers share.
    inputs: Vec<ProjectionInputs<H>>,
}

/// The inputs of a layer's projections that are cheap to compute again from other activations.
pub(super) struct ProjectionInputs<H> {
    /// `hidden`: the input of the projections of queries, keys and values.
    pub(super) x1: H,
    /// `hidden`: the input of the gate and up projections.
    pub(super) x2: H,
    /// `feed_forward`: the input of the down projection.
    pub(super) a: H,
}

impl<H> ProjectionInputs<H> {
    /// Allocates the inputs with `rows`, which takes the name of a buffer and the length of its
    /// rows.
    pub(super) fn new(
        sizes: &TrainingSizes,
        rows: impl Fn(&str, u32) -> Result<H, Error>,
    ) -> Result<ProjectionInputs<H>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            ..
        } = *sizes;
        Ok(ProjectionInputs {
            x1: rows("x1", hidden)?,
            x2: rows("x2", hidden)?,
            a: rows("a", feed_forward)?,
        })
    }
}

impl<H, L> KeptActivations<H, L> {
    /// Allocates activations with functions that take the index of a layer.
    ///
    /// `stream` is also called with the number of layers, for the stream after the last layer.
    pub(super) fn new(
        shape: &Layers<'_>,
        stream: impl Fn(usize) -> Result<H, Error>,
        layer: impl Fn(usize) -> Result<L, Error>,
        inputs: impl Fn(usize) -> Result<ProjectionInputs<H>, Error>,
    ) -> Result<KeptActivations<H, L>, Error> {
        let count = shape.config.layers;
        // The layers can share buffers because the backward pass computes the activations of a
        // layer again right before it reads them. A model without layers needs none.
        let (layers, inputs_of) = match shape.recomputation {
            Recomputation::None => (count, count),
            Recomputation::Cheap => (count, count.min(1)),
            Recomputation::Layers => (count.min(1), count.min(1)),
        };
        Ok(KeptActivations {
            streams: (0..=count).map(stream).collect::<Result<_, _>>()?,
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
            inputs: (0..inputs_of).map(inputs).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of layers of the model.
    pub(super) fn layers(&self) -> usize {
        self.streams.len() - 1
    }

    /// Returns the buffers of the activations of layer `l`, which other layers may share.
    pub(super) fn layer(&self, l: usize) -> &L {
        &self.layers[l.min(self.layers.len() - 1)]
    }

    /// Returns the buffers of the projection inputs of layer `l`, which other layers may share.
    pub(super) fn inputs(&self, l: usize) -> &ProjectionInputs<H> {
        &self.inputs[l.min(self.inputs.len() - 1)]
    }

    /// Returns true if later layers have overwritten all activations of layer `l` when the backward
    /// pass reaches it.
    pub(super) fn is_overwritten(&self, l: usize) -> bool {
        self.layers.len() < self.layers() && l + 1 < self.layers()
    }

    /// Returns true if later layers have overwritten only the projection inputs of layer `l` when
    /// the backward pass reaches it.
    pub(super) fn inputs_are_overwritten(&self, l: usize) -> bool {
        self.inputs.len() < self.layers.len() && l + 1 < self.layers()
    }

    /// Returns the residual stream after the last layer.
    pub(super) fn last(&self) -> &H {
        &self.streams[self.layers()]
    }
}

/// The activations of a layer, named as in
/// [`LayerActivations`](crate::reference::LayerActivations).
pub(super) struct F32LayerBuffers<T = Buffer<f32>> {
    pub(super) inv1: T,
    pub(super) q: F32RotatedBuffers<T>,
    pub(super) k: F32RotatedBuffers<T>,
    pub(super) v: T,
    pub(super) o: T,
    pub(super) lse: T,
    pub(super) h1: T,
    pub(super) inv2: T,
    pub(super) g: T,
    pub(super) up: T,
    /// `rank`: `scale x A^T` of each projection that has an adapter.
    pub(super) u: [Option<T>; 7],
}

/// The queries or keys of a layer.
pub(super) struct F32RotatedBuffers<T = Buffer<f32>> {
    /// The input of the head norm and its `inv`, or `None` if the model has no head norms.
    pub(super) normed: Option<[T; 2]>,
    /// The queries or keys after RoPE.
    pub(super) rotated: T,
}

/// The buffers of the LM head.
pub(super) struct F32HeadBuffers<T = Buffer<f32>> {
    /// `hidden`: the output of the last norm.
    pub(super) x: T,
    pub(super) inv: T,
    /// `[chunk, vocab]`: the logits, which their gradients overwrite.
    pub(super) logits: T,
    pub(super) lse: T,
    pub(super) losses: T,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: T,
}

/// Scratch buffers, which all layers share.
pub(super) struct F32Workspace<T = Buffer<f32>> {
    /// An unpacked matrix.
    pub(super) w: T,
    /// The input of a projection after dropout, or a gradient of it. Fits the longest input.
    pub(super) masked: T,
    /// `rank`: the gradient of `u`.
    pub(super) du: T,
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: T,
    /// `hidden`: the gradient of the output of a norm.
    pub(super) dx: T,
    /// `feed_forward`: the gradient of the down projection's input.
    pub(super) da: T,
    /// `feed_forward`: the gradient of the gate projection's output.
    pub(super) dg: T,
    /// `feed_forward`: the gradient of the up projection's output.
    pub(super) dup: T,
    /// `heads * head_dim`: the gradient of attention's output.
    pub(super) grad: T,
    /// `heads`: the dot product of attention's output and its gradient, for each head.
    pub(super) delta: T,
    /// `heads * head_dim`: gradients of the queries after RoPE, and before the head norm.
    pub(super) dq: [T; 2],
    /// `heads * head_dim`: gradients of keys and values, separate for each query head.
    pub(super) parts: [T; 2],
    /// `kv_heads * head_dim`: gradients of the keys after RoPE, and before the head norm.
    pub(super) dk: [T; 2],
    /// `kv_heads * head_dim`: the gradient of the values.
    pub(super) dv: T,
}

impl<T> F32Buffers<T> {
    /// Allocates all buffers with `new`, which takes the label and the number of elements of each.
    ///
    /// The head has logits for `chunk` tokens at the same time.
    pub(super) fn new(
        sizes: &TrainingSizes,
        shape: &Layers<'_>,
        chunk: u32,
        new: &dyn Fn(&str, usize) -> Result<T, Error>,
    ) -> Result<F32Buffers<T>, Error> {
        let all = F32Allocator { sizes, new };
        let stream = |l| all.rows(&format!("h before layer {l}"), sizes.hidden);
        let inputs = |l| {
            ProjectionInputs::new(sizes, |name, len| {
                all.rows(&format!("{name} of layer {l}"), len)
            })
        };
        Ok(F32Buffers {
            kept: KeptActivations::new(shape, stream, |l| all.layer(l, shape), inputs)?,
            head: all.head(chunk)?,
            work: all.workspace()?,
        })
    }
}

/// The properties of a model's layers that determine their buffers.
pub(super) struct Layers<'a> {
    pub(super) config: &'a Config,
    pub(super) lora: &'a Lora,
    pub(super) head_norms: bool,
    pub(super) recomputation: Recomputation,
}

/// Allocates buffers of the sizes of a step.
struct F32Allocator<'a, T> {
    sizes: &'a TrainingSizes,
    new: &'a dyn Fn(&str, usize) -> Result<T, Error>,
}

impl<T> F32Allocator<'_, T> {
    /// Allocates a buffer with a row of `len` elements for each token.
    fn rows(&self, label: &str, len: u32) -> Result<T, Error> {
        self.elements(label, self.sizes.rows(len))
    }

    fn elements(&self, label: &str, len: usize) -> Result<T, Error> {
        (self.new)(label, len)
    }

    /// Allocates the activations of layer `l`.
    fn layer(&self, l: usize, shape: &Layers<'_>) -> Result<F32LayerBuffers<T>, Error> {
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
        let rows = |name: &str, len| self.rows(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, len, heads| -> Result<F32RotatedBuffers<T>, Error> {
            let normed = if shape.head_norms {
                Some([
                    rows(&format!("{name}, raw,"), len)?,
                    rows(&format!("inv of {name}"), heads)?,
                ])
            } else {
                None
            };
            Ok(F32RotatedBuffers {
                normed,
                rotated: rows(name, len)?,
            })
        };
        // Only the gradients of adapters read `u`.
        let mut u = [const { None }; 7];
        for p in &shape.lora.targets {
            u[*p as usize] = Some(rows(&format!("u of {}", p.name()), rank)?);
        }
        Ok(F32LayerBuffers {
            inv1: rows("inv1", 1)?,
            q: rotated("q", queries, heads)?,
            k: rotated("k", keys, kv_heads)?,
            v: rows("v", keys)?,
            o: rows("o", queries)?,
            lse: rows("lse", heads)?,
            h1: rows("h1", hidden)?,
            inv2: rows("inv2", 1)?,
            g: rows("g", feed_forward)?,
            up: rows("up", feed_forward)?,
            u,
        })
    }

    /// Allocates the buffers of the LM head.
    fn head(&self, chunk: u32) -> Result<F32HeadBuffers<T>, Error> {
        Ok(F32HeadBuffers {
            x: self.rows("x of the head", self.sizes.hidden)?,
            inv: self.rows("inv of the last norm", 1)?,
            logits: self.elements("logits", chunk as usize * self.sizes.vocab as usize)?,
            lse: self.rows("lse of the logits", 1)?,
            losses: self.rows("losses", 1)?,
            dx: self.rows("dx of the head", self.sizes.hidden)?,
        })
    }

    /// Allocates the scratch buffers.
    fn workspace(&self) -> Result<F32Workspace<T>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            rank,
            ..
        } = *self.sizes;
        let queries = self.sizes.queries();
        let keys = self.sizes.keys();
        let shapes = Projection::ALL.map(|p| self.sizes.of(p).map(|n| n as usize));
        // Matrices are unpacked one at a time, so a buffer for the largest fits them all.
        let matrix = shapes.map(|[n, k]| n * k).into_iter().max().unwrap_or(0);
        let input = hidden.max(feed_forward).max(queries);
        Ok(F32Workspace {
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
            parts: [
                self.rows("dk of each head", queries)?,
                self.rows("dv of each head", queries)?,
            ],
            dk: [self.rows("dk", keys)?, self.rows("dk, raw", keys)?],
            dv: self.rows("dv", keys)?,
        })
    }
}
