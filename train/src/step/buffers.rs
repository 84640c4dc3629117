//! The activations that the forward pass keeps for the backward pass, the LM head's buffers, and
//! the gradients that the passes hand from one operation to the next.
//!
//! `A` is the type of a buffer of activations and `S` of a buffer of `f32` sums. An [`Allocator`]
//! decides both, so that code which only counts memory uses `()` instead of real buffers.

use std::cell::Cell;
use std::marker::PhantomData;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, Element};

use super::sizes::TrainingSizes;
use crate::settings::{Recomputation, Settings};
use crate::{Config, Error, Lora};

/// The source of a step's buffers.
pub(super) trait Allocator {
    /// A buffer of activations.
    type Activations;
    /// A buffer of `f32` sums.
    type Sums;

    /// Allocates a labelled buffer of `len` activations.
    fn activations(&self, label: &str, len: usize) -> Result<Self::Activations, Error>;

    /// Allocates a labelled buffer of `len` sums.
    fn sums(&self, label: &str, len: usize) -> Result<Self::Sums, Error>;
}

/// An allocator of zeroed buffers in device memory, with activations of type `E`.
pub(super) struct DeviceAllocator<'a, E> {
    context: &'a Context,
    element: PhantomData<E>,
}

impl<'a, E> DeviceAllocator<'a, E> {
    /// Returns an allocator in a context.
    pub(super) fn new(context: &'a Context) -> DeviceAllocator<'a, E> {
        DeviceAllocator {
            context,
            element: PhantomData,
        }
    }
}

impl<E: Element> Allocator for DeviceAllocator<'_, E> {
    type Activations = Buffer<E>;
    type Sums = Buffer<f32>;

    fn activations(&self, label: &str, len: usize) -> Result<Buffer<E>, Error> {
        Ok(Buffer::zeroed(self.context, len)?.labelled(label))
    }

    fn sums(&self, label: &str, len: usize) -> Result<Buffer<f32>, Error> {
        Ok(Buffer::zeroed(self.context, len)?.labelled(label))
    }
}

/// An allocator that only adds up bytes, so that the code that allocates also counts, and the two
/// cannot disagree.
pub(super) struct ByteCounter {
    /// The size of an activation.
    element: usize,
    bytes: Cell<u64>,
}

impl ByteCounter {
    /// Returns a counter for activations of type `E`.
    pub(super) fn of<E>() -> ByteCounter {
        ByteCounter {
            element: size_of::<E>(),
            bytes: Cell::new(0),
        }
    }

    /// Returns the number of bytes counted so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    fn count(&self, size: usize, len: usize) {
        self.bytes.set(self.bytes.get() + size as u64 * len as u64);
    }
}

impl Allocator for ByteCounter {
    type Activations = ();
    type Sums = ();

    fn activations(&self, _: &str, len: usize) -> Result<(), Error> {
        self.count(self.element, len);
        Ok(())
    }

    fn sums(&self, _: &str, len: usize) -> Result<(), Error> {
        self.count(size_of::<f32>(), len);
        Ok(())
    }
}

/// The properties of a model and its training that determine the buffers of a step.
#[derive(Clone, Copy)]
pub(super) struct BufferShapes<'a> {
    pub(super) sizes: &'a TrainingSizes,
    pub(super) config: &'a Config,
    pub(super) lora: &'a Lora,
    pub(super) recomputation: Recomputation,
    /// The number of tokens whose logits are in memory at the same time.
    pub(super) head_chunk: u32,
    /// The rank with which `u` and its gradient are stored, including padding.
    pub(super) stored_rank: u32,
}

impl<'a> BufferShapes<'a> {
    /// Returns the properties of a training run.
    pub(super) fn new(
        settings: &'a Settings,
        sizes: &'a TrainingSizes,
        stored_rank: usize,
    ) -> BufferShapes<'a> {
        BufferShapes {
            sizes,
            config: &settings.config,
            lora: &settings.lora,
            recomputation: settings.recomputation,
            head_chunk: settings.chunk(),
            stored_rank: stored_rank as u32,
        }
    }
}

/// The buffers of a step that do not depend on its kernels.
///
/// Shapes list the length of a token's row only. For example, `hidden` means `[tokens, hidden]`.
pub(super) struct StepBuffers<A, S = Buffer<f32>> {
    pub(super) kept: KeptActivations<A, S>,
    pub(super) head: HeadBuffers<A, S>,
    pub(super) gradients: GradientBuffers<A, S>,
}

impl<A, S> StepBuffers<A, S> {
    /// Allocates all buffers.
    pub(super) fn new(
        allocator: &impl Allocator<Activations = A, Sums = S>,
        shapes: &BufferShapes<'_>,
    ) -> Result<StepBuffers<A, S>, Error> {
        let rows = RowAllocator {
            allocator,
            sizes: shapes.sizes,
        };
        Ok(StepBuffers {
            kept: KeptActivations::new(&rows, shapes)?,
            head: HeadBuffers::new(&rows, shapes.head_chunk)?,
            gradients: GradientBuffers::new(&rows)?,
        })
    }
}

