//! The adapters on the device: parameters, moments and gradients, in flat buffers of one layout.
//!
//! Flat buffers let one launch of AdamW, or of the gradient norm, process all adapters.

use std::ops::Range;

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, View};
use warpwright_kernels::train::optimizer::clip::PARTS;

use crate::projection::LayerProjection;
use crate::reference::Adapters;
use crate::{Config, Error, Lora, Projection};

/// The alignment of a tensor in a flat buffer, in elements.
///
/// Optimizer kernels process several elements at a time, and tensor maps require addresses that are
/// multiples of 16 bytes. The elements between two tensors are zero and stay zero.
const ALIGN: usize = 64;

/// The shapes in which a flat buffer stores the tensors of adapters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// A as `[rank, k]` and B as `[n, rank]`.
    Plain,
    /// A as `[rank, k]` and B transposed as `[rank, n]`, both padded with rows of zeros. The
    /// padding stays zero, because its gradients are sums of products with zeros.
    Padded {
        /// The rows of every tensor, including the padding.
        rank: usize,
    },
}

/// The position of a tensor in a flat buffer.
#[derive(Clone)]
struct AdapterSlice {
    range: Range<usize>,
    /// The rows and columns of the tensor, before it is transposed.
    shape: [usize; 2],
    transposed: bool,
}

impl AdapterSlice {
    /// Returns the index in the buffer of each element of the tensor, in row-major order.
    fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let [rows, columns] = self.shape;
        (0..rows * columns).map(move |i| {
            if self.transposed {
                i % columns * rows + i / columns
            } else {
                i
            }
        })
    }
}

/// The factors A and B of an adapter in a flat buffer.
pub(super) struct AdapterViews<T> {
    pub(super) a: View<T>,
    pub(super) b: View<T>,
}

/// The positions of all tensors in a flat buffer.
pub(super) struct AdapterLayout {
    /// The positions of A and B, by layer and projection.
    slices: Vec<[Option<[AdapterSlice; 2]>; 7]>,
    len: usize,
}

impl AdapterLayout {
    /// Returns the layout of the adapters of a model.
    pub(super) fn new(config: &Config, lora: &Lora, arrangement: Arrangement) -> AdapterLayout {
        let mut len = 0;
        let mut next_range = |elements: usize| {
            let start = len;
            len = (start + elements).next_multiple_of(ALIGN);
            start..start + elements
        };
        let rank = lora.rank;

        // The stored rows include padding, while `shape` has the rows that the host sees.
        let stored_rank = match arrangement {
            Arrangement::Plain => rank,
            Arrangement::Padded { rank } => rank,
        };
        let mut of = |p: Projection| {
            let [n, k] = p.shape(config);
            if !lora.targets.contains(&p) {
                return None;
            }

            let a = AdapterSlice {
                range: next_range(stored_rank * k),
                shape: [rank, k],
                transposed: false,
            };
            let b = AdapterSlice {
                range: next_range(stored_rank * n),
                shape: [n, rank],
                transposed: arrangement != Arrangement::Plain,
            };
            Some([a, b])
        };
        let slices = (0..config.layers)
            .map(|_| Projection::ALL.map(&mut of))
            .collect();
        AdapterLayout { slices, len }
    }

    /// Returns the position of each tensor, in the order of [`Adapters::tensors`].
    fn all(&self) -> impl Iterator<Item = &AdapterSlice> {
        self.slices.iter().flatten().flatten().flatten()
    }

    /// Returns the number of elements of a flat buffer.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the views of A and B of a projection, or `None` if it has no adapter.
    pub(super) fn views<T>(
        &self,
        buffer: &View<T>,
        of: LayerProjection,
    ) -> Option<AdapterViews<T>> {
        let [a, b] = self.slices[of.layer][of.projection as usize].as_ref()?;
        let view = |slice: &AdapterSlice| buffer.view_range(slice.range.clone());
        Some(AdapterViews {
            a: view(a),
            b: view(b),
        })
    }

    /// Returns the adapters as the contents of a flat buffer.
    fn flat(&self, adapters: &Adapters) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for (slice, tensor) in self.all().zip(adapters.tensors()) {
            let to = &mut flat[slice.range.clone()];
            for (i, &x) in slice.indices().zip(tensor) {
                to[i] = x as f32;
            }
        }
        flat
    }
}

/// The parameters, moments and gradients of all adapters in device memory.
pub(super) struct FlatAdapters {
    pub(super) layout: AdapterLayout,
    pub(super) parameters: Buffer<f32>,
    /// The first and the second moment.
    pub(super) moments: [Buffer<f32>; 2],
    pub(super) gradients: Buffer<f32>,
    /// The partial sums of squares of the gradients, for their norm.
    pub(super) squares: Buffer<f32>,
}

impl FlatAdapters {
    /// Copies the parameters to the device, and starts moments and gradients at zero.
    pub(super) fn new(
        context: &Context,
        layout: AdapterLayout,
        adapters: &Adapters,
    ) -> Result<FlatAdapters, Error> {
        let zeros = |label| Ok::<_, Error>(Buffer::zeroed(context, layout.len)?.labelled(label));
        Ok(FlatAdapters {
            parameters: Buffer::from_slice(context, &layout.flat(adapters))?.labelled("adapters"),
            moments: [zeros("first moments")?, zeros("second moments")?],
            gradients: zeros("gradients")?,
            squares: Buffer::zeroed(context, PARTS as usize)?.labelled("sums of squares"),
            layout,
        })
    }

    /// Copies a flat buffer to the host. `shapes` has the shapes of the adapters.
    pub(super) fn read(&self, buffer: &View<f32>, shapes: &Adapters) -> Result<Adapters, Error> {
        let flat = buffer.to_vec()?;
        let mut adapters = shapes.clone();
        for (slice, tensor) in self.layout.all().zip(adapters.tensors_mut()) {
            let from = &flat[slice.range.clone()];
            for (to, i) in tensor.iter_mut().zip(slice.indices()) {
                *to = from[i].into();
            }
        }
        Ok(adapters)
    }

    /// Copies adapters to a flat buffer.
    pub(super) fn write(&self, buffer: &View<f32>, adapters: &Adapters) -> Result<(), Error> {
        Ok(buffer.write(&self.layout.flat(adapters))?)
    }
}
