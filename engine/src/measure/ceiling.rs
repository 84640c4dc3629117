//! The kernel that shows how fast a device multiplies.

use warpwright_driver::{Context, Error, Kernel};
use warpwright_kernels::Multiply;

use crate::chunked::products::Cores;
use crate::signed;

/// Loads the kernel that measures how fast products can be, with the matrix instruction that prompts and batches go
/// through; none for a device without such products.
///
/// # Errors
/// What the generator, the compiler or the driver refuses.
pub fn load_multiply(context: &Context) -> Result<Option<Kernel<Multiply>>, Error> {
    Cores::of(context.device())
        .map(|cores| signed::load(context, cores.ceiling()))
        .transpose()
}
