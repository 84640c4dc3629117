//! Kernel loading: the one place where this project promises that its own kernels are sound.
//!
//! Loading a kernel requires a promise. For all arguments that its contract accepts, the program
//! must stay within its buffers, and no two threads may access the same bytes without ordering if
//! one of them writes. The emulator is our evidence for the kernels of `warpwright_kernels`. It
//! places every buffer by itself, so an access beyond the end is an error instead of a write to a
//! neighbor, and it reports races. `cargo test -p warpwright-kernels` and `warpwright check` run
//! every listed kernel over the edge cases of its contract.

#![allow(unsafe_code)]

use ptx_gen::{CpuArg, KernelDef};
use warpwright_driver::launch::{AnyFunction, Kernel, MapArg, load_any};
use warpwright_driver::memory::{Element, TensorMapBuilder, View};
use warpwright_driver::{Context, Error};
use warpwright_kernels::{ALL, Read, Variant};

/// Loads a kernel of `warpwright_kernels`. Other kernels must not be passed, because nothing checks
/// them.
pub(crate) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    // SAFETY: this crate only passes kernels of `warpwright_kernels`, which the emulator has
    // checked. See the module documentation.
    unsafe { Kernel::load(context, kernel) }
}

/// Loads the kernel with this name from the list of `warpwright_kernels`, or returns `None` if the
/// list has no such kernel.
///
/// # Errors
/// Returns an error if the kernel cannot be generated, compiled or loaded.
pub fn load_listed(context: &Context, name: &str) -> Result<Option<AnyFunction<'static>>, Error> {
    let listed = ALL.iter().find(|kernel| kernel.name() == name);
    // SAFETY: the kernel is on the list that the emulator checks. See the module documentation.
    listed
        .map(|kernel| unsafe { load_any(context, *kernel) })
        .transpose()
}

/// Returns the tensor map that a listed kernel expects for the parameter `param`, or `None` if the
/// parameter is not a tensor map.
///
/// `args` are the arguments of a test case, from which the dimensions of the matrix follow.
/// `matrix` is its data on the device. The tile is the one that the kernel's program copies.
///
/// # Errors
/// Returns an error if `matrix` is shorter than the dimensions require, or if the driver rejects
/// the map.
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

    // SAFETY: the tile is the one that the kernel's program copies.
    unsafe {
        TensorMapBuilder::matrix(matrix, rows, columns)
            .tile(copied)
            .arg()
    }
    .map(Some)
}

/// Loads the kernel that measures the memory bandwidth of reads.
///
/// # Errors
/// Returns an error if the kernel cannot be generated, compiled or loaded.
pub fn load_read(context: &Context, read: Read) -> Result<Kernel<Read>, Error> {
    load(context, read)
}
