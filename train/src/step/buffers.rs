//! What the forward keeps for the backward, and workspace. `T` is a buffer, or its size where
//! memory is only counted.

use warpwright_driver::Buffer;

use super::settings::Recomputation;
use super::sizes::TrainingSizes;
use crate::{Config, Error, Lora, Projection};

/// Shapes are in rows of tokens: `hidden` means `[tokens, hidden]`.
pub(super) struct F32Buffers<T = Buffer<f32>> {
    pub(super) kept: KeptActivations<T, F32LayerBuffers<T>>,
    pub(super) head: F32HeadBuffers<T>,
    pub(super) work: F32Workspace<T>,
}

/// What the forward keeps for the backward: `H` is a tensor like the residual stream, `L` the
/// others of a layer.
pub(super) struct KeptActivations<H, L> {
    /// `hidden`: the residual stream before each layer, and after the last.
    pub(super) streams: Vec<H>,
    /// One for each layer, or one for all of them.
    layers: Vec<L>,
    /// Likewise.
    inputs: Vec<ProjectionInputs<H>>,
}

/// Inputs of a layer's projections that few operations make of what is kept besides.
pub(super) struct ProjectionInputs<H> {
    /// `hidden`: of queries, keys and values.
    pub(super) x1: H,
    /// `hidden`: of the feed-forward block.
    pub(super) x2: H,
    /// `feed_forward`: of its last projection.
    pub(super) a: H,
}

impl<H> ProjectionInputs<H> {
    /// Made by a function that is given the name and the length of a row.
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
    /// Made by functions that are given a layer, the last of them for the end.
    pub(super) fn new(
        shape: &Layers<'_>,
        stream: impl Fn(usize) -> Result<H, Error>,
        layer: impl Fn(usize) -> Result<L, Error>,
        inputs: impl Fn(usize) -> Result<ProjectionInputs<H>, Error>,
    ) -> Result<KeptActivations<H, L>, Error> {
        let count = shape.config.layers;
        let [layers, all] = match shape.recomputation {
            Recomputation::None => [count, count],
            Recomputation::Cheap => [count, count.min(1)],
            Recomputation::Layers => [count.min(1); 2],
        };
        Ok(KeptActivations {
            streams: (0..=count).map(stream).collect::<Result<_, _>>()?,
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
            inputs: (0..all).map(inputs).collect::<Result<_, _>>()?,
        })
    }

    /// The number of the model's layers.
    pub(super) fn layers(&self) -> usize {
        self.streams.len() - 1
    }

    pub(super) fn layer(&self, l: usize) -> &L {
        &self.layers[l.min(self.layers.len() - 1)]
    }

    pub(super) fn inputs(&self, l: usize) -> &ProjectionInputs<H> {
        &self.inputs[l.min(self.inputs.len() - 1)]
    }

    /// Whether what the forward left of a layer is gone when the backward comes to it.
    pub(super) fn is_overwritten(&self, l: usize) -> bool {
        self.layers.len() < self.layers() && l + 1 < self.layers()
    }

    /// Whether of what the forward left of a layer only the inputs of projections are gone then.
    pub(super) fn inputs_are_overwritten(&self, l: usize) -> bool {
        self.inputs.len() < self.layers.len() && l + 1 < self.layers()
    }

    /// The residual stream after the last layer.
    pub(super) fn last(&self) -> &H {
        &self.streams[self.layers()]
    }
}

/// What the forward keeps of a layer; the names are those of
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
    /// `rank` of each projection with an adapter.
    pub(super) u: [Option<T>; 7],
}

/// Queries or keys.
pub(super) struct F32RotatedBuffers<T = Buffer<f32>> {
    /// Before the head norm, and its `inv`; none without one.
    pub(super) normed: Option<[T; 2]>,
    pub(super) rotated: T,
}

/// What the head gives.
pub(super) struct F32HeadBuffers<T = Buffer<f32>> {
    /// `hidden`: what the last norm gave.
    pub(super) x: T,
    pub(super) inv: T,
    /// `[chunk, vocab]`: logits, then their gradients.
    pub(super) logits: T,
    pub(super) lse: T,
    pub(super) losses: T,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: T,
}

/// What no kernel needs for long.
pub(super) struct F32Workspace<T = Buffer<f32>> {
    /// A matrix, unpacked.
    pub(super) w: T,
    /// The longest input of a projection, with dropout; or a gradient of it.
    pub(super) masked: T,
    /// `rank`
    pub(super) du: T,
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: T,
    /// `hidden`: the gradient of what a norm gave.
    pub(super) dx: T,
    /// `feed_forward`
    pub(super) da: T,
    pub(super) dg: T,
    pub(super) dup: T,
    /// Queries: the gradient of attention's output.
    pub(super) grad: T,
    /// `heads`
    pub(super) delta: T,
    /// Queries: gradients of the rotated queries, and through their norm.
    pub(super) dq: [T; 2],
    /// Queries: gradients of keys and values of each query head.
    pub(super) parts: [T; 2],
    /// Keys: gradients of the rotated keys, and through their norm.
    pub(super) dk: [T; 2],
    /// Keys
    pub(super) dv: T,
}

impl<T> F32Buffers<T> {
    /// For weights and adapters like these; `chunk` tokens have logits at once. `new` makes a
    /// buffer of so many elements.
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

/// What tells layers apart.
pub(super) struct Layers<'a> {
    pub(super) config: &'a Config,
    pub(super) lora: &'a Lora,
    pub(super) head_norms: bool,
    pub(super) recomputation: Recomputation,
}

struct F32Allocator<'a, T> {
    sizes: &'a TrainingSizes,
    new: &'a dyn Fn(&str, usize) -> Result<T, Error>,
}

impl<T> F32Allocator<'_, T> {
    fn rows(&self, label: &str, len: u32) -> Result<T, Error> {
        self.elements(label, self.sizes.rows(len))
    }

    fn elements(&self, label: &str, len: usize) -> Result<T, Error> {
        (self.new)(label, len)
    }

    fn layer(&self, l: usize, shape: &Layers<'_>) -> Result<F32LayerBuffers<T>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            kv_heads,
            rank,
            ..
        } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let rows = |name: &str, len| self.rows(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, len, heads| -> Result<F32RotatedBuffers<T>, Error> {
            let normed = match shape.head_norms {
                true => Some([
                    rows(&format!("{name}, raw,"), len)?,
                    rows(&format!("inv of {name}"), heads)?,
                ]),
                false => None,
            };
            Ok(F32RotatedBuffers {
                normed,
                rotated: rows(name, len)?,
            })
        };
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

    fn workspace(&self) -> Result<F32Workspace<T>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            rank,
            ..
        } = *self.sizes;
        let (queries, keys) = (self.sizes.queries(), self.sizes.keys());
        let shapes = Projection::ALL.map(|p| self.sizes.of(p).map(|n| n as usize));
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
