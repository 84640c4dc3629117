//! The pairs of dimensions that a rotary embedding rotates.

/// The dimensions of a head that form a rotary pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RopePairing {
    /// GPT-J style (interleaved): `(2j, 2j + 1)`. GGML calls it "normal". Llama files use it.
    Interleaved,
    /// GPT-NeoX style (half-split): `(j, j + rope_dim / 2)`. GGML calls it "NeoX". Qwen files use
    /// it.
    HalfSplit,
}
