//! Verification of drafts: one step processes a token and guesses of the tokens after it, and
//! chooses the token after each.
//!
//! This is speculative decoding (Leviathan, Kalman and Matias, "Fast Inference from Transformers
//! via Speculative Decoding", ICML 2023, <https://arxiv.org/abs/2211.17192>) with an exact
//! comparison instead of rejection sampling. It never changes the output, for two reasons. A step
//! of several tokens has the same bits as single steps, because it divides its sums in the same way
//! ([`ResolvedPipeline::with_drafts`](crate::pipeline::resolved::ResolvedPipeline::with_drafts)).
//! And the random word that samples a position depends only on the seed and the position.
//!
//! The choice after the first token is therefore the choice that would be made without guesses. If
//! the first guess equals it, the second choice is valid too, and so on. The keys and values of
//! wrong guesses are overwritten by the right tokens before anything reads them.

use warpwright_kernels::shared::state::StepState;

use crate::Error;
use crate::decode::decoder::Decoder;
use crate::decode::finite::check_logits;
use crate::speculative::speculation::Speculation;
use crate::step::StepKind;

/// The drafts of a generation.
pub(super) struct Drafted<'a> {
    speculation: &'a mut Speculation,
    /// All tokens up to the one that the next step processes.
    tokens: Vec<u32>,
    /// Whether the state on the device is at the last token.
    placed: bool,
}

impl<'a> Drafted<'a> {
    /// Creates the drafts of a sequence, whose last token the device state is at.
    pub(super) fn new(speculation: &'a mut Speculation, tokens: &[u32]) -> Drafted<'a> {
        Drafted {
            speculation,
            tokens: tokens.into(),
            placed: true,
        }
    }

    /// Appends a token that was chosen without drafts. The device state must be at it.
    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Generates at least one and at most `left` tokens, and returns their number.
    pub(super) fn round(&mut self, decoder: &mut Decoder, left: u32) -> Result<u32, Error> {
        let vocab = decoder.machine.config.vocab;
        let most = decoder.drafts().min(left - 1);
        let drafts = self.speculation.draft(&self.tokens, most, vocab)?;
        let chosen = match drafts[..] {
            [] => vec![self.step(decoder)?],
            _ => self.verify(decoder, &drafts)?,
        };
        self.speculation.record(&drafts, &chosen);
        self.tokens.extend(&chosen);
        Ok(chosen.len() as u32)
    }

    /// Decodes one token without drafts.
    fn step(&mut self, decoder: &mut Decoder) -> Result<u32, Error> {
        let (position, token) = self.last();
        if !self.placed {
            decoder.set_state(token, position)?;
        }
        self.placed = true;
        decoder.launch(StepKind::Decode)?;
        decoder.stream.synchronize()?;
        decoder.token(position)
    }

    /// Verifies `drafts` and returns the tokens that were chosen.
    fn verify(&mut self, decoder: &mut Decoder, drafts: &[u32]) -> Result<Vec<u32>, Error> {
        let (position, token) = self.last();
        self.placed = false;
        let given: Vec<u32> = [token].iter().chain(drafts).copied().collect();
        decoder.verify(position, &given)
    }

    /// Returns the position of the last token, and its id.
    fn last(&self) -> (u32, u32) {
        let position = self.tokens.len() - 1;
        (position as u32, self.tokens[position])
    }
}

impl Decoder {
    /// Returns the maximum number of drafts that a step verifies.
    pub(crate) fn drafts(&self) -> u32 {
        self.machine
            .buffers
            .drafts
            .as_ref()
            .map_or(0, |drafts| drafts.most)
    }

    /// Sets the device state to a token and its position.
    pub(super) fn set_state(&self, token: u32, position: u32) -> Result<(), Error> {
        Ok(self.stream.write(
            &self.machine.buffers.state,
            &StepState {
                token,
                position,
                ..StepState::default()
            }
            .words(),
        )?)
    }

    /// Processes `tokens` at `position`: the first one is certain and the others are guesses.
    /// Returns the tokens that follow.
    ///
    /// They are the right guesses and the token that was chosen after the last right guess. A token
    /// that ends texts is the last one returned.
    fn verify(&mut self, position: u32, tokens: &[u32]) -> Result<Vec<u32>, Error> {
        let step = tokens.len().next_power_of_two() as u32;
        let words = [&[position, tokens.len() as u32], tokens].concat();
        let buffers = &self.machine.buffers;
        let drafts = buffers.drafts.as_ref().ok_or(Error::NotSpeculative)?;
        self.stream
            .write(&drafts.given.view_range(0..words.len()), &words)?;
        self.launch(StepKind::Verify(step))?;
        self.stream.synchronize()?;
        let buffers = &self.machine.buffers;
        let vocab = self.machine.config.vocab;
        let after = (position..).map(|position| buffers.out.read(position as usize));
        let mut chosen = vec![];
        for (token, guess) in after.zip(tokens[1..].iter().map(Some).chain([None])) {
            // An id outside the vocabulary means that no token was chosen, because a logit was not
            // finite.
            if token >= vocab {
                break;
            }
            chosen.push(token);
            if guess != Some(&token) || buffers.stop_tokens.contains(&token) {
                break;
            }
        }

        // A failure after a right guess is ignored here. The next step starts at that position and
        // fails in its first row, where `failed` finds the logits.
        if chosen.is_empty() {
            Err(self.failed(step, position))
        } else {
            Ok(chosen)
        }
    }

    /// Returns the reason why a step chose no token in its first row.
    fn failed(&self, step: u32, position: u32) -> Error {
        let vocab = self.machine.config.vocab as usize;
        let logits = self
            .machine
            .verifying(step)
            .map(|step| step.logits().view_range(0..vocab));
        let logits = logits.map_or(Ok(vec![]), |logits| self.stream.read(&logits));
        let found = logits
            .map_err(Error::from)
            .and_then(|row| check_logits(position, &row));
        found.err().unwrap_or(Error::NoToken { position })
    }
}