/// Allocates buffers with a row for each token of a micro-batch.
pub(super) struct RowAllocator<'a, T> {
    pub(super) allocator: &'a T,
    pub(super) sizes: &'a TrainingSizes,
}

impl<T: Allocator> RowAllocator<'_, T> {
    /// Allocates activations with a row of `len` elements for each token.
    pub(super) fn activations(&self, label: &str, len: u32) -> Result<T::Activations, Error> {
        self.allocator.activations(label, self.sizes.rows(len))
    }

    /// Allocates sums with a row of `len` elements for each token.
    pub(super) fn sums(&self, label: &str, len: u32) -> Result<T::Sums, Error> {
        self.allocator.sums(label, self.sizes.rows(len))
    }
}

/// The activations that the forward pass keeps for the backward pass.
pub(super) struct KeptActivations<A, S> {
    /// `hidden`: the residual stream before each layer, and after the last.
    pub(super) streams: Vec<A>,
    /// The activations of each layer, or one element that all layers share.
    layers: Vec<LayerBuffers<A, S>>,
    /// The projection inputs of each layer, or one element that all layers share.
    inputs: Vec<ProjectionInputs<A>>,
}

impl<A, S> KeptActivations<A, S> {
    /// Allocates the activations, which layers share if the backward pass recomputes them.
    fn new(
        rows: &RowAllocator<'_, impl Allocator<Activations = A, Sums = S>>,
        shapes: &BufferShapes<'_>,
    ) -> Result<KeptActivations<A, S>, Error> {
        let count = shapes.config.layers;

        // The layers can share buffers because the backward pass computes the activations of a
        // layer again right before it reads them. A model without layers needs none.
        let (layers, inputs) = match shapes.recomputation {
            Recomputation::None => (count, count),
            Recomputation::Cheap => (count, count.min(1)),
            Recomputation::Layers => (count.min(1), count.min(1)),
        };
        let stream = |l| rows.activations(&format!("h before layer {l}"), rows.sizes.hidden);
        Ok(KeptActivations {
            streams: (0..=count).map(stream).collect::<Result<_, _>>()?,
            layers: (0..layers)
                .map(|l| LayerBuffers::new(rows, shapes, l))
                .collect::<Result<_, _>>()?,
            inputs: (0..inputs)
                .map(|l| ProjectionInputs::new(rows, l))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of layers of the model.
    pub(super) fn layers(&self) -> usize {
        self.streams.len() - 1
    }

    /// Returns the buffers of the activations of layer `l`, which other layers may share.
    pub(super) fn layer(&self, l: usize) -> &LayerBuffers<A, S> {
        &self.layers[l.min(self.layers.len() - 1)]
    }

    /// Returns the buffers of the projection inputs of layer `l`, which other layers may share.
    pub(super) fn inputs(&self, l: usize) -> &ProjectionInputs<A> {
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
    pub(super) fn last(&self) -> &A {
        &self.streams[self.layers()]
    }
}

/// The inputs of a layer's projections that are cheap to compute again from other activations.
pub(super) struct ProjectionInputs<A> {
    /// `hidden`: the input of the projections of queries, keys and values.
    pub(super) x1: A,
    /// `hidden`: the input of the gate and up projections.
    pub(super) x2: A,
    /// `feed_forward`: the input of the down projection.
    pub(super) a: A,
}

impl<A> ProjectionInputs<A> {
    fn new(
        rows: &RowAllocator<'_, impl Allocator<Activations = A>>,
        l: usize,
    ) -> Result<ProjectionInputs<A>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            ..
        } = *rows.sizes;
        let input = |name: &str, len| rows.activations(&format!("{name} of layer {l}"), len);
        Ok(ProjectionInputs {
            x1: input("x1", hidden)?,
            x2: input("x2", hidden)?,
            a: input("a", feed_forward)?,
        })
    }
}

/// The activations of a layer, named as in
/// [`LayerActivations`](crate::reference::LayerActivations).
pub(super) struct LayerBuffers<A, S = Buffer<f32>> {
    pub(super) inv1: S,
    pub(super) q: RotatedBuffers<A, S>,
    pub(super) k: RotatedBuffers<A, S>,
    pub(super) v: A,
    pub(super) o: A,
    pub(super) lse: S,
    pub(super) h1: A,
    pub(super) inv2: S,
    pub(super) g: A,
    pub(super) up: A,
    /// The stored `rank`: `scale x A^T` of each projection that has an adapter.
    pub(super) u: [Option<A>; 7],
}

impl<A, S> LayerBuffers<A, S> {
    fn new(
        rows: &RowAllocator<'_, impl Allocator<Activations = A, Sums = S>>,
        shapes: &BufferShapes<'_>,
        l: usize,
    ) -> Result<LayerBuffers<A, S>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            kv_heads,
            ..
        } = *rows.sizes;
        let queries = rows.sizes.queries();
        let keys = rows.sizes.keys();
        let activations = |name: &str, len| rows.activations(&format!("{name} of layer {l}"), len);
        let sums = |name: &str, len| rows.sums(&format!("{name} of layer {l}"), len);
        let rotated = |name: &str, len, heads| -> Result<RotatedBuffers<A, S>, Error> {
            let normed = if shapes.config.norms_heads() {
                Some(HeadNormBuffers {
                    x: activations(&format!("{name}, raw,"), len)?,
                    inv: sums(&format!("inv of {name}"), heads)?,
                })
            } else {
                None
            };
            Ok(RotatedBuffers {
                normed,
                rotated: activations(name, len)?,
            })
        };

        // Only the gradients of adapters read `u`.
        let mut u = [const { None }; 7];
        for p in &shapes.lora.targets {
            let label = format!("u of {}", p.name());
            u[*p as usize] = Some(activations(&label, shapes.stored_rank)?);
        }

        Ok(LayerBuffers {
            inv1: sums("inv1", 1)?,
            q: rotated("q", queries, heads)?,
            k: rotated("k", keys, kv_heads)?,
            v: activations("v", keys)?,
            o: activations("o", queries)?,
            lse: sums("lse", heads)?,
            h1: activations("h1", hidden)?,
            inv2: sums("inv2", 1)?,
            g: activations("g", feed_forward)?,
            up: activations("up", feed_forward)?,
            u,
        })
    }
}

