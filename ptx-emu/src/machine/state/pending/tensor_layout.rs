//! The layout of boxes of tensors in shared memory.

use crate::module::tensor_map::TensorMap;

/// A box of a tensor.
#[derive(Debug)]
pub(crate) struct TensorBox {
    pub(crate) map: TensorMap,
    pub(crate) place: Vec<i32>,
}

/// Returns the swizzled position of a byte in shared memory (PTX ISA, "Swizzling Modes").
pub(crate) fn swizzled(address: u64, swizzle: u32) -> u64 {
    match swizzle {
        32 | 64 | 128 => address ^ (address >> 3 & u64::from(swizzle - 16)),
        _ => address,
    }
}
