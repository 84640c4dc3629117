//! Timed rounds: the time per token, wall clock and on the device.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwright_driver::{Event, View};
use warpwright_kernels::Format;
use warpwright_kernels::state::StepState;

use crate::Decoder;
use crate::Error;
use crate::decode::generation::Generation;
use crate::step::StepKind;
use crate::weights::random::{Pools, Unit};

/// The same tokens, decoded twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Wall clock: from the first launch until the host has read the last token. Each token is read while the next
    /// step runs.
    pub wall: Duration,
    /// Device time: from the first launch to the end of the last step, queued without reading the tokens.
    pub device: Duration,
}

/// A timed prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefill {
    /// The first generated token.
    pub token: u32,
    /// Device time from the first launch to the end of the step that generated this token.
    pub device: Duration,
}

impl Decoder {
    /// Prefills a prompt of `len` tokens, the same in every round, and generates the next token.
    ///
    /// # Errors
    /// A prompt without tokens or longer than the context, driver errors, and logits that are not finite.
    pub fn time_prefill(&mut self, len: u32) -> Result<Prefill, Error> {
        let vocab = u64::from(self.machine.config.vocab);
        // A prime stride visits every id of most vocabularies.
        let ids: Vec<u32> = (0..u64::from(len))
            .map(|i| (i * 7919 % vocab) as u32)
            .collect();
        self.reset();
        self.give(&ids)?;
        let (start, end) = (
            Event::new(self.stream.context())?,
            Event::new(self.stream.context())?,
        );
        start.record(&self.stream)?;
        self.take_in(&ids, |_| ControlFlow::Continue(()))?;
        if self.resume()? == 0 {
            self.launch(StepKind::Decode)?;
        }
        end.record(&self.stream)?;
        end.synchronize()?;
        let token = self.token(len - 1)?;
        Ok(Prefill {
            token,
            device: end.since(&start)?,
        })
    }

    /// Decodes `tokens` tokens, the first of which attends to `attended` positions, without a prompt: keys and values
    /// of the preceding positions are random, the same in every round. An end-of-text token would end the round: to
    /// time steps, clear [`Outline::stop`](crate::Outline::stop) before creating the decoder.
    ///
    /// # Errors
    /// A context that is too short, driver errors, and logits that are not finite.
    pub fn round(&mut self, attended: u32, tokens: u32) -> Result<Round, Error> {
        self.prepare(attended, tokens)?;
        let (read, wall) = self.on_the_wall(attended, tokens)?;
        let (queued, device) = self.on_the_device(attended, tokens)?;
        if read != queued {
            return Err(Error::OtherTokens);
        }
        Ok(Round {
            tokens: read,
            wall,
            device,
        })
    }

    /// Prepares decoding from `attended` positions with random keys and values.
    pub(crate) fn prepare(&mut self, attended: u32, tokens: u32) -> Result<(), Error> {
        self.check_room(attended, tokens)?;
        self.reset();
        self.fill_caches()?;
        self.place(attended)
    }

    fn check_room(&self, attended: u32, tokens: u32) -> Result<(), Error> {
        let (room, needed) = (
            self.machine.buffers.ctx,
            u64::from(attended) + u64::from(tokens) - 1,
        );
        if attended == 0 || needed > room.into() {
            Err(Error::Room { needed, room })
        } else {
            Ok(())
        }
    }

    fn fill_caches(&self) -> Result<(), Error> {
        let mut pools = Pools::new(self.stream.context(), 1.0)?;
        let b = &self.machine.buffers;
        for cache in b.k_cache.iter().chain(&b.v_cache) {
            let bytes: View<u8> = cache.cast()?;
            pools.fill(Unit::Block(Format::F16), &bytes)?;
        }
        pools.finish()
    }

    /// Sets the state so that the next step attends to this many positions.
    fn place(&self, attended: u32) -> Result<(), Error> {
        Ok(self.stream.write(
            &self.machine.buffers.state,
            &StepState {
                position: attended - 1,
                ..StepState::default()
            }
            .words(),
        )?)
    }

    fn on_the_wall(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let start = Instant::now();
        let read: Result<_, _> = Generation::new(self, attended - 1, tokens, 0)?.collect();
        let wall = start.elapsed();
        // They continue no prompt.
        self.reset();
        Ok((read?, wall))
    }

    fn on_the_device(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let (start, end) = (
            Event::new(self.stream.context())?,
            Event::new(self.stream.context())?,
        );
        start.record(&self.stream)?;
        let mut left = tokens;
        while left > 0 {
            left -= self.launch_tokens(left)?;
        }
        end.record(&self.stream)?;
        end.synchronize()?;
        let positions = attended - 1..attended - 1 + tokens;
        let read = positions
            .map(|position| self.token(position))
            .collect::<Result<_, _>>()?;
        Ok((read, end.since(&start)?))
    }
}
