//! The adapters on the device: parameters, moments and gradients, each a flat buffer of the same
//! layout.

use std::ops::Range;

use warpwright_driver::{Buffer, Context, View};
use warpwright_kernels::train::clip::PARTS;

use crate::reference::Adapters;
use crate::{Config, Error, Lora, Projection};

/// Each tensor begins at a multiple of this many elements: kernels of the optimizer take some at
/// once, and tensor maps want addresses of multiples of 16 bytes. What lies between two tensors is
/// zero and stays zero.
const ALIGN: usize = 64;

/// How tensors lie in a flat buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// A `[rank, k]` and B `[n, rank]`, as they are.
    Plain,
    /// A `[rank, k]` and B transposed, `[rank, n]`, both with so many rows. The rows that the rank
    /// leaves over are zeros and stay zeros: their gradients are sums of products with zeros.
    Padded {
        /// Rows of every tensor.
        rank: u32,
    },
}

/// Where a tensor is.
#[derive(Clone)]
struct AdapterSlice {
    range: Range<usize>,
    /// Rows and columns of the tensor.
    shape: [usize; 2],
    transposed: bool,
}

impl AdapterSlice {
    /// The index in the buffer of each number of the tensor.
    fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let [rows, columns] = self.shape;
        (0..rows * columns).map(move |i| match self.transposed {
            true => i % columns * rows + i / columns,
            false => i,
        })
    }
}

/// Where each tensor is.
pub(super) struct AdapterLayout {
    /// For each layer and projection the places of A and B.
    places: Vec<[Option<[AdapterSlice; 2]>; 7]>,
    len: usize,
}

impl AdapterLayout {
    /// Of the adapters of a model.
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
        let (rank, transposed) = (lora.rank, arrangement != Arrangement::Plain);
        let rows = match arrangement {
            Arrangement::Plain => rank,
            Arrangement::Padded { rank } => rank as usize,
        };
        let mut of = |p: Projection| {
            let [n, k] = p.shape(config);
            let both = || {
                [
                    place([rank, k], false, rows * k),
                    place([n, rank], transposed, rows * n),
                ]
            };
            lora.targets.contains(&p).then(both)
        };
        let places = (0..config.layers)
            .map(|_| Projection::ALL.map(&mut of))
            .collect();
        AdapterLayout { places, len }
    }

    /// The places of every tensor, in the order of [`Adapters::tensors`].
    fn all(&self) -> impl Iterator<Item = &AdapterSlice> {
        self.places.iter().flatten().flatten().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A and B of a projection, if it has an adapter.
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

    fn flat(&self, adapters: &Adapters) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for (place, tensor) in self.all().zip(adapters.tensors()) {
            let to = &mut flat[place.range.clone()];
            place
                .indices()
                .zip(tensor)
                .for_each(|(i, &x)| to[i] = x as f32);
        }
        flat
    }
}

/// Parameters, moments and gradients.
pub(super) struct Flat {
    pub(super) layout: AdapterLayout,
    pub(super) parameters: Buffer<f32>,
    pub(super) moments: [Buffer<f32>; 2],
    pub(super) gradients: Buffer<f32>,
    /// Sums of squares of the gradients.
    pub(super) squares: Buffer<f32>,
}

impl Flat {
    /// These parameters, and zeros.
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

    /// Copies a buffer to the host. `shapes` has the shapes of the adapters.
    pub(super) fn read(&self, buffer: &View<f32>, shapes: &Adapters) -> Result<Adapters, Error> {
        let (flat, mut adapters) = (buffer.to_vec()?, shapes.clone());
        for (place, tensor) in self.layout.all().zip(adapters.tensors_mut()) {
            let from = &flat[place.range.clone()];
            tensor
                .iter_mut()
                .zip(place.indices())
                .for_each(|(to, i)| *to = from[i].into());
        }
        Ok(adapters)
    }

    /// Copies adapters to a buffer.
    pub(super) fn write(&self, buffer: &View<f32>, adapters: &Adapters) -> Result<(), Error> {
        Ok(buffer.write(&self.layout.flat(adapters))?)
    }
}
