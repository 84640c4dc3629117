//! Reuse of the cache for prompts that share a prefix, such as a growing conversation.

use std::ops::ControlFlow;

use crate::Error;
use crate::decode::decoder::Decoder;

/// A record of the tokens whose keys and values a decoder has, used to prefill only the difference.
///
/// A chat renders its whole history for every turn. [`prefill`](CachedTokens::prefill) keeps the
/// common prefix of the old and the new tokens, and computes only the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CachedTokens {
    tokens: Vec<u32>,
}

impl CachedTokens {
    /// Makes `tokens` the sequence of `decoder` and returns the length of the prefix that was
    /// reused.
    ///
    /// Only the tokens after the common prefix are prefilled. `progress` is called as in
    /// [`prefill_with`](Decoder::prefill_with).
    ///
    /// # Errors
    /// Returns the errors of [`prefill_with`](Decoder::prefill_with). It also returns an error if
    /// the decoder has fewer tokens than were recorded, for example after a reset.
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

    /// Records a token that was read from a generation of the decoder.
    pub fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Returns the recorded tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}
