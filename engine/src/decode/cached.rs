//! Prompts that begin like what a decoder has: a conversation that grows, or that lost its oldest turns.

use std::ops::ControlFlow;

use crate::Error;
use crate::decode::decoder::Decoder;

/// The tokens that a decoder has, from the first on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cached {
    tokens: Vec<u32>,
}

impl Cached {
    /// Makes `tokens` all that `decoder` has. Those that it has in common with them at the beginning stay; only the rest
    /// is taken in, with `progress` as in [`prefill_with`](Decoder::prefill_with). Gives how many stayed.
    ///
    /// # Errors
    /// As [`prefill_with`](Decoder::prefill_with); also for a decoder that was given tokens by others.
    pub fn prefill(
        &mut self,
        decoder: &mut Decoder,
        tokens: &[u32],
        progress: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        let kept = std::iter::zip(&self.tokens, tokens)
            .take_while(|(had, token)| had == token)
            .count();
        let last = kept.checked_sub(1).map_or(0, |last| tokens[last]);
        decoder.rewind(kept as u32, last)?;
        self.tokens.truncate(kept);
        let rest = &tokens[kept..];
        if kept == 0 || !rest.is_empty() {
            let taken = decoder.prefill_with(rest, progress)?;
            self.tokens.extend(&rest[..taken as usize]);
        }
        Ok(kept as u32)
    }

    /// The decoder has given this token.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// The tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}
