//! The options of a batch.

use warpwright_kernels::shared::cache::PAGE;

use super::pages::prefixes::{PrefixReuse, PrefixScope};
use super::steps::row_class::RowClass;
use crate::Error;
use crate::chunked::CHUNK;
use crate::chunked::products::ColumnSplits;
use crate::sampling::options::TokenChoice;

/// The maximum number of sequences in a batch.
pub(crate) const MAX_SEQUENCES: u32 = 256;

/// The maximum of [`BatchOptions::lone_rows`].
pub(super) const MAX_LONE_ROWS: u32 = 8;

/// The bit of a scope's class for pages of batches that round alike in every step.
const SAME_ROUNDING: u64 = 1 << 63;

/// The rule by which a batch selects among kernels that round differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BatchRounding {
    /// The fastest kernels for the rows of a step. The last bits of a sequence's results therefore
    /// depend on the number of rows of its steps.
    #[default]
    Fastest,
    /// Kernels with the same rounding in every step. The results of a sequence depend on its own
    /// tokens and on the [classes](crate::RowClass) in which they were processed, and on nothing
    /// else: neither on other sequences, nor on the parts in which its prompt was given, nor on the
    /// prefixes that [`Batch::join_prompt`](crate::Batch::join_prompt) found.
    ///
    /// Items of several tokens count as [`RowClass::Prompt`](crate::RowClass::Prompt). A step with
    /// both classes takes two passes. The matmuls of prompts never split their columns, and those
    /// of single tokens split them as for the maximum number of sequences. The attention of single
    /// tokens splits the positions as for that number, too. Prompts of few tokens and few sequences
    /// therefore occupy fewer multiprocessors than they could, while full steps cost the same.
    Same,
}

/// The options of a [`Batch`](crate::Batch).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOptions {
    /// The maximum number of sequences at a time: 1 to 256.
    pub sequences: u32,
    /// The maximum number of positions per sequence, up to the model's own context length.
    pub ctx: u32,
    /// The number of positions in the cache, shared by all sequences. The cache is divided into
    /// pages of 64 positions, and sequences with a common prefix share pages.
    pub positions: u32,
    /// The maximum number of tokens per step, over all sequences: 1 to 2,048.
    pub tokens: u32,
    /// The number of decode steps per launch, if at least this many are wanted.
    pub steps_per_launch: u32,
    /// The minimum bucket: a power of two from 8 to 256, or `None`.
    ///
    /// A step selects its kernels by its bucket, the number of rows rounded up. In steps of up to
    /// this many tokens, the logits of a sequence then have the same bits however many others are
    /// stepped with it. Larger steps, and all steps if it is `None`, use the smallest bucket that
    /// fits.
    pub bucket: Option<u32>,
    /// The rule by which kernels are selected in addition to the bucket.
    pub rounding: BatchRounding,
    /// The maximum number of sequences that are decoded by the kernels of a
    /// [`Decoder`](crate::Decoder), which are faster for so few: 0 to 8.
    ///
    /// They round differently than the other kernels. It counts as 0 if a [`bucket`](Self::bucket)
    /// is set or the [`rounding`](Self::rounding) is [`BatchRounding::Same`], because the bits of a
    /// sequence must not depend on the number of others then.
    pub lone_rows: u32,
    /// The way in which tokens are chosen. With [`TokenChoice::Constrained`], each sequence can
    /// follow its own grammar.
    pub choice: TokenChoice,
    /// The cached prefixes that [`Batch::join_prompt`](crate::Batch::join_prompt) may reuse.
    pub reuse: PrefixReuse,
}

