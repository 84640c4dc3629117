//! Kernel that lowers the logits of the tokens that a grammar forbids, so that they are never
//! chosen.
//!
//! ```text
//! logit = max(logit, -2^60)     if the token is allowed
//! logit = -2^100                otherwise
//! ```
//!
//! The two values are so far apart because biases and penalties follow. Biases are at most 10^4.
//! Penalties multiply by 0.01 to 100, or subtract up to 100 for each of 1,024 tokens. More than
//! 2^92 remains between the two. A forbidden token is therefore behind all allowed ones, and has no
//! mass at any temperature up to 100. While at least one token is allowed, no forbidden token is
//! chosen. A logit that is not finite stays as it is, so that the kernels that follow find it.

use super::blocks;
use super::limits::{CHUNK, THREADS};
use super::rows::{self, RowsArgs, SampledRow};
use crate::shared::{Contract, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`AllowTokens`].
    pub struct AllowTokensArgs {
        /// `[capacity, vocab]`, of which `count` rows are changed
        logits: InOut<f32>,
        /// `[states, 8]`, as in [`state`](crate::shared::state)
        state: In<u32>,
        /// `[sequences, words]`: a bit for each token, set if the token is allowed. A word has 32
        /// tokens, the first one in the lowest bit.
        allowed: In<u32>,
        /// The rows and sequences.
        of: RowsArgs,
    }
}

/// Kernel that lowers the logits of forbidden tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllowTokens {
    /// True if the kernel starts before the previous one ends and waits for it on the device
    /// (programmatic dependent launch), which needs sm_90.
    pub overlap: bool,
}

/// The least logit of an allowed token.
const LEAST: f32 = -((1u64 << 60) as f32);
/// The logit of a forbidden token.
const FORBIDDEN: f32 = -((1u128 << 100) as f32);

impl KernelDef for AllowTokens {
    type Args<S: Side> = AllowTokensArgs<S>;

    fn name(&self) -> String {
        format!("allow_tokens{}", if self.overlap { "" } else { "_plain" })
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &AllowTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let RowsArgs {
            vocab,
            count,
            capacity,
            sequences,
            ..
        } = a.of;
        rows::check(self, &a.of, a.state)?;
        check_lengths! { self, a:
            logits == capacity * vocab,
        }
        self.length(
            "allowed",
            a.allowed,
            "sequences * words",
            &[sequences, allowed_words(vocab)],
        )?;
        Ok(Grid::plane(blocks(vocab), count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AllowTokensArgs<Dev<'k>>) {
        rows::trigger(k, self.overlap);
        let row = SampledRow::load(k, &a.of, a.state);
        row.wait(k, self.overlap);
        row.process(k, || allow(k, &a, &row));
    }

    fn reference(&self, a: AllowTokensArgs<Cpu<'_>>) {
        let vocab = a.of.vocab as usize;
        for row in rows::on_cpu(&a.of, a.state) {
            let allowed = &a.allowed[row.sequence * allowed_words(a.of.vocab) as usize..];
            for (token, logit) in a.logits[row.index * vocab..][..vocab]
                .iter_mut()
                .enumerate()
            {
                let bit = allowed[token / 32] >> (token % 32) & 1;
                if logit.is_finite() {
                    *logit = if bit == 1 {
                        logit.max(LEAST)
                    } else {
                        FORBIDDEN
                    };
                }
            }
        }
    }
}

/// Returns the number of words of a sequence's mask of allowed tokens.
pub(super) fn allowed_words(vocab: u32) -> u32 {
    vocab.div_ceil(32)
}

fn allow<'k>(k: Builder<'k>, a: &AllowTokensArgs<Dev<'k>>, row: &SampledRow<'k>) {
    let allowed = a.allowed.row(row.sequence, (a.of.vocab + 31) / 32 * 4);
    let logits = a.logits.row(row.index, a.of.vocab * 4);
    for i in [0, THREADS] {
        k.section(
            "sample/allow/logit",
            "the logit of one token per thread, lowered if the token is not allowed",
        );
        let token = k.ctaid() * CHUNK + k.tid() + i;
        k.when(token.lt(a.of.vocab), || {
            let bit = (allowed.at(token / 32).fresh().ld() >> (token & 31)) & 1;
            let logit = logits.at(token).fresh().ld();
            // A logit that is not finite stays, so that the next kernel finds it.
            let ruled = bit.eq(1).select(logit.max(LEAST), FORBIDDEN);
            logits
                .at(token)
                .st(logit.abs().lt(f32::INFINITY).select(ruled, logit));
        });
    }
}
