//! A smaller model that guesses.

use std::ops::ControlFlow;

use crate::Error;
use crate::decode::cached::Cached;
use crate::decode::decoder::Decoder;
use crate::model::outline::Outline;
use crate::speculative::drafter::Drafter;
use crate::weights::info;

/// Guesses what a smaller model with the same vocabulary writes. Its sampler should be that of the model that verifies: the
/// same random words at the same positions then choose the same tokens more often.
///
/// What its cache has of wrong guesses is forgotten. It guesses nothing where the text is longer than its context, or has a
/// token that its vocabulary has not.
pub struct DraftModel {
    decoder: Decoder,
    cached: Cached,
    cost: f64,
}

/// What a step takes besides its bytes, as a share of a step of the model that verifies.
const STEP: f64 = 0.05;

impl DraftModel {
    /// The decoder of the model `draft`, for a model `verified_by`. What it has is forgotten.
    pub fn new(decoder: Decoder, draft: &Outline, verified_by: &Outline) -> DraftModel {
        let [bytes, of] = [draft, verified_by].map(|outline| info::token_bytes(outline) as f64);
        DraftModel {
            decoder,
            cached: Cached::default(),
            cost: bytes / of + STEP,
        }
    }

    fn guess(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error> {
        self.cached
            .prefill(&mut self.decoder, tokens, |_| ControlFlow::Continue(()))?;
        let mut drafts = vec![];
        for token in self.decoder.decode(most)? {
            let token = token?;
            self.cached.push(token);
            drafts.push(token);
        }
        Ok(drafts)
    }
}

impl Drafter for DraftModel {
    fn draft(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error> {
        match self.guess(tokens, most) {
            Err(Error::PromptToken { .. } | Error::PromptLength { .. }) => Ok(vec![]),
            guessed => guessed,
        }
    }

    fn cost(&self) -> f64 {
        self.cost
    }
}
