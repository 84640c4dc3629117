//! Attention with grouped heads within documents, forward and backward.
//!
//! ```text
//! s   = q k^T / sqrt(d)                       for the keys that a token may see
//! o   = sum e^(s - max) v / sum e^(s - max)   lse = max + log sum e^(s - max)
//! D   = rowsum(do * o)                        P = e^(s - lse)
//! dv  = P^T do
//! ds  = P * (do v^T - D) / sqrt(d)
//! dq  = ds k                                  dk = ds^T q
//! ```
//!
//! The backward pass is FlashAttention-2's ([Dao, 2023](https://arxiv.org/abs/2307.08691)), which
//! needs `lse` and `D` in place of the matrix `P`. `dk` and `dv` are computed for each query head.
//! They are then summed over the heads of a group ([Ainslie et al.,
//! 2023](https://arxiv.org/abs/2305.13245)) in the order of the heads, so that every run gives
//! equal sums.
//!
//! The numerators `e^(s - max)`, `P` and `ds` are operands of matmuls and are rounded to the type
//! of the operands. `do v^T`, `D` and sums are not rounded.
//!
//! The kernels here are simple: a warp takes one query, or one key of one query head, and goes
//! through all tokens that it sees. [`flash`](super::flash) has the fast ones.

mod document;
mod gradients;
mod lanes;
mod reference;

pub use document::{DocumentAttention, DocumentAttentionArgs};
pub use gradients::{
    KeyGradients, KeyGradientsArgs, QueryGradients, QueryGradientsArgs, SumGroups, SumGroupsArgs,
};
pub use reference::{Heads, Saved, backward, causal, delta, forward, sum_groups};
