//! Drafts that are verified: one step takes in a token and guesses of those after it, and chooses the token after each.
//!
//! A step of several tokens has the bits of as many steps of one, where it divides its sums as they do
//! ([`Resolved::with_drafts`](crate::pipeline::resolved::Resolved::with_drafts)), and the random word of a position is
//! one of the position alone. So the choice after the first token is the one that would be made without guesses; if the
//! first guess is that token, so is the next choice, and so on. What the cache has of other guesses is overwritten by the
//! tokens that belong there before anything reads it.

use warpwright_kernels::state::StepState;

use crate::Error;
use crate::decode::decoder::Decoder;
use crate::decode::finite::check_logits;
use crate::speculative::speculation::Speculation;
use crate::step::StepKind;

/// A generation's guesses.
pub(super) struct Drafted<'a> {
    speculation: &'a mut Speculation,
    /// All tokens up to that of the next step.
    tokens: Vec<u32>,
    /// Whether the state on the device is at the last of them.
    placed: bool,
}

impl<'a> Drafted<'a> {
    /// After these tokens, the last of which the state on the device is at.
    pub(super) fn new(speculation: &'a mut Speculation, tokens: &[u32]) -> Drafted<'a> {
        Drafted {
            speculation,
            tokens: tokens.into(),
            placed: true,
        }
    }

    /// A token was chosen in another way. The state on the device is at it.
    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Makes the next tokens, at least one and at most `left`. Gives how many.
    pub(super) fn round(&mut self, decoder: &mut Decoder, left: u32) -> Result<u32, Error> {
        let vocab = decoder.machine.config.vocab;
        let most = decoder.drafts().min(left - 1);
        let drafts = self.speculation.draft(&self.tokens, most, vocab)?;
        let chosen = match drafts[..] {
            [] => vec![self.step(decoder)?],
            _ => self.verify(decoder, &drafts)?,
        };
        self.speculation.heard(&drafts, &chosen);
        self.tokens.extend(&chosen);
        Ok(chosen.len() as u32)
    }

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

    fn verify(&mut self, decoder: &mut Decoder, drafts: &[u32]) -> Result<Vec<u32>, Error> {
        let (position, token) = self.last();
        self.placed = false;
        let given: Vec<u32> = [token].iter().chain(drafts).copied().collect();
        decoder.verify(position, &given)
    }

    /// The position of the last token, and the token.
    fn last(&self) -> (u32, u32) {
        let position = self.tokens.len() - 1;
        (position as u32, self.tokens[position])
    }
}

impl Decoder {
    /// Drafts that a step verifies at most.
    pub(crate) fn drafts(&self) -> u32 {
        self.machine
            .buffers
            .drafts
            .as_ref()
            .map_or(0, |drafts| drafts.most)
    }

    /// Sets the state on the device to a token and its position.
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

    /// Takes in tokens from a position on, the first of which counts and the others are guesses. Gives the tokens that
    /// follow: as many guesses as were right, and the token after the last of them; up to one that ends a text.
    fn verify(&mut self, position: u32, tokens: &[u32]) -> Result<Vec<u32>, Error> {
        let step = tokens.len().next_power_of_two() as u32;
        let words = [&[position, tokens.len() as u32], tokens].concat();
        let buffers = &self.machine.buffers;
        let drafts = buffers.drafts.as_ref().ok_or(Error::NotSpeculative)?;
        self.stream
            .write(&drafts.given.view_range(0..words.len()), &words)?;
        self.launch(StepKind::Verify(step))?;
        self.stream.synchronize()?;
        let (buffers, vocab) = (&self.machine.buffers, self.machine.config.vocab);
        let after = (position..).map(|position| buffers.out.read(position as usize));
        let mut chosen = vec![];
        for (token, guess) in after.zip(tokens[1..].iter().map(Some).chain([None])) {
            if token >= vocab {
                break;
            }
            chosen.push(token);
            if guess != Some(&token) || buffers.stop_tokens.contains(&token) {
                break;
            }
        }
        // A choice that failed later fails again as the first.
        if chosen.is_empty() {
            Err(self.failed(step, position))
        } else {
            Ok(chosen)
        }
    }

    /// Why a step chose no token after its first.
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
