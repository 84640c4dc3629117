//! A drafter with its adaptive draft length and its statistics.

use crate::Error;
use crate::speculative::draft_length::DraftLength;
use crate::speculative::drafter::Drafter;

/// A drafter together with its success so far.
///
/// Pass it to [`Decoder::decode_speculative`](crate::Decoder::decode_speculative). You can use the
/// same value for one text after another. It learns how many guesses are worth their time.
pub struct Speculation {
    drafter: Box<dyn Drafter>,
    /// The adaptive draft length, or `None` to make as many guesses as fit.
    length: Option<DraftLength>,
    counts: DraftCounts,
}

/// The number of steps and guesses of speculative decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// The numbers of steps with 1, 2, 4 and 8 tokens.
    pub steps: [u32; 4],
    /// The number of tokens that the steps yielded.
    pub tokens: u32,
    /// The number of guesses that were verified.
    pub drafted: u32,
    /// The number of guesses that were right.
    pub accepted: u32,
}

impl Speculation {
    /// Creates a speculation that makes as many guesses as seem worth their time.
    pub fn new(drafter: impl Drafter + 'static) -> Speculation {
        Speculation {
            drafter: Box::new(drafter),
            length: Some(DraftLength::default()),
            counts: DraftCounts::default(),
        }
    }

    /// Creates a speculation that always makes as many guesses as the decoder can verify in one
    /// step.
    pub fn eager(drafter: impl Drafter + 'static) -> Speculation {
        Speculation {
            length: None,
            ..Speculation::new(drafter)
        }
    }

    /// Returns the number of steps and guesses so far.
    pub fn counts(&self) -> DraftCounts {
        self.counts
    }

    /// Returns up to `most` guesses, or an error if the drafter fails or guesses a token outside
    /// the vocabulary.
    pub(crate) fn draft(
        &mut self,
        tokens: &[u32],
        most: u32,
        vocab: u32,
    ) -> Result<Vec<u32>, Error> {
        let cost = self.drafter.cost();
        let most = match self.length {
            Some(length) => length.guesses(most, cost),
            None => most,
        };
        if most == 0 {
            return Ok(vec![]);
        }

        let mut drafts = self.drafter.draft(tokens, most)?;
        drafts.truncate(most as usize);
        match drafts.iter().find(|token| **token >= vocab) {
            Some(&token) => Err(Error::DraftToken { token, vocab }),
            None => Ok(drafts),
        }
    }

    /// Records the tokens that a step chose after it was given `drafts`.
    pub(crate) fn record(&mut self, drafts: &[u32], chosen: &[u32]) {
        let right = std::iter::zip(drafts, chosen)
            .take_while(|(guess, token)| guess == token)
            .count() as u32;
        let guesses = drafts.len() as u32;
        if let Some(length) = &mut self.length {
            length.record(guesses, right);
        }

        self.counts.steps[(guesses + 1).next_power_of_two().ilog2() as usize] += 1;
        self.counts.tokens += chosen.len() as u32;
        self.counts.drafted += guesses;
        self.counts.accepted += right;
    }
}

impl DraftCounts {
    /// Returns the total number of steps.
    pub fn all_steps(&self) -> u32 {
        self.steps.iter().sum()
    }
}
