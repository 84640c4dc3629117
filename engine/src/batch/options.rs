//! What a batch is made for.

use warpwright_kernels::cache::PAGE;

use crate::Error;
use crate::chunked::CHUNK;
use crate::sampling::options::TokenChoice;

/// Sequences of a batch, at most.
pub(crate) const MAX_SEQUENCES: u32 = 256;

/// What a [`Batch`](crate::Batch) is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOptions {
    /// Sequences at a time: 1 to 256.
    pub sequences: u32,
    /// Positions of a sequence, at most the model's own context.
    pub ctx: u32,
    /// Positions that the cache has room for, of all sequences together. It comes in pages of 64; sequences that begin
    /// alike share them.
    pub positions: u32,
    /// Tokens of a step, of all sequences together: 1 to 2,048.
    pub tokens: u32,
    /// Steps of a launch, where that many are wanted.
    pub steps_per_launch: u32,
    /// The bucket that kernels are chosen for in steps of up to so many tokens: a power of two from 8 to 256. In these
    /// steps, the bits of a sequence's logits do not depend on how many others are stepped with it. Larger steps, and
    /// all steps without it, have the smallest bucket that they fit.
    pub bucket: Option<u32>,
    /// How tokens are chosen: with [`TokenChoice::Within`], each sequence may follow a grammar of its own.
    pub choice: TokenChoice,
}

impl BatchOptions {
    /// So many sequences with room for `ctx` positions each, and the best values for the other options.
    pub fn new(sequences: u32, ctx: u32) -> BatchOptions {
        let whole = ctx.checked_next_multiple_of(PAGE).unwrap_or(u32::MAX);
        let positions = sequences.saturating_mul(whole);
        BatchOptions {
            sequences,
            ctx,
            positions,
            tokens: CHUNK,
            steps_per_launch: 8,
            bucket: None,
            choice: TokenChoice::Greedy,
        }
    }

    /// Pages of the cache.
    pub(super) fn pages(&self) -> u32 {
        self.positions / PAGE
    }

    pub(super) fn check(&self, context: u32) -> Result<(), Error> {
        let ranges = [
            ("sequences", self.sequences, 1, MAX_SEQUENCES),
            ("ctx", self.ctx, 1, context),
            ("positions", self.positions, PAGE, 1 << 30),
            ("tokens", self.tokens, 1, CHUNK),
            ("steps_per_launch", self.steps_per_launch, 1, 256),
            ("bucket", self.bucket.unwrap_or(8), 8, MAX_SEQUENCES),
        ];
        self.choice.check()?;
        if let Some(bucket) = self.bucket.filter(|bucket| !bucket.is_power_of_two()) {
            return Err(Error::BatchBucket { bucket });
        }
        let outside = ranges
            .into_iter()
            .find(|(_, value, least, most)| !(least..=most).contains(&value));
        outside.map_or(Ok(()), |(name, value, least, most)| {
            Err(Error::BatchOption {
                name,
                value,
                least,
                most,
            })
        })
    }
}

/// The rows that kernels are chosen for, and graphs are made of, for so many tokens.
///
/// Up to 256, where the widths of products change, it is a power of two, and above a multiple of 64.
pub(crate) fn bucket(tokens: u32) -> u32 {
    if tokens <= 256 {
        tokens.next_power_of_two().max(8)
    } else {
        tokens.next_multiple_of(64)
    }
}
