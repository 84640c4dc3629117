//! Where this crate signs for its kernels: the one place that loads them.
//!
//! The promise and its evidence are those of `warpwright_engine`, which signs for the same crate of kernels: for all
//! arguments that its contract accepts, a kernel stays within its buffers and has no races. The emulator, where every
//! buffer lies by itself and races are errors, runs each of them over the edges of its contract.

#![allow(unsafe_code)]

use ptx_gen::{KernelDef, TileOf, bf16};
use warpwright_driver::{Context, Error, Kernel, MapArg, TensorMapBuilder, View};

/// Loads a kernel of `warpwright_kernels`. It is not for any other.
pub(crate) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    // SAFETY: this crate only hands over kernels of `warpwright_kernels`; see above.
    unsafe { Kernel::load(context, kernel) }
}

/// The tensor map of a matrix of so many rows and columns, for a parameter that copies such tiles. It is for kernels of
/// `warpwright_kernels`, which say the tile of each parameter.
pub(crate) fn map(
    matrix: &View<bf16>,
    shape: [u32; 2],
    tile: TileOf<bf16>,
) -> Result<MapArg, Error> {
    let [rows, columns] = shape.map(|n| n as usize);
    // SAFETY: the kernel has told the tile.
    unsafe {
        TensorMapBuilder::matrix(matrix, rows, columns)
            .tile(tile)
            .arg()
    }
}
