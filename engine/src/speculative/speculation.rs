//! A drafter, how far it is trusted, and what came of it.

use crate::Error;
use crate::speculative::drafter::Drafter;
use crate::speculative::pace::Pace;

/// What guesses the tokens of texts, and what came of that so far. It can go from one text to another, and learns how many
/// guesses are worth their time.
pub struct Speculation {
    drafter: Box<dyn Drafter>,
    /// `None`: as many as there can be.
    pace: Option<Pace>,
    counts: Counts,
}

/// Steps, and what came of guesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps that were made for 1, 2, 4 and 8 tokens.
    pub steps: [u32; 4],
    /// Tokens that they gave.
    pub tokens: u32,
    /// Guesses that were verified.
    pub drafted: u32,
    /// Those that were right.
    pub accepted: u32,
}

impl Speculation {
    /// With this drafter, and as many guesses as seem worth their time.
    pub fn new(drafter: impl Drafter + 'static) -> Speculation {
        Speculation {
            drafter: Box::new(drafter),
            pace: Some(Pace::default()),
            counts: Counts::default(),
        }
    }

    /// The same with as many guesses each time as the decoder verifies at once.
    pub fn eager(drafter: impl Drafter + 'static) -> Speculation {
        Speculation {
            pace: None,
            ..Speculation::new(drafter)
        }
    }

    /// What came of the guesses so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Guesses at most `most` tokens.
    pub(crate) fn draft(
        &mut self,
        tokens: &[u32],
        most: u32,
        vocab: u32,
    ) -> Result<Vec<u32>, Error> {
        let cost = self.drafter.cost();
        let most = self.pace.map_or(most, |pace| pace.guesses(most, cost));
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

    /// What a step chose where these were guessed.
    pub(crate) fn heard(&mut self, drafts: &[u32], chosen: &[u32]) {
        let right = std::iter::zip(drafts, chosen)
            .take_while(|(guess, token)| guess == token)
            .count() as u32;
        let guesses = drafts.len() as u32;
        self.pace
            .iter_mut()
            .for_each(|pace| pace.heard(guesses, right));
        self.counts.steps[(guesses + 1).next_power_of_two().ilog2() as usize] += 1;
        self.counts.tokens += chosen.len() as u32;
        self.counts.drafted += guesses;
        self.counts.accepted += right;
    }
}

impl Counts {
    /// All steps.
    pub fn all_steps(&self) -> u32 {
        self.steps.iter().sum()
    }
}
