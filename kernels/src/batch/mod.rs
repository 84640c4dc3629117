//! What stepping many sequences together needs besides products ([`matmul`](crate::matmul)) and the rotation of
//! [`prompt`](crate::prompt): attention of one token of each sequence over paged caches ([`cache`](crate::cache)), the
//! rows that the head is computed for, and the choice of their next tokens.
//!
//! A row is a token. Its state ([`state`](crate::state)) says its position and its sequence; a row whose state is done
//! takes part in nothing. Grids follow from lengths and counts alone, so that a graph of launches stays valid while
//! positions change.

mod attention;
mod choose;
mod gather;

pub use attention::{BatchAttention, BatchAttentionArgs};
pub use choose::{ChooseTokens, ChooseTokensArgs};
pub use gather::{GatherRows, GatherRowsArgs};
