//! The arguments of [`FlashKeys`](super::FlashKeys).

use ptx_gen::*;

args! {
    /// Arguments of [`FlashKeys`](super::FlashKeys).
    pub struct FlashKeysArgs {
        /// `[tokens, heads, head_dim]`: the rotated queries
        q: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the rotated keys
        k: In<bf16>,
        /// `[tokens, kv_heads, head_dim]`: the values
        v: In<bf16>,
        /// `[tokens]`: the index of the first token of each token's document, at most the token's.
        /// It must not decrease.
        starts: In<u32>,
        /// `[tokens, heads]`: the logarithms of the forward pass
        lse: In<f32>,
        /// `[tokens, heads, head_dim]`: the gradient of `o`
        grad: In<bf16>,
        /// `[tokens, heads]`: `D`, the result of [`FlashQueries`](super::FlashQueries)
        delta: In<f32>,
        /// `[tokens, heads, head_dim]` or `[tokens, kv_heads, head_dim]`, as
        /// [`SummedHeads`](super::SummedHeads) says: the gradient of the rotated keys
        dk: Out<f32>,
        /// The gradient of the values, with the shape of `dk`.
        dv: Out<f32>,
        /// The number of tokens of all documents.
        tokens: u32,
        /// The number of query heads.
        heads: u32,
        /// The number of key-value heads, a divisor of `heads`.
        kv_heads: u32,
    }
}
