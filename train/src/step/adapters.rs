//! The adapters on the device: parameters, moments and gradients, each a flat buffer of the same layout.

use std::ops::Range;

use warpwright_driver::{Buffer, Context, View};

use crate::reference::Adapters;
use crate::{Error, Projection};

/// Kernels of the optimizer take this many elements at once, so each tensor begins at a multiple of it. What lies
/// between two tensors is zero and stays zero.
pub(super) const ALIGN: usize = 4;

/// Where each tensor is.
pub(super) struct Layout {
    /// For each layer and projection the places of A and B.
    places: Vec<[Option<[Range<usize>; 2]>; 7]>,
    len: usize,
}

impl Layout {
    /// Of adapters with these shapes.
    pub(super) fn of(adapters: &Adapters) -> Layout {
        let mut len = 0;
        let mut place = |tensor: &[f64]| {
            let start = len;
            len = (start + tensor.len()).next_multiple_of(ALIGN);
            start..start + tensor.len()
        };
        let places = adapters.layers.iter().map(|layer| {
            layer.each_ref().map(|adapter| adapter.as_ref().map(|of| [place(&of.a), place(&of.b)]))
        });
        let places = places.collect();
        Layout { places, len }
    }

    /// The places of every tensor, in the order of [`Adapters::tensors`].
    fn all(&self) -> impl Iterator<Item = &Range<usize>> {
        self.places.iter().flatten().flatten().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A and B of a projection, if it has an adapter.
    pub(super) fn of_projection(
        &self,
        buffer: &View<f32>,
        l: usize,
        p: Projection,
    ) -> Option<[View<f32>; 2]> {
        self.places[l][p as usize].clone().map(|places| places.map(|place| buffer.view_range(place)))
    }

    fn flat(&self, adapters: &Adapters) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for (place, tensor) in self.all().zip(adapters.tensors()) {
            flat[place.clone()].iter_mut().zip(tensor).for_each(|(to, &x)| *to = x as f32);
        }
        flat
    }
}

/// Parameters, moments and gradients.
pub(super) struct Flat {
    pub(super) layout: Layout,
    pub(super) parameters: Buffer<f32>,
    pub(super) moments: [Buffer<f32>; 2],
    pub(super) gradients: Buffer<f32>,
}

impl Flat {
    /// These parameters, and zeros.
    pub(super) fn new(context: &Context, adapters: &Adapters) -> Result<Flat, Error> {
        let layout = Layout::of(adapters);
        let zeros = |label| Ok::<_, Error>(Buffer::zeroed(context, layout.len)?.labelled(label));
        Ok(Flat {
            parameters: Buffer::from_slice(context, &layout.flat(adapters))?.labelled("adapters"),
            moments: [zeros("first moments")?, zeros("second moments")?],
            gradients: zeros("gradients")?,
            layout,
        })
    }

    /// Copies a buffer to the host. `shapes` has the shapes of the adapters.
    pub(super) fn read(&self, buffer: &View<f32>, shapes: &Adapters) -> Result<Adapters, Error> {
        let (flat, mut adapters) = (buffer.to_vec()?, shapes.clone());
        for (place, tensor) in self.layout.all().zip(adapters.tensors_mut()) {
            tensor.iter_mut().zip(&flat[place.clone()]).for_each(|(to, &x)| *to = x.into());
        }
        Ok(adapters)
    }

    /// Copies adapters to a buffer.
    pub(super) fn write(&self, buffer: &View<f32>, adapters: &Adapters) -> Result<(), Error> {
        Ok(buffer.write(&self.layout.flat(adapters))?)
    }
}
