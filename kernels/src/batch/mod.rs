//! Kernels for steps of many sequences, besides the matmuls ([`matmul`](crate::matmul)) and the
//! rotation ([`prompt`](crate::prompt)): attention of one token per sequence over [paged
//! caches](crate::shared::cache), the selection of rows for the LM head, the choice of the next
//! tokens, and [adapters](lora) of single rows.
//!
//! A row is a token. Its [`state`](crate::shared::state) contains its position and its sequence. A
//! row whose state is done is skipped. Grids follow only from lengths and counts, so a graph of
//! launches stays valid while positions change.

mod attention;
mod choose;
mod gather;
pub mod lora;
pub(crate) mod variants;

pub use attention::{BatchAttention, BatchAttentionArgs};
pub use choose::{ChooseTokens, ChooseTokensArgs};
pub use gather::{GatherRows, GatherRowsArgs};
