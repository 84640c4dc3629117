//! `f16` values in the bytes of a block.

use ptx_gen::*;

/// Returns the `f16` value with these bits as `f32`.
pub(crate) fn f16_value(bits: u32) -> f32 {
    f16(bits as u16).to_f32()
}

/// Stores `v` as `f16` at byte `at`.
pub(crate) fn put_f16(block: &mut [u8], at: usize, v: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(v).0.to_le_bytes());
}
