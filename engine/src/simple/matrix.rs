//! A matrix and its GEMV kernel.

use std::sync::Arc;

use warpwright_driver::Error;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::simple::gemv::{GemvAddArgs, GemvArgs};
use warpwright_kernels::{Gemv, GemvAdd};

/// A matrix and its kernel. Matrices with the same format and team of threads share a kernel.
pub(crate) struct GemvMatrix<K> {
    pub(crate) kernel: Arc<Kernel<K>>,
    /// The weights, as the file stores them.
    pub(crate) w: View<u8>,
    pub(crate) rows: u32,
    pub(crate) n: u32,
}

impl GemvMatrix<Gemv> {
    /// Queues `y = W x`.
    pub(crate) fn launch(
        &self,
        queue: &mut impl Queue,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let GemvMatrix { kernel, w, rows, n } = self;
        queue.launch(
            kernel,
            GemvArgs {
                w,
                x,
                y,
                rows: *rows,
                n: *n,
            },
        )
    }
}

impl GemvMatrix<GemvAdd> {
    /// Queues `y += W x`.
    pub(crate) fn launch(
        &self,
        queue: &mut impl Queue,
        x: &View<f32>,
        y: &View<f32>,
    ) -> Result<(), Error> {
        let GemvMatrix { kernel, w, rows, n } = self;
        queue.launch(
            kernel,
            GemvAddArgs {
                w,
                x,
                y,
                rows: *rows,
                n: *n,
            },
        )
    }
}
