//! Timed rounds: how long a decoder takes for a token, on the wall and on the device.

use std::time::{Duration, Instant};

use warpwright_driver::{Event, View};
use warpwright_kernels::Format;

use crate::decoder::{Generation, Kind};
use crate::random::{Pools, Unit};
use crate::{Decoder, Error};

/// The same tokens, decoded twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// From the first launch until the host has read the last token, each read while the next step runs.
    pub wall: Duration,
    /// From the first launch to the last step's end on the device, steps queued without a look at the tokens.
    pub device: Duration,
}

/// A prompt that was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prompt {
    /// The token behind it.
    pub token: u32,
    /// From the first launch to the end of the step that made this token, on the device.
    pub device: Duration,
}

impl Decoder {
    /// Takes in a prompt of `len` tokens, the same in every round, and makes the token behind it.
    ///
    /// # Errors
    /// A prompt without tokens or with more than there is room for, and what the driver refuses.
    pub fn prompt(&mut self, len: u32) -> Result<Prompt, Error> {
        let vocab = u64::from(self.machine.config.vocab);
        // Steps of a prime go through all of most vocabularies.
        let ids: Vec<u32> = (0..u64::from(len)).map(|i| (i * 7919 % vocab) as u32).collect();
        self.start(&ids)?;
        let (start, end) = (Event::new(self.stream.context())?, Event::new(self.stream.context())?);
        start.record(&self.stream)?;
        self.take_in(len - 1)?;
        self.launch(Kind::Token)?;
        end.record(&self.stream)?;
        end.synchronize()?;
        let token = self.machine.buffers.out.read(len as usize - 1);
        Ok(Prompt { token, device: end.since(&start)? })
    }

    /// Decodes `tokens` tokens, the first of which attends `attended` positions, without a prompt: keys and values
    /// of the positions before are random, the same in every round. A token that ends texts would end the round: to
    /// time steps, clear [`Outline::stop`](crate::Outline::stop) before the decoder is made.
    ///
    /// # Errors
    /// More positions than there is room for, what the driver refuses, and logits that are not numbers.
    pub fn round(&mut self, attended: u32, tokens: u32) -> Result<Round, Error> {
        self.prepare(attended, tokens)?;
        let (read, wall) = self.on_the_wall(attended, tokens)?;
        let (queued, device) = self.on_the_device(attended, tokens)?;
        if read != queued {
            return Err(Error::OtherTokens);
        }
        Ok(Round { tokens: read, wall, device })
    }

    /// Puts the decoder where the next of so many tokens attends `attended` positions, all of them random.
    pub(crate) fn prepare(&mut self, attended: u32, tokens: u32) -> Result<(), Error> {
        self.check_room(attended, tokens)?;
        self.fill_caches()?;
        self.place(attended)
    }

    fn check_room(&self, attended: u32, tokens: u32) -> Result<(), Error> {
        let (room, needed) = (self.machine.buffers.ctx, u64::from(attended) + u64::from(tokens) - 1);
        if attended == 0 || needed > room.into() { Err(Error::Room { needed, room }) } else { Ok(()) }
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

    /// Puts the decoder where the next step attends so many positions.
    fn place(&self, attended: u32) -> Result<(), Error> {
        Ok(self.stream.write(&self.machine.buffers.state, &[0, attended - 1, 0, 0, 0, 0, 0, 0])?)
    }

    fn on_the_wall(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let start = Instant::now();
        let read = Generation::new(self, attended - 1, tokens).collect::<Result<_, _>>()?;
        Ok((read, start.elapsed()))
    }

    fn on_the_device(&mut self, attended: u32, tokens: u32) -> Result<(Vec<u32>, Duration), Error> {
        self.place(attended)?;
        let (start, end) = (Event::new(self.stream.context())?, Event::new(self.stream.context())?);
        start.record(&self.stream)?;
        let mut left = tokens;
        while left > 0 {
            left -= self.launch_tokens(left)?;
        }
        end.record(&self.stream)?;
        end.synchronize()?;
        let first = attended as usize - 1;
        let read = (first..first + tokens as usize).map(|i| self.machine.buffers.out.read(i)).collect();
        Ok((read, end.since(&start)?))
    }
}
