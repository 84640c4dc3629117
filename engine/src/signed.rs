//! Where this project signs for its own kernels: the one place that loads them.
//!
//! A kernel is loaded once for a promise: for all arguments that its contract accepts, its program stays within its
//! buffers, and no two of its threads use the same bytes, one of them writing, without an order. For the kernels of
//! `warpwright_kernels` the evidence is the emulator. There every buffer lies by itself with nothing around it, so that
//! an access beyond its end is an error and not a write to the neighbour, and races are errors, too. `cargo test -p
//! warpwright-kernels` and `warpwright check` run each kernel of the list over the edges of its contract.

#![allow(unsafe_code)]

use ptx_gen::KernelDef;
use warpwright_driver::{AnyFunction, Context, Error, Kernel, load_any};
use warpwright_kernels::{ALL, Read};

/// Loads a kernel of `warpwright_kernels`. It is not for any other.
pub(crate) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    // SAFETY: this crate only hands over kernels of `warpwright_kernels`; see above.
    unsafe { Kernel::load(context, kernel) }
}

/// Loads the kernel of that name from the list of `warpwright_kernels`; none if the list has no such kernel.
///
/// # Errors
/// What the generator, the compiler or the driver refuses.
pub fn load_listed(context: &Context, name: &str) -> Result<Option<AnyFunction<'static>>, Error> {
    let listed = ALL.iter().find(|kernel| kernel.name() == name);
    // SAFETY: it is a kernel of the list; see above.
    listed.map(|kernel| unsafe { load_any(context, *kernel) }).transpose()
}

/// Loads the kernel that measures the speed of reading.
///
/// # Errors
/// What the generator, the compiler or the driver refuses.
pub fn load_read(context: &Context, read: Read) -> Result<Kernel<Read>, Error> {
    load(context, read)
}
