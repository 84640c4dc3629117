//! Prompts: tokens that are taken in after those that a decoder has.
//!
//! A prompt goes in by pieces: chunks where there are kernels for them, else a few steps each. Two are in flight at
//! most, so the device does not wait, and the host hears of one while the next runs. The last token of a chunk leaves
//! its row of the residual stream for the LM head. The last token of a prompt that ends in steps is left to the first
//! step of decoding.

use std::ops::ControlFlow;

use warpwright_kernels::state::StepState;

use crate::Error;
use crate::chunked::step::Wanted;
use crate::decode::decoder::Decoder;
use crate::decode::sequence::{Last, Sequence};
use crate::step::StepKind;

/// Steps of a piece that is no chunk.
const STEPS: u32 = 8;

impl Decoder {
    /// Takes in `tokens` after those that the decoder has, from where [`decode`](Decoder::decode) goes on. It may return
    /// before the device has ended; whatever reads from the decoder waits.
    ///
    /// Chunks begin with the first token of a call, and have [`Options::chunk`](field@crate::Options::chunk) tokens while there
    /// are so many. If a call ends where a chunk of one longer call ends, the two have the same bits. Elsewhere they may
    /// round differently.
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Model, Options};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Model::open("model.gguf".as_ref())?;
    /// # let tokenizer = model.tokenizer()?;
    /// # let context = Context::new(&Driver::load()?.devices()?[0])?;
    /// let mut decoder = Decoder::new(&context, &model, Options::new(1024, Launch::Graph), |_bytes| ())?;
    /// for turn in ["The borrow checker", " A kernel"] {
    ///     decoder.prefill(&tokenizer.encode(turn)?)?;
    ///     let mut text = tokenizer.stream();
    ///     for token in decoder.decode(48)? {
    ///         print!("{}", text.push(token?));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No tokens, a token outside the vocabulary, more tokens than the context has room for: then nothing has happened.
    /// After a driver error the decoder is of no more use.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.give(tokens)?;
        self.take_in(tokens, |_| ControlFlow::Continue(()))
            .map(drop)
    }

    /// The same, watched: `progress` is called with how many of the tokens the device has taken in, each time it has
    /// ended a chunk, or eight steps where there are no chunks. The last call is with all of them. Gives how many were
    /// taken in.
    ///
    /// If `progress` breaks, nothing more is launched. What was in flight, one chunk at most, is taken in all the same,
    /// and the decoder is as if it had been given just that many tokens: it can go on from there, take in the rest, or
    /// start anew.
    ///
    /// # Errors
    /// As [`prefill`](Decoder::prefill).
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        self.give(tokens)?;
        let taken = self.take_in(tokens, &mut progress)?;
        while let Some(done) = self.in_flight.wait()? {
            if progress(done).is_break() {
                break;
            }
        }
        Ok(taken)
    }

    /// The position of the next token: how many tokens were taken in, and read from generations, since the decoder
    /// started.
    pub fn position(&self) -> u32 {
        self.sequence.len
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        self.sequence = Sequence::default();
    }

    /// Forgets all tokens but the first `len`, the last of which is `last`: [`decode`](Decoder::decode) and
    /// [`prefill`](Decoder::prefill) go on from there. What is in the cache of the others is overwritten before it is
    /// read.
    ///
    /// # Errors
    /// More tokens than the decoder has, and a last one that is not of the vocabulary: then nothing has happened.
    pub fn rewind(&mut self, len: u32, last: u32) -> Result<(), Error> {
        let (had, vocab) = (self.sequence.len, self.machine.config.vocab);
        match len {
            _ if len > had => return Err(Error::SequenceShort { len, tokens: had }),
            0 => self.reset(),
            _ if last >= vocab => {
                return Err(Error::PromptToken {
                    index: len as usize - 1,
                    id: last,
                    vocab,
                });
            }
            _ if len < had => {
                self.sequence = Sequence {
                    len,
                    last: Last::Taken(last),
                    placed: false,
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the prompt and the state where it begins. A token that waits goes before it.
    pub(crate) fn give(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let (b, vocab, sequence) = (
            &self.machine.buffers,
            self.machine.config.vocab,
            &self.sequence,
        );
        check(tokens, vocab, sequence.len, b.ctx)?;
        let tokens: Vec<u32> = sequence
            .waiting()
            .into_iter()
            .chain(tokens.iter().copied())
            .collect();
        let first = sequence.position();
        let end = first + tokens.len() as u32;
        let state = StepState {
            token: tokens[0],
            position: first,
            prompt_len: end,
            ..StepState::default()
        };
        self.stream.write(&b.state, &state.words())?;
        self.stream
            .write(&b.prompt.view_range(first as usize..end as usize), &tokens)?;
        Ok(())
    }

    /// Launches what was given, two pieces in flight, while `progress` wants to go on. Gives how many tokens were
    /// launched.
    pub(crate) fn take_in(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        let (start, mut position) = (self.sequence.len, self.sequence.position());
        let end = start + tokens.len() as u32;
        self.sequence.placed = false;
        self.in_flight.clear();
        while self.sequence.len < end {
            if self.in_flight.is_full()
                && self
                    .in_flight
                    .wait()?
                    .is_some_and(|done| progress(done).is_break())
            {
                self.in_flight.clear();
                return Ok(self.sequence.len - start);
            }
            let chunk = self.launch_piece(&mut position, start, end)?;
            let (len, last) = match chunk {
                Some(tokens) => (position, Last::Chunk(tokens)),
                None => {
                    // Steps leave the prompt's last token to the next one.
                    let len = if position + 1 == end { end } else { position };
                    (len, Last::Waiting(tokens[(len - start) as usize - 1]))
                }
            };
            self.sequence = Sequence {
                len,
                last,
                placed: len == end,
            };
            self.in_flight.push(&self.stream, len - start)?;
        }
        Ok(end - start)
    }

    /// Launches a chunk, or a few steps, and moves `position` past them, at most to the last token before `end`; chunks
    /// take that one, too, and begin at `start`. Gives the length of a chunk.
    fn launch_piece(
        &mut self,
        position: &mut u32,
        start: u32,
        end: u32,
    ) -> Result<Option<u32>, Error> {
        let chunked = self.next_chunk(end - start.max(*position)).is_some();
        if chunked && *position < start {
            self.launch(StepKind::Prefill)?;
            *position += 1;
        }
        if chunked {
            let tokens = self
                .machine
                .chunk(&mut &self.stream, end - *position, Wanted::Last)?;
            *position += tokens;
            return Ok(Some(tokens));
        }
        let batch = self.prefill_batch();
        for _ in 0..STEPS {
            let left = end - 1 - *position;
            let (kind, taken) = match left {
                0 => break,
                1 => (StepKind::Prefill, 1),
                _ if batch == 1 => (StepKind::Prefill, 1),
                _ => (StepKind::PrefillBatch, batch.min(left)),
            };
            self.launch(kind)?;
            *position += taken;
        }
        Ok(None)
    }

    /// Makes sure that the state on the device is at the last token, and makes the next one, if that was the last token
    /// of a chunk. Gives how many tokens were made.
    ///
    /// # Errors
    /// No tokens, and driver errors.
    pub(crate) fn resume(&mut self) -> Result<u32, Error> {
        self.place_state()?;
        let Last::Chunk(tokens) = self.sequence.last else {
            return Ok(0);
        };
        self.machine
            .end_chunk(&mut &self.stream, tokens, StepKind::Decode)?;
        Ok(1)
    }

    /// Launches the logits after the last token, and chooses none.
    ///
    /// # Errors
    /// No tokens, and driver errors.
    pub(crate) fn launch_logits(&mut self) -> Result<(), Error> {
        self.place_state()?;
        match self.sequence.last {
            Last::Chunk(tokens) => {
                self.machine
                    .end_chunk(&mut &self.stream, tokens, StepKind::Logits)
            }
            _ => self.launch(StepKind::Logits),
        }
    }

    /// Makes sure that the state on the device is at the last token; the next step moves it on.
    fn place_state(&mut self) -> Result<(), Error> {
        let Sequence { len, last, placed } = self.sequence;
        if !placed {
            let position = len.checked_sub(1).ok_or(Error::NoPrompt)?;
            let token = match last {
                Last::Waiting(token) | Last::Taken(token) => token,
                Last::None | Last::Chunk(_) => 0,
            };
            let state = StepState {
                token,
                position,
                ..StepState::default()
            };
            self.stream
                .write(&self.machine.buffers.state, &state.words())?;
        }
        self.sequence.placed = false;
        Ok(())
    }
}

/// Refuses a prompt that would make the device read out of bounds.
fn check(prompt: &[u32], vocab: u32, before: u32, ctx: u32) -> Result<(), Error> {
    if prompt.is_empty() {
        return Err(Error::NoPrompt);
    }
    if prompt.len() > ctx.saturating_sub(before) as usize {
        return Err(Error::PromptLength {
            len: prompt.len(),
            before,
            ctx,
        });
    }
    match prompt.iter().position(|id| *id >= vocab) {
        Some(index) => Err(Error::PromptToken {
            index,
            id: prompt[index],
            vocab,
        }),
        None => Ok(()),
    }
}
