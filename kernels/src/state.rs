//! The decoder's state in device memory: what a step needs to know and the host never sends.
//!
//! A `[u32; 8]`: the indices below, the rest is zero.

/// Length of the state, in words.
pub const LEN: usize = 8;
/// The token that the next step embeds.
pub const TOKEN: u32 = 0;
/// Its position, from 0.
pub const POSITION: u32 = 1;
/// Whether decoding has ended: 0 or 1. Steps change nothing once it is 1.
pub const DONE: u32 = 2;
/// Length of the prompt: up to there, the next token is the prompt's and not the model's.
pub const PROMPT_LEN: u32 = 3;
