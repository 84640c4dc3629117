//! The checks and sizes that the kernels of FlashAttention share.

use super::block::{self, TensorOp};
use crate::shared::Contract;
use crate::train::Storage;
use crate::train::attention::Heads;
use ptx_gen::ShapeError;
use std::ops::Range;

/// The largest number of dimensions of a head. The sums of more would not fit in registers.
pub(super) const MAX_HEAD_DIM: u32 = 128;

/// Checks the parts of the launch contract that all kernels share: the head length of the kernel,
/// and `tokens`, `heads` and `kv_heads`.
pub(super) fn check<K: Contract>(
    kernel: &K,
    head_dim: u32,
    [tokens, heads, kv_heads]: [u32; 3],
) -> Result<(), ShapeError> {
    kernel.multiple("the kernel's head_dim", head_dim, block::ROWS)?;
    kernel.range("the kernel's head_dim", head_dim, block::ROWS, MAX_HEAD_DIM)?;
    kernel.range("tokens", tokens, 1, 1 << 21)?;
    kernel.range("heads", heads, 1, 1 << 16)?;
    kernel.range("kv_heads", kv_heads, 1, 1 << 16)?;
    kernel.multiple("heads", heads, kv_heads)
}

/// Checks the head length of the kernel for its instruction.
pub(super) fn check_op<K: Contract>(
    kernel: &K,
    op: TensorOp,
    head_dim: u32,
) -> Result<(), ShapeError> {
    kernel.require(op == TensorOp::Mma || head_dim.is_multiple_of(64), || {
        format!("the kernel's head_dim is {head_dim}, must be 64 or 128 for `wgmma`")
    })
}

/// Checks the lengths of buffers `[tokens, heads, head_dim]`, `[tokens, kv_heads, head_dim]` and
/// `[tokens, heads]`.
pub(super) fn check_buffers<K: Contract>(
    kernel: &K,
    [tokens, heads, kv_heads, head_dim]: [u32; 4],
    of_heads: &[(&str, usize)],
    of_kv_heads: &[(&str, usize)],
    of_queries: &[(&str, usize)],
) -> Result<(), ShapeError> {
    for &(name, found) in of_heads {
        kernel.length(
            name,
            found,
            "tokens * heads * head_dim",
            &[tokens, heads, head_dim],
        )?;
    }

    for &(name, found) in of_kv_heads {
        kernel.length(
            name,
            found,
            "tokens * kv_heads * head_dim",
            &[tokens, kv_heads, head_dim],
        )?;
    }

    for &(name, found) in of_queries {
        kernel.length(name, found, "tokens * heads", &[tokens, heads])?;
    }

    Ok(())
}

/// Returns the heads for the reference, whose matmuls have bf16 operands.
pub(super) fn heads(
    head_dim: u32,
    heads: u32,
    kv_heads: u32,
    visible: &[Range<usize>],
) -> Heads<'_> {
    Heads::of_case(head_dim, heads, kv_heads, visible, Storage::Bf16)
}

/// Returns `1 / sqrt(head_dim)`.
pub(super) fn scale(head_dim: u32) -> f64 {
    f64::from(head_dim).sqrt().recip()
}

/// Returns the factor that brings scores to log2 units.
pub(super) fn log2_scale(head_dim: u32) -> f32 {
    (scale(head_dim) * std::f64::consts::LOG2_E) as f32
}