/// The queries or keys of a layer.
pub(super) struct RotatedBuffers<A, S = Buffer<f32>> {
    /// The buffers of the head norm, or `None` if the model has no head norms.
    pub(super) normed: Option<HeadNormBuffers<A, S>>,
    /// The queries or keys after RoPE.
    pub(super) rotated: A,
}

/// The activations of a norm of queries or keys.
pub(super) struct HeadNormBuffers<A, S> {
    /// The input of the norm.
    pub(super) x: A,
    /// `heads`: the reciprocals by which the norm multiplies.
    pub(super) inv: S,
}

/// The buffers of the LM head.
pub(super) struct HeadBuffers<A, S> {
    /// `hidden`: the output of the last norm.
    pub(super) x: A,
    pub(super) inv: S,
    /// `[chunk, vocab]`
    pub(super) logits: S,
    pub(super) lse: S,
    pub(super) losses: S,
    /// `hidden`: the gradient of `x`.
    pub(super) dx: A,
}

impl<A, S> HeadBuffers<A, S> {
    fn new(
        rows: &RowAllocator<'_, impl Allocator<Activations = A, Sums = S>>,
        chunk: u32,
    ) -> Result<HeadBuffers<A, S>, Error> {
        let TrainingSizes { hidden, vocab, .. } = *rows.sizes;
        let logits = chunk as usize * vocab as usize;
        Ok(HeadBuffers {
            x: rows.activations("x of the head", hidden)?,
            inv: rows.sums("inv of the last norm", 1)?,
            logits: rows.allocator.sums("logits", logits)?,
            lse: rows.sums("lse of the logits", 1)?,
            losses: rows.sums("losses", 1)?,
            dx: rows.activations("dx of the head", hidden)?,
        })
    }
}

/// The gradients of activations, which all layers share.
pub(super) struct GradientBuffers<A, S> {
    /// `hidden`: the gradient of the residual stream.
    pub(super) dh: A,
    /// `hidden`: the gradient of the output of a norm.
    pub(super) dx: A,
    /// `feed_forward`: the gradient of the gate projection's output.
    pub(super) dg: A,
    /// `feed_forward`: the gradient of the up projection's output.
    pub(super) dup: A,
    /// `heads * head_dim`: the gradient of attention's output.
    pub(super) d_o: A,
    /// `heads`: the dot product of attention's output and its gradient, for each head.
    pub(super) delta: S,
    /// `heads * head_dim`: the gradients of the keys after RoPE, separate for each query head or
    /// summed over a group of heads.
    pub(super) dk_of_heads: S,
    /// `heads * head_dim`: the gradients of the values, like those of the keys.
    pub(super) dv_of_heads: S,
}

impl<A, S> GradientBuffers<A, S> {
    fn new(
        rows: &RowAllocator<'_, impl Allocator<Activations = A, Sums = S>>,
    ) -> Result<GradientBuffers<A, S>, Error> {
        let TrainingSizes {
            hidden,
            feed_forward,
            heads,
            ..
        } = *rows.sizes;
        let queries = rows.sizes.queries();
        Ok(GradientBuffers {
            dh: rows.activations("dh", hidden)?,
            dx: rows.activations("dx", hidden)?,
            dg: rows.activations("dg", feed_forward)?,
            dup: rows.activations("dup", feed_forward)?,
            d_o: rows.activations("do", queries)?,
            delta: rows.sums("delta", heads)?,
            dk_of_heads: rows.sums("dk of each head", queries)?,
            dv_of_heads: rows.sums("dv of each head", queries)?,
        })
    }
}
