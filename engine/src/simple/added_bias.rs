//! A bias that is added after a product.

use std::sync::Arc;

use warpwright_driver::Error;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_kernels::AddBias;
use warpwright_kernels::simple::add_bias::AddBiasArgs;

/// A bias and its kernel.
pub(crate) struct AddedBias {
    pub(crate) kernel: Arc<Kernel<AddBias>>,
    pub(crate) bias: View<f32>,
}

impl AddedBias {
    /// Queues `y += bias`.
    pub(crate) fn launch(&self, queue: &mut impl Queue, y: &View<f32>) -> Result<(), Error> {
        let args = AddBiasArgs::<Host> {
            bias: &self.bias,
            y,
            n: self.bias.len() as u32,
        };
        queue.launch(&self.kernel, args)
    }
}
