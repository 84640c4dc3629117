//! Where this project signs for its own kernels: the one place that loads them.
//!
//! A kernel is loaded once for a promise: for all arguments that its contract accepts, its program stays within its
//! buffers, and no two of its threads use the same bytes, one of them writing, without an order. For the kernels of
//! `warpwright_kernels` the evidence is the emulator. There every buffer lies by itself with nothing around it, so that
//! an access beyond its end is an error and not a write to the neighbour, and races are errors, too. `cargo test -p
//! warpwright-kernels` and `warpwright check` run each kernel of the list over the edges of its contract.

#![allow(unsafe_code)]

use ptx_gen::{CpuArg, KernelDef};
use warpwright_driver::{
    AnyFunction, Context, Element, Error, Kernel, MapArg, TensorMapBuilder, View, load_any,
};
use warpwright_kernels::{ALL, Read, Variant};

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
    listed
        .map(|kernel| unsafe { load_any(context, *kernel) })
        .transpose()
}

/// The tensor map of the matrix that a case gives a kernel of the list for this parameter, for the tile that the kernel
/// copies; none if the kernel has no such tensor.
///
/// # Errors
/// A view that is shorter than the matrix; what the driver refuses.
pub fn listed_map<T: Element>(
    kernel: &dyn Variant,
    param: &str,
    args: &[CpuArg],
    matrix: &View<T>,
) -> Result<Option<MapArg>, Error> {
    let copied = kernel
        .build()
        .ok()
        .and_then(|program| program.map_box(param));
    let Some((copied, [rows, columns])) = copied.zip(kernel.map_dims(param, args)) else {
        return Ok(None);
    };
    let [rows, columns] = [rows, columns].map(|n| n as usize);
    // SAFETY: the box is the one that the kernel's program copies.
    unsafe {
        TensorMapBuilder::matrix(matrix, rows, columns)
            .tile(copied)
            .arg()
    }
    .map(Some)
}

/// Loads the kernel that measures the speed of reading.
///
/// # Errors
/// What the generator, the compiler or the driver refuses.
pub fn load_read(context: &Context, read: Read) -> Result<Kernel<Read>, Error> {
    load(context, read)
}
