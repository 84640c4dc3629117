//! Attention and rotation for many tokens of one or several sequences, over the
//! [paged](crate::shared::cache) KV cache. The matmuls are in [`matmul`](crate::matmul).

mod attention;
mod item;
mod rotate;
pub(crate) mod variants;

pub use attention::{PromptAttention, PromptAttentionArgs, PromptAttentionWgmma};
pub use item::{ChunkItems, ChunkItemsArgs, Item};
pub use rotate::{RotateTokens, RotateTokensArgs};
