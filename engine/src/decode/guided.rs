//! Tokens within a grammar, one by one.
//!
//! ```text
//! device   forward pass of t ------------------> choice of t + 1 -> forward pass of t + 1 ...
//! host     |  which tokens may follow t? | bits |                  |
//! ```
//!
//! A step is two launches. The first makes the logits. While it runs, the host finds the tokens that are allowed, and
//! writes their bits into pinned memory; the second copies them to the device and chooses. It is launched when the bits
//! are there, so no kernel waits for the host. The token comes back through pinned memory, as always.
//!
//! Where the grammar leaves no choice, the tokens that must follow are taken in like a prompt, together.

use std::collections::VecDeque;

use crate::Error;
use crate::decode::decoder::{Decoder, Machine};
use crate::decode::sequence::{Last, Sequence};
use crate::grammar::matcher::Matcher;
use crate::step::StepKind;

/// What leads a generation.
pub(crate) struct Guide<'a> {
    matcher: &'a mut Matcher,
    /// Tokens that must follow. The device takes them in already.
    forced: VecDeque<u32>,
    /// Whether the device has begun.
    begun: bool,
    /// Whether the device chose the token given last.
    chosen: bool,
}

impl<'a> Guide<'a> {
    pub(crate) fn new(matcher: &'a mut Matcher) -> Guide<'a> {
        Guide {
            matcher,
            forced: VecDeque::new(),
            begun: false,
            chosen: false,
        }
    }

    /// Whether nothing can follow.
    pub(crate) fn is_over(&self) -> bool {
        self.forced.is_empty() && self.matcher.is_over()
    }

    /// Whether the device chose the token given last; if not, nobody knows how likely it was.
    pub(crate) fn chose(&self) -> bool {
        self.chosen
    }

    /// Tokens that are known and not given yet.
    pub(crate) fn ahead(&self) -> u32 {
        self.forced.len() as u32
    }

    /// The token after a position, of `left` that are wanted. It leaves the device with the work for the next one.
    pub(crate) fn next(
        &mut self,
        decoder: &mut Decoder,
        position: u32,
        left: u32,
    ) -> Result<u32, Error> {
        if !std::mem::replace(&mut self.begun, true) {
            self.go_on(decoder, left)?;
        }
        let forced = self.forced.pop_front();
        self.chosen = forced.is_none();
        let token = forced.map_or_else(|| self.choose(decoder, position), Ok)?;
        // Only what was given counts, whatever the device has taken in.
        let sequence = Sequence {
            len: position + 2,
            last: Last::Waiting(token),
            placed: false,
        };
        if self.chosen && !decoder.machine.buffers.stop_tokens.contains(&token) {
            // The choice has moved the state on the device to the token.
            decoder.sequence = Sequence {
                placed: true,
                ..sequence
            };
            self.go_on(decoder, left - 1)?;
        }
        decoder.sequence = sequence;
        Ok(token)
    }

    /// Takes in the tokens that must follow, and launches the logits after the last, if a choice is wanted there.
    fn go_on(&mut self, decoder: &mut Decoder, left: u32) -> Result<(), Error> {
        let forced = self.matcher.forced(left as usize)?;
        let room = decoder
            .machine
            .buffers
            .ctx
            .saturating_sub(decoder.sequence.len) as usize;
        let given = &forced[..forced.len().min(room)];
        if !given.is_empty() {
            decoder.prefill(given)?;
        }
        let wanted = (forced.len() as u32) < left && !self.matcher.is_over();
        self.forced = forced.into();
        if wanted {
            decoder.launch_logits()
        } else {
            Ok(())
        }
    }

    /// The token after a position whose logits are on their way.
    fn choose(&mut self, decoder: &mut Decoder, position: u32) -> Result<u32, Error> {
        let bits = self.matcher.allowed()?;
        let Decoder {
            machine: Machine { buffers, .. },
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
