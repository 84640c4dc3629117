//! The input activations of a matmul.

use warpwright_driver::memory::{Buffer, f16};
use warpwright_driver::{Context, Error};

/// The input activations of a matmul: see `warpwright_kernels::matmul::activations`.
pub(crate) struct Panels {
    /// The values, `[n / 64, capacity, 64]`.
    pub(crate) values: Buffer<f16>,
    /// The power-of-two scale of each token, `[capacity]`.
    pub(crate) scale: Buffer<f32>,
}

impl Panels {
    /// Allocates zeroed activations. Rows that the pass does not write are multiplied and discarded,
    /// so they must be valid numbers.
    pub(crate) fn new(
        context: &Context,
        name: &str,
        capacity: u32,
        n: u32,
    ) -> Result<Panels, Error> {
        Ok(Panels {
            values: Buffer::zeroed(context, capacity as usize * n as usize)?.labelled(name),
            scale: Buffer::zeroed(context, capacity as usize)?.labelled(&format!("{name}.scale")),
        })
    }

    /// Allocates activations of which no kernel reads a row that the pass has not written.
    pub(crate) fn uninit(
        context: &Context,
        name: &str,
        capacity: u32,
        n: u32,
    ) -> Result<Panels, Error> {
        Ok(Panels {
            values: Buffer::uninit(context, capacity as usize * n as usize)?.labelled(name),
            scale: Buffer::uninit(context, capacity as usize)?.labelled(&format!("{name}.scale")),
        })
    }
}