impl BatchOptions {
    /// Returns options for this many sequences with `ctx` positions each, and the recommended
    /// values for all others.
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
            rounding: BatchRounding::Fastest,
            lone_rows: 2,
            choice: TokenChoice::Greedy,
            reuse: PrefixReuse::AnyLength,
        }
    }

    /// Returns the number of pages in the cache.
    pub(super) fn pages(&self) -> u32 {
        self.positions / PAGE
    }

    /// Returns the maximum number of sequences that are decoded by the kernels of a decoder.
    pub(super) fn lone_rows(&self) -> u32 {
        match (self.bucket, self.rounding) {
            (None, BatchRounding::Fastest) => self.lone_rows.min(self.sequences),
            (Some(_), _) | (None, BatchRounding::Same) => 0,
        }
    }

    /// Returns the prefixes that prompts may reuse. Generated tokens have other bits than the same
    /// tokens in a prompt, so their pages are not reused if all steps must round alike.
    pub(super) fn prefix_reuse(&self) -> PrefixReuse {
        match (self.rounding, self.reuse) {
            (BatchRounding::Same, PrefixReuse::AnyLength) => PrefixReuse::Chunks(PAGE),
            (_, reuse) => reuse,
        }
    }

    /// Returns the scope of a prompt's pages in this batch. Saved pages of a batch with the fastest
    /// kernels are not reused if all steps must round alike.
    pub(super) fn prefix_scope(&self, scope: PrefixScope) -> PrefixScope {
        match self.rounding {
            BatchRounding::Fastest => scope,
            BatchRounding::Same => PrefixScope {
                class: scope.class | SAME_ROUNDING,
                ..scope
            },
        }
    }

    /// Returns the bucket of a step of this many tokens.
    pub(super) fn bucket_of(&self, tokens: u32) -> u32 {
        bucket(tokens).max(self.bucket.unwrap_or(0))
    }

    /// Returns the largest bucket of a step with one token per sequence.
    fn largest_bucket(&self) -> u32 {
        self.bucket_of(self.sequences)
    }

    /// Returns the bucket for which the attention of single tokens splits the positions, in a step
    /// of this many single tokens.
    pub(super) fn attention_bucket(&self, singles: u32) -> u32 {
        match self.rounding {
            BatchRounding::Fastest => self.bucket_of(singles),
            BatchRounding::Same => self.largest_bucket(),
        }
    }

    /// Returns the splits of matmuls in passes of a class.
    pub(super) fn splits(&self, class: RowClass) -> ColumnSplits {
        match (self.rounding, class) {
            (BatchRounding::Fastest, _) => ColumnSplits::Fastest,
            (BatchRounding::Same, RowClass::Prompt) => ColumnSplits::Whole,
            (BatchRounding::Same, RowClass::Decode) => {
                ColumnSplits::OfBucket(self.largest_bucket())
            }
        }
    }

    /// Returns an error for the first option that is out of range. `context` is the model's context
    /// length.
    pub(super) fn check(&self, context: u32) -> Result<(), Error> {
        let ranges = [
            ("sequences", self.sequences, 1, MAX_SEQUENCES),
            ("ctx", self.ctx, 1, context),
            ("positions", self.positions, PAGE, 1 << 30),
            ("tokens", self.tokens, 1, CHUNK),
            ("steps_per_launch", self.steps_per_launch, 1, 256),
            ("bucket", self.bucket.unwrap_or(8), 8, MAX_SEQUENCES),
            ("lone_rows", self.lone_rows, 0, MAX_LONE_ROWS),
        ];
        self.choice.check()?;
        if let PrefixReuse::Chunks(chunk) = self.reuse
            && (chunk == 0 || !chunk.is_multiple_of(PAGE))
        {
            return Err(Error::BatchReuse { chunk });
        }
        if let Some(bucket) = self.bucket.filter(|bucket| !bucket.is_power_of_two()) {
            return Err(Error::BatchBucket { bucket });
        }

        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::BatchOption {
                    name,
                    value,
                    least,
                    most,
                });
            }
        }

        Ok(())
    }
}

/// Returns the bucket of a step of this many tokens: the number of rows for which kernels are
/// selected and graphs are built.
///
/// It is a power of two up to 128, where the tile widths of the matmuls change, and a multiple of
/// 64 above.
pub(crate) fn bucket(tokens: u32) -> u32 {
    if tokens <= 128 {
        tokens.next_power_of_two().max(8)
    } else {
        tokens.next_multiple_of(64)
    }
}
