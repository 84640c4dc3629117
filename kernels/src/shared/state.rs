//! The state of a decode step: a token, its position and the limits of its sequence.
//!
//! The state lives in device memory as eight words ([`LEN`]). Each step reads it and writes the
//! state of the next step, so the host transfers nothing per token. Kernels address single words by
//! the indices below, and the host writes a whole [`StepState`]. Words without an index are zero.
//!
//! Kernels that process many tokens in one launch read one state per token, and skip the tokens
//! whose state is done.

/// The length of a state, in words.
pub const LEN: usize = 8;
/// The index of the token that the next step embeds.
pub const TOKEN: u32 = 0;
/// The index of the token's position, which counts from 0.
pub const POSITION: u32 = 1;
/// The index of the flag that decoding has ended: 0 or 1. Steps change nothing once it is 1.
pub const DONE: u32 = 2;
/// The token that a step chooses if some of its logits are not finite.
///
/// This choice ends decoding and changes neither token nor position. Later steps therefore compute
/// the same logits again, and the host can read them to report the bad value.
pub const NO_TOKEN: u32 = u32::MAX;
/// The index of the prompt's length. While the next position is inside the prompt, the next token
/// is read from the prompt instead of being sampled.
pub const PROMPT_LEN: u32 = 3;
/// The index of the sequence number, which selects a row of the page table (see
/// [`cache`](super::cache)).
///
/// Only the kernels that step several sequences together read it. For all other kernels it is 0, as
/// is [`LIMIT`].
pub const SEQUENCE: u32 = 4;
/// The index of the number of positions that the sequence can hold. A sequence is done when its
/// next token would be at this position.
pub const LIMIT: u32 = 5;
/// The index of the row's LoRA adapter: 0 for none, otherwise the adapter's index plus 1.
///
/// Only the adapter kernels of a batch ([`batch`](crate::batch)) read it. For all other kernels it
/// is 0.
pub const ADAPTER: u32 = 6;

/// A state with named fields, as the host writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepState {
    /// The token that the next step embeds.
    pub token: u32,
    /// The token's position, from 0.
    pub position: u32,
    /// Whether decoding has ended.
    pub done: bool,
    /// The length of the prompt, or 0 if all later tokens are sampled.
    pub prompt_len: u32,
    /// The row of the page table, if several sequences are stepped together.
    pub sequence: u32,
    /// The number of positions that the sequence can hold, if several sequences are stepped
    /// together.
    pub limit: u32,
    /// The index of the row's adapter, if it has one.
    pub adapter: Option<u32>,
}

impl StepState {
    /// The state of a row without work: every step skips it.
    pub const IDLE: StepState = StepState {
        token: 0,
        position: 0,
        done: true,
        prompt_len: 0,
        sequence: 0,
        limit: 0,
        adapter: None,
    };

    /// Returns the words that the kernels read, each at its index.
    pub const fn words(self) -> [u32; LEN] {
        let mut words = [0; LEN];
        words[TOKEN as usize] = self.token;
        words[POSITION as usize] = self.position;
        words[DONE as usize] = self.done as u32;
        words[PROMPT_LEN as usize] = self.prompt_len;
        words[SEQUENCE as usize] = self.sequence;
        words[LIMIT as usize] = self.limit;
        words[ADAPTER as usize] = match self.adapter {
            Some(index) => index + 1,
            None => 0,
        };
        words
    }
}
