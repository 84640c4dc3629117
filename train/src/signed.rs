//! Kernel loading: the one place where this crate promises that its kernels are sound.
//!
//! The promise and its evidence are the same as in `warpwright_engine`, for the same crate of
//! kernels. For all arguments that its contract accepts, a kernel stays within its buffers and has
//! no races. The emulator runs every kernel over the edge cases of its contract. It places each
//! buffer by itself, so an access beyond the end is an error, and it reports races.

#![allow(unsafe_code)]

use ptx_gen::{KernelDef, TileOf, bf16};
use warpwright_driver::launch::{Kernel, MapArg};
use warpwright_driver::memory::{TensorMapBuilder, View};
use warpwright_driver::{Context, Error};

/// Loads a kernel of `warpwright_kernels`. Other kernels must not be passed, because nothing checks
/// them.
pub(crate) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    // SAFETY: this crate only passes kernels of `warpwright_kernels`, which the emulator has
    // checked. See the module documentation.
    unsafe { Kernel::load(context, kernel) }
}

/// Returns the tensor map of a matrix of `shape` rows and columns, for a kernel parameter that
/// copies tiles of this size. It is for kernels of `warpwright_kernels`, which define the tile of
/// each parameter.
pub(crate) fn map(
    matrix: &View<bf16>,
    shape: [u32; 2],
    tile: TileOf<bf16>,
) -> Result<MapArg, Error> {
    let [rows, columns] = shape.map(|n| n as usize);
    // SAFETY: the tile is the one that the kernel defines for the parameter.
    unsafe {
        TensorMapBuilder::matrix(matrix, rows, columns)
            .tile(tile)
            .arg()
    }
}
