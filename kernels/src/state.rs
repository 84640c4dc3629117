//! The decoder's state in device memory. A step reads and updates it there, so the host sends nothing per token.
//!
//! A `[u32; 8]`: the indices below; the remaining words are zero. Where many tokens are processed at once, each has a
//! state of its own, and a token whose state is done takes part in nothing.

/// Length of the state, in words.
pub const LEN: usize = 8;
/// The token that the next step embeds.
pub const TOKEN: u32 = 0;
/// Its position, from 0.
pub const POSITION: u32 = 1;
/// Whether decoding has ended: 0 or 1. Steps change nothing once it is 1.
pub const DONE: u32 = 2;
/// The choice of a step whose logits are not all finite. It ends decoding and changes neither token nor position, so
/// later steps compute the same logits, in which the host finds what is wrong.
pub const NO_TOKEN: u32 = u32::MAX;
/// Length of the prompt. While the next position is inside the prompt, the next token comes from the prompt instead
/// of from the model.
pub const PROMPT_LEN: u32 = 3;
/// The row of the page table that has the pages of the token's sequence: see [`cache`](crate::cache). Used where
/// sequences are stepped together; elsewhere it is 0, and so is what follows.
pub const SEQUENCE: u32 = 4;
/// Positions that the sequence has room for. A sequence is done when its next token would be at this position.
pub const LIMIT: u32 = 5;
