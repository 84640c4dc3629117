//! Constrained decoding of one sequence, token by token.
//!
//! ```text
//! device   forward pass of t ------------------> choice of t + 1 -> forward pass of t + 1 ...
//! host     |  which tokens may follow t? | bits |                  |
//! ```
//!
//! A step takes two launches. The first one computes the logits. While it runs, the host works out
//! the allowed tokens and writes them as a bit mask into pinned memory. The second launch copies
//! the mask to the device and chooses a token. It is launched only once the mask is complete, so no
//! kernel waits for the host. The host reads the token from pinned memory, as in unconstrained
//! decoding.
//!
//! If the grammar leaves only one way to continue, the forced tokens are prefilled together like a
//! prompt.

use std::collections::VecDeque;

use warpwright_model::Matcher;

use crate::Error;
use crate::decode::decoder::{Decoder, DecoderMachine};
use crate::decode::sequence::{DecoderSequence, LastToken};
use crate::step::StepKind;

/// The grammar that restricts a generation.
pub(crate) struct Constraint<'a> {
    matcher: &'a mut Matcher,
    /// The forced tokens that were not returned yet. The device is already processing them.
    forced: VecDeque<u32>,
    /// Whether the first logits were launched.
    begun: bool,
    /// Whether the device chose the token that was returned last.
    chosen: bool,
}

impl<'a> Constraint<'a> {
    pub(crate) fn new(matcher: &'a mut Matcher) -> Constraint<'a> {
        Constraint {
            matcher,
            forced: VecDeque::new(),
            begun: false,
            chosen: false,
        }
    }

    /// Returns true if no token can follow.
    pub(crate) fn is_over(&self) -> bool {
        self.forced.is_empty() && self.matcher.is_over()
    }

    /// Returns true if the device chose the token that was returned last. A forced token has no
    /// log-probability, because no logits were computed for it.
    pub(crate) fn chose(&self) -> bool {
        self.chosen
    }

    /// Returns the number of known tokens that were not returned yet.
    pub(crate) fn ahead(&self) -> u32 {
        self.forced.len() as u32
    }

    /// Returns the token after `position`, and launches the work for the next one. `left` is the
    /// number of tokens that are still wanted, including this one.
    pub(crate) fn next(
        &mut self,
        decoder: &mut Decoder,
        position: u32,
        left: u32,
    ) -> Result<u32, Error> {
        if !self.begun {
            self.begun = true;
            self.launch_next(decoder, left)?;
        }

        let forced = self.forced.pop_front();
        self.chosen = forced.is_none();
        let token = match forced {
            Some(token) => token,
            None => self.choose(decoder, position)?,
        };

        // The sequence ends at the returned token, even if the device has processed forced tokens
        // after it.
        let sequence = DecoderSequence {
            len: position + 2,
            last: LastToken::Pending(token),
            placed: false,
        };
        if self.chosen && !decoder.machine.buffers.stop_tokens.contains(&token) {
            // The choice has advanced the state on the device to the token, so it need not be
            // written again.
            decoder.sequence = DecoderSequence {
                placed: true,
                ..sequence
            };
            self.launch_next(decoder, left - 1)?;
        }

        decoder.sequence = sequence;
        Ok(token)
    }

    /// Prefills the forced tokens, and launches the logits after the last one if a token must be
    /// chosen there.
    fn launch_next(&mut self, decoder: &mut Decoder, left: u32) -> Result<(), Error> {
        let forced = self.matcher.forced(left as usize)?;

        // Forced tokens beyond the context are returned, but they have no position on the device.
        let space = decoder
            .machine
            .buffers
            .ctx
            .saturating_sub(decoder.sequence.len) as usize;
        let fitting = &forced[..forced.len().min(space)];
        if !fitting.is_empty() {
            decoder.prefill(fitting)?;
        }

        let wanted = (forced.len() as u32) < left && !self.matcher.is_over();
        self.forced = forced.into();
        if wanted {
            decoder.launch_logits()
        } else {
            Ok(())
        }
    }

    /// Chooses the token after `position`, whose logits were launched.
    fn choose(&mut self, decoder: &mut Decoder, position: u32) -> Result<u32, Error> {
        let bits = self.matcher.allowed()?;
        let Decoder {
            machine: DecoderMachine { buffers, .. },
            stream,
            ..
        } = decoder;
        if let (Some(allowed), Some(sampler)) = (&mut buffers.allowed, &buffers.sampler) {
            allowed.write(stream, sampler, 0, bits)?;
        }

        decoder.launch(StepKind::Choose)?;
        let Decoder {
            in_flight, stream, ..
        } = decoder;
        in_flight.clear();
        in_flight.push(stream, 1)?;
        in_flight.wait()?;
        let token = decoder.token(position)?;
        self.matcher.take_chosen(token)?;
        Ok(token)
    }
}
