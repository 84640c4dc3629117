//! A drafter that runs a smaller model.

use std::ops::ControlFlow;

use warpwright_model::Outline;

use crate::Error;
use crate::decode::cached::CachedTokens;
use crate::decode::decoder::Decoder;
use crate::sampling::options::Sampling;
use crate::speculative::drafter::Drafter;
use crate::weights::info;

/// A drafter that guesses the tokens that a smaller model with the same vocabulary generates.
///
/// Give its decoder the sampling parameters of the model that verifies. The two then draw the same
/// random words at the same positions, so they choose the same token more often.
///
/// The drafter reuses its cache up to the first wrong guess. It guesses nothing if the text is
/// longer than its context, or contains a token that is not in its vocabulary.
pub struct DraftModel {
    decoder: Decoder,
    cached: CachedTokens,
    cost: f64,
}

/// The fixed time of a draft step, in addition to the time to read its weights, as a fraction of a
/// step of the model that verifies.
const STEP: f64 = 0.05;

/// Returns the time of a draft step, as a fraction of a step of the model that verifies. Both read
/// their weights once.
pub(crate) fn draft_cost(draft: &Outline, verified_by: &Outline) -> f64 {
    let draft_bytes = info::token_bytes(draft) as f64;
    let verified_bytes = info::token_bytes(verified_by) as f64;
    draft_bytes / verified_bytes + STEP
}

/// Returns the sampling parameters for a draft model with `vocab` tokens.
///
/// Guesses are right more often if the draft model samples like the model itself. Biases of tokens
/// that the draft model does not have are dropped, and so are the log-probabilities, which nothing
/// reads.
pub fn draft_sampling(sampling: &Sampling, vocab: u32) -> Sampling {
    let mut sampling = Sampling {
        logprobs: 0,
        ..sampling.clone()
    };
    sampling.logit_bias.retain(|(token, _)| *token < vocab);
    sampling
}

impl DraftModel {
    /// Creates a drafter from the decoder of the model `draft`, for the model `verified_by`. The
    /// decoder's sequence is replaced by the first guess.
    pub fn new(decoder: Decoder, draft: &Outline, verified_by: &Outline) -> DraftModel {
        DraftModel {
            decoder,
            cached: CachedTokens::default(),
            cost: draft_cost(draft, verified_by),
        }
    }

    /// Decodes up to `most` tokens after `tokens`.
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
            // The draft model may have a shorter context or a smaller vocabulary, which only means
            // that it cannot guess.
            Err(Error::PromptToken { .. } | Error::PromptLength { .. }) => Ok(vec![]),
            guessed => guessed,
        }
    }

    fn cost(&self) -> f64 {
        self.cost
    }
}
