//! The adapters on the device: parameters, moments and gradients, in flat buffers of one layout.
//!
//! Flat buffers let one launch of AdamW, or of the gradient norm, process all adapters.

use std::ops::Range;

use warpwright_driver::{Buffer, Context, View};
use warpwright_kernels::train::clip::PARTS;

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
        rank: u32,
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

/// The positions of all tensors in a flat buffer.
pub(super) struct AdapterLayout {
    /// The places of A and B, by layer and projection.
    places: Vec<[Option<[AdapterSlice; 2]>; 7]>,
    len: usize,
}

impl AdapterLayout {
    /// Returns the layout of the adapters of a model.
    pub(super) fn of(config: &Config, lora: &Lora, arrangement: Arrangement) -> AdapterLayout {
        let mut len = 0;
        let mut place = |[rows, columns]: [usize; 2], transposed: bool, stored: usize| {
            let start = len;
            len = (start + stored).next_multiple_of(ALIGN);
            AdapterSlice {
                range: start..start + stored,
                shape: [rows, columns],
                transposed,
            }
        };
        let rank = lora.rank;
        let transposed = arrangement != Arrangement::Plain;
        // The stored rows include padding, while `shape` has the rows that the host sees.
        let rows = match arrangement {
            Arrangement::Plain => rank,
            Arrangement::Padded { rank } => rank as usize,
        };
        let mut of = |p: Projection| {
            let [n, k] = p.shape(config);
            if !lora.targets.contains(&p) {
                return None;
            }
            let a = place([rank, k], false, rows * k);
            let b = place([n, rank], transposed, rows * n);
            Some([a, b])
        };
        let places = (0..config.layers)
            .map(|_| Projection::ALL.map(&mut of))
            .collect();
        AdapterLayout { places, len }
    }

    /// Returns the place of each tensor, in the order of [`Adapters::tensors`].
    fn all(&self) -> impl Iterator<Item = &AdapterSlice> {
        self.places.iter().flatten().flatten().flatten()
    }

    /// Returns the number of elements of a flat buffer.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the views of A and B of a projection, or `None` if it has no adapter.
    pub(super) fn of_projection<T>(
        &self,
        buffer: &View<T>,
        l: usize,
        p: Projection,
    ) -> Option<[View<T>; 2]> {
        let places = self.places[l][p as usize].as_ref();
        places.map(|places| {
            places
                .each_ref()
                .map(|place| buffer.view_range(place.range.clone()))
        })
    }

    /// Returns the adapters as the contents of a flat buffer.
    fn flat(&self, adapters: &Adapters) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for (place, tensor) in self.all().zip(adapters.tensors()) {
            let to = &mut flat[place.range.clone()];
            for (i, &x) in place.indices().zip(tensor) {
                to[i] = x as f32;
            }
        }
        flat
    }
}

/// The parameters, moments and gradients of all adapters in device memory.
pub(super) struct Flat {
    pub(super) layout: AdapterLayout,
    pub(super) parameters: Buffer<f32>,
    /// The first and the second moment.
    pub(super) moments: [Buffer<f32>; 2],
    pub(super) gradients: Buffer<f32>,
    /// The partial sums of squares of the gradients, for their norm.
    pub(super) squares: Buffer<f32>,
}

impl Flat {
    /// Copies the parameters to the device, and starts moments and gradients at zero.
    pub(super) fn new(
        context: &Context,
        layout: AdapterLayout,
        adapters: &Adapters,
    ) -> Result<Flat, Error> {
        let zeros = |label| Ok::<_, Error>(Buffer::zeroed(context, layout.len)?.labelled(label));
        Ok(Flat {
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
        for (place, tensor) in self.layout.all().zip(adapters.tensors_mut()) {
            let from = &flat[place.range.clone()];
            for (to, i) in tensor.iter_mut().zip(place.indices()) {
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
