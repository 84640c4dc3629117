//! What a prompt of many tokens at once needs besides products ([`matmul`](crate::matmul)): queries, keys and values of
//! consecutive positions, and causal attention over them.

mod attention;
mod rotate;

pub use attention::{PromptAttention, PromptAttentionArgs, PromptAttentionWgmma};
pub use rotate::{RotateTokens, RotateTokensArgs};
