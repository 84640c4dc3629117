//! Timed rounds: the time per token, on the wall clock and on the device.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwright_driver::memory::View;
use warpwright_driver::ordering::Event;
use warpwright_kernels::Format;
use warpwright_kernels::shared::state::StepState;

use crate::Decoder;
use crate::Error;
use crate::decode::generation::Generation;
use crate::step::StepKind;
use crate::weights::random::{RandomPools, RandomUnit};

/// A measurement of decoding. The tokens are decoded twice, once for each time.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The decoded tokens, which were the same both times.
    pub tokens: Vec<u32>,
    /// The wall time from the first launch until the host has read the last token. Each token is
    /// read while the next step runs.
    pub wall: Duration,
    /// The device time from the first launch to the end of the last step. The launches are queued
    /// without reading tokens in between.
    pub device: Duration,
}

/// A measurement of prefill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefill {
    /// The first generated token.
    pub token: u32,
    /// The device time from the first launch to the end of the step that generated the token.
    pub device: Duration,
}

impl Decoder {
    /// Prefills a prompt of `len` tokens, generates the next token, and returns the time. The
    /// prompt is the same in every call.
    ///
    /// # Errors
    /// - [`Error::NoPrompt`] or [`Error::PromptLength`] if `len` is 0 or above the context length.
    /// - [`Error::Logit`] if a logit is not finite.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn time_prefill(&mut self, len: u32) -> Result<Prefill, Error> {
        let vocab = u64::from(self.machine.config.vocab);

        // A prime stride visits every id of most vocabularies.
        let ids: Vec<u32> = (0..u64::from(len))
            .map(|i| (i * 7919 % vocab) as u32)
            .collect();
        self.reset();
        self.write_prompt(&ids)?;
        let start = Event::new(self.stream.context())?;
        let end = Event::new(self.stream.context())?;
        start.record(&self.stream)?;
        self.launch_prompt(&ids, |_| ControlFlow::Continue(()))?;
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

    /// Decodes `tokens` tokens without a prompt and returns the times. The first token attends to
    /// `attended` positions.
    ///
    /// The keys and values of the earlier positions are random, and the same in every call. A token
    /// that ends texts would end the round early. To time steps, clear
    /// [`Outline::stop`](warpwright_model::Outline::stop) before you create the decoder.
    ///
    /// # Errors
    /// - [`Error::Room`] if the context is too short.
    /// - [`Error::Logit`] if a logit is not finite.
    /// - [`Error::OtherTokens`] if the two runs decode different tokens.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn round(&mut self, attended: u32, tokens: u32) -> Result<Round, Error> {
        self.prepare(attended, tokens)?;
        let (read, wall) = self.wall_time(attended, tokens)?;
        let (queued, device) = self.device_time(attended, tokens)?;

        // Reading tokens in between must not change them. A difference means a missing dependency.
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

    /// Returns an error if the context is too short.
    fn check_room(&self, attended: u32, tokens: u32) -> Result<(), Error> {
        let room = self.machine.buffers.ctx;
        let needed = u64::from(attended) + u64::from(tokens) - 1;
        if attended == 0 || needed > room.into() {
            Err(Error::Room { needed, room })
        } else {
            Ok(())
        }
    }

    fn fill_caches(&self) -> Result<(), Error> {
        let mut pools = RandomPools::new(self.stream.context(), 1.0)?;
        let b = &self.machine.buffers;
        for cache in b.k_cache.iter().chain(&b.v_cache) {
            let bytes: View<u8> = cache.cast()?;
            pools.fill(RandomUnit::Block(Format::F16), &bytes)?;
        }
        pools.finish()
    }

    /// Writes the state of a step that attends to this many positions.
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

    /// Decodes the tokens and reads each as soon as possible. Returns the tokens and the wall time.
    fn wall_time(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let start = Instant::now();
        let read: Result<_, _> = Generation::new(self, attended - 1, tokens, 0)?.collect();
        let wall = start.elapsed();
        // These tokens continue no prompt, so they must not become part of the sequence.
        self.reset();
        Ok((read?, wall))
    }

    /// Decodes the tokens without reading them in between. Returns the tokens and the device time.
    fn device_time(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let start = Event::new(self.stream.context())?;
        let end = Event::new(self.stream.context())?;
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
