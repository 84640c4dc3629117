//! Attention within documents on tensor cores, forward and backward: the formulas of [`attention`](super::attention)
//! with operands in bf16 and sums in `f32`. sm_80; by `wgmma` sm_90a.
//!
//! [`FlashForward`] gives `o` and `lse`. [`FlashQueries`] gives `D` and `dq`, [`FlashKeys`] `dk` and `dv`. The backward
//! computes scores twice, and needs neither atomics nor an order between blocks: the same input gives the same bits.
//!
//! A block of four warps owns rows of a head: 64 or 128 queries, or 64 keys, a quarter to each warp, in shared memory. It
//! goes through the rows on the other side in steps. While it computes one, it copies the next into the other half of a
//! double buffer. All products are `mma.m16n8k16`, whose left rows are the warp's own; or the four warps multiply together
//! ([`TensorOp`]), by `wgmma`, which reads the rows of a step from shared memory once for all. A lane holds the sums of two
//! neighbouring columns, which is how it holds the left matrix of the next product too (Dao, FlashAttention-2, 2023): the
//! matrices of weights and of `ds` never leave their registers.
//!
//! | kernel | owns | steps of | products | sums |
//! |---|---|---|---|---|
//! | [`FlashForward`] | q | k, v | `q k^T`, `p v` | o |
//! | [`FlashQueries`] | q, do | k, v | `q k^T`, `do v^T`, `ds k` | dq |
//! | [`FlashKeys`] | k, v | q, do | `k q^T`, `v do^T`, `p^T do`, `ds^T q` | dk, dv |
//!
//! Scores are in log2 units from the first multiplication on: weights are `2^(s log2(e) / sqrt(d) - max)`. Those that are
//! operands are rounded to bf16; the denominator sums them as they were before.
//!
//! Documents need no padding and no order but their own. Steps begin at the first document of the block's queries, and
//! end at the last query, or where documents begin after the block's last key. Only a step with a pair that does not
//! count compares positions, with one comparison a pair: key `j` counts for query `i` if `j - start <= i - start`,
//! unsigned. Rows past the last token repeat it; they are not stored, and their weights are 0 where they would be summed.
//!
//! The first tokens of documents are in device memory, where no contract sees them. Results are wrong if they decrease or
//! lie after their token; but nothing is read or written outside of the arguments. A number that is not finite reaches the
//! results of all tokens of its step, where its weight is 0 or not.

mod block;
mod cases;
mod columns;
mod forward;
mod fragments;
mod keys;
mod queries;
mod softmax;
mod steps;

pub use block::TensorOp;
pub use forward::{FlashForward, FlashForwardArgs};
pub use keys::{FlashKeys, FlashKeysArgs, Parts};
pub use queries::{FlashQueries, FlashQueriesArgs};

use super::Storage;
use super::attention::Heads;
use crate::contract::Contract;
use ptx_gen::{ShapeError, bf16};
use std::ops::Range;

/// The most dimensions of a head: sums of more do not fit in registers.
const MAX_HEAD_DIM: u32 = 128;

/// Checks what the launch contracts of all share: the kernel's head length, and `tokens` `heads` and `kv_heads`.
fn check<K: Contract>(
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

/// Checks the kernel's head length for its instruction.
fn check_op<K: Contract>(kernel: &K, op: TensorOp, head_dim: u32) -> Result<(), ShapeError> {
    kernel.require(op == TensorOp::Mma || head_dim.is_multiple_of(64), || {
        format!(
            "the kernel's head_dim is {head_dim}, must be 64 or 128 for products of a warpgroup"
        )
    })
}

/// Checks the lengths of `[tokens, heads, head_dim]`, of `[tokens, kv_heads, head_dim]` and of `[tokens, heads]`.
fn check_lengths<K: Contract>(
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

/// The heads of a reference: operands of products are bf16.
fn heads(head_dim: u32, heads: u32, kv_heads: u32, visible: &[Range<usize>]) -> Heads<'_> {
    let [heads, kv_heads, head_dim] = [heads, kv_heads, head_dim].map(|n| n as usize);
    Heads {
        heads,
        kv_heads,
        head_dim,
        visible,
        operands: Storage::Bf16,
    }
}

/// The numbers of a buffer.
fn wide(buffer: &[bf16]) -> Vec<f64> {
    buffer.iter().map(|x| f64::from(x.to_f32())).collect()
}

/// `1 / sqrt(head_dim)`
fn scale(head_dim: u32) -> f64 {
    f64::from(head_dim).sqrt().recip()
}

/// The factor of scores in log2 units.
fn log2_scale(head_dim: u32) -> f32 {
    (scale(head_dim) * std::f64::consts::LOG2_E) as f32
}
