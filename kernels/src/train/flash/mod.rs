//! Attention within documents on tensor cores, forward and backward.
//!
//! The formulas are those of [`attention`](super::attention), with bf16 operands and `f32` sums.
//! The algorithm is FlashAttention-2 ([Dao, 2023](https://arxiv.org/abs/2307.08691)). The kernels
//! need sm_80, and those that use `wgmma` need sm_90a.
//!
//! [`FlashForward`] computes `o` and `lse`. [`FlashQueries`] computes `D` and `dq`, and
//! [`FlashKeys`] computes `dk` and `dv`. The backward pass computes the scores twice. In return it
//! needs neither atomics nor an order of the blocks, and equal inputs give equal bits.
//!
//! A block of four warps owns rows of a head in shared memory: 64 or 128 queries, or 64 keys. Each
//! warp has a quarter of them. The block goes through the rows of the other side in steps. While it
//! computes a step, it copies the next one into the other half of a double buffer.
//!
//! The matmuls use `mma.m16n8k16` with the warp's rows as the left operand, or `wgmma`, with which
//! the four warps multiply together ([`TensorOp`]). `wgmma` reads the rows of a step from shared
//! memory once for all warps. A lane holds the sums of two neighboring columns, and this is also
//! the layout of the left operand of the next matmul (Dao, 2023). The matrices of weights and of
//! `ds` therefore never leave the registers.
//!
//! | kernel | owns | steps over | matmuls | sums |
//! |---|---|---|---|---|
//! | [`FlashForward`] | q | k, v | `q k^T`, `p v` | o |
//! | [`FlashQueries`] | q, do | k, v | `q k^T`, `do v^T`, `ds k` | dq |
//! | [`FlashKeys`] | k, v | q, do | `k q^T`, `v do^T`, `p^T do`, `ds^T q` | dk, dv |
//!
//! Scores are in log2 units from the first multiplication on: a weight is `2^(s log2(e) / sqrt(d) -
//! max)`. Weights that are operands are rounded to bf16. The denominator sums the weights before
//! the rounding.
//!
//! # Documents
//!
//! Documents need no padding. Steps begin at the first document of the block's queries. They end at
//! the last query, or at the first document that begins after the block's last key. Only a step
//! with a masked pair compares positions, with one comparison per pair: query `i` sees key `j` if
//! `j - start <= i - start` as unsigned integers. Rows past the last token repeat that token. They
//! are not stored, and their weights are 0 in every sum over them.
//!
//! The first tokens of the documents are in device memory, where no launch contract can check them.
//! If they decrease or lie after their token, the results are wrong, but no access is out of
//! bounds. A number that is not finite reaches the results of all tokens of its step, even with a
//! weight of 0.

mod block;
mod cases;
mod columns;
mod common;
mod forward;
mod fragments;
mod key_args;
mod keys;
mod queries;
mod softmax;
mod steps;
pub(crate) mod variants;

pub use block::TensorOp;
pub use forward::{FlashForward, FlashForwardArgs};
pub use key_args::FlashKeysArgs;
pub use keys::{FlashKeys, SummedHeads};
pub use queries::{FlashQueries, FlashQueriesArgs};
