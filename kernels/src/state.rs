//! The decoder's state in device memory, as a `[u32; 8]`.
//!
//! A decode step reads and updates the state on the device, so the host sends nothing per token.
//! The constants below are the indices. The remaining words are zero. If several tokens are
//! processed at once, each has its own state. A token whose state is [`DONE`] is skipped.

/// The number of words of the state.
pub const LEN: usize = 8;
/// The index of the token that the next step embeds.
pub const TOKEN: u32 = 0;
/// The index of the position of that token, counted from 0.
pub const POSITION: u32 = 1;
/// The index of the end flag: 1 if decoding has ended, else 0. Steps change nothing once it is 1.
pub const DONE: u32 = 2;
/// The token id that a step chooses if not all of its logits are finite.
///
/// It ends decoding and changes neither token nor position. Later steps therefore compute the same
/// logits, and the host can inspect them.
pub const NO_TOKEN: u32 = u32::MAX;
/// The index of the length of the prompt. While the next position is inside the prompt, the next
/// token comes from the prompt instead of the model.
pub const PROMPT_LEN: u32 = 3;
/// The index of the sequence's row in the page table (see [`cache`](crate::cache)). It is used in
/// steps of many sequences. Elsewhere it is 0, as is [`LIMIT`].
pub const SEQUENCE: u32 = 4;
/// The index of the sequence's capacity in positions. A sequence is done when its next token would
/// be at this position.
pub const LIMIT: u32 = 5;
