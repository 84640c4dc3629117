//! What tokens of one or of several sequences need at once besides products ([`matmul`](crate::matmul)): queries, keys
//! and values, and causal attention over the [paged](crate::cache) KV cache.

mod attention;
mod item;
mod rotate;

pub use attention::{PromptAttention, PromptAttentionArgs, PromptAttentionWgmma};
pub use item::{ChunkItems, ChunkItemsArgs, Item};
pub use rotate::{RotateTokens, RotateTokensArgs};
