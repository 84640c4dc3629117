//! LoRA adapters in steps of many rows, of which each has its own adapter or none (Hu et al.,
//! "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685).
//!
//! The adapters of a matrix are in two buffers with one slice per adapter: `s A`, and B transposed.
//! The state of a row contains the index of its slice
//! ([`ADAPTER`](crate::shared::state::ADAPTER)). [`BatchLoraShrink`] computes `u = s A x` from the
//! input of a matmul, before or after the matmul itself. The other kernels add `B u` to the results
//! of a matmul:
//!
//! - [`BatchLoraAdd`] adds it to sums in `f32`.
//! - [`BatchLoraAppend`] adds it to queries, keys and values that are rotated and appended already.
//! - [`GateTokens`] gates the sums of gate and up after the addition. The epilogue of the matmul
//!   cannot, because the gate is not linear.
//!
//! Rows without an adapter are neither read nor written, except by [`GateTokens`], which computes
//! the same bits as the epilogue. The results of a row depend on this row alone, and not on its
//! neighbors or on the number of rows per block.

mod adapter_row;
mod add;
mod append;
mod gate;
mod parts;
mod shrink;

pub use add::{BatchLoraAdd, BatchLoraAddArgs};
pub use append::{BatchLoraAppend, BatchLoraAppendArgs};
pub use gate::{GateTokens, GateTokensArgs};
pub use parts::LoraParts;
pub use shrink::{BatchLoraShrink, BatchLoraShrinkArgs};
