//! The kernel that measures the compute ceiling of a device.

use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};
use warpwright_kernels::Multiply;

use crate::chunked::products::TensorCores;
use crate::signed;

/// Loads the kernel that measures the throughput of the matrix instruction used by prompts and
/// batches. Returns `None` if the device has no such instruction.
///
/// # Errors
/// Returns an error if the kernel cannot be generated, compiled or loaded.
pub fn load_multiply(context: &Context) -> Result<Option<Kernel<Multiply>>, Error> {
    TensorCores::of_device(context.device())
        .map(|cores| signed::load(context, cores.ceiling()))
        .transpose()
}
