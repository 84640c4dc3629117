//! Prefill: appends prompt tokens to a decoder's sequence.
//!
//! A prompt is launched as chunks if the model and the device have kernels for chunks, and as
//! groups of single or batched steps otherwise. At most two launches are in flight. The device
//! therefore never idles, and the host learns about one launch while the next one runs.
//!
//! The last token is treated in one of two ways. A chunk processes it and keeps its row of the
//! residual stream for the LM head. Steps leave it pending, because the first decode step computes
//! its keys and values together with its logits.

use std::ops::ControlFlow;

use warpwright_kernels::shared::state::StepState;

use crate::Error;
use crate::chunked::step::WantedRows;
use crate::decode::decoder::Decoder;
use crate::decode::sequence::{DecoderSequence, LastToken};
use crate::step::StepKind;

/// The number of steps per launch when the prompt is not prefilled in chunks.
const STEPS: u32 = 8;

impl Decoder {
    /// Appends `tokens` to the sequence and computes their keys and values.
    ///
    /// `tokens` must have 1 to `ctx - position()` ids, each below the vocabulary size. The next
    /// call to [`decode`](Decoder::decode) continues after them. This method returns as soon as the
    /// work is queued. Methods that read results wait for it.
    ///
    /// Chunks start at the first token of a call and have
    /// [`Options::chunk`](field@crate::Options::chunk) tokens each, except the last one. Two calls
    /// give the same bits as one longer call if the first call ends where a chunk of the longer
    /// call ends. At other positions the results may be rounded differently.
    ///
    /// # Example: continue a conversation without recomputing it
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Options};
    /// use warpwright_model::Model;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Model::open("model.gguf".as_ref())?;
    /// # let tokenizer = model.tokenizer()?;
    /// # let context = Context::new(&Driver::load()?.devices()?[0])?;
    /// let options = Options::new(1024, Launch::Graph);
    /// let mut decoder = Decoder::new(&context, &model, options, |_bytes| ())?;
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
    /// - [`Error::NoPrompt`] if `tokens` is empty.
    /// - [`Error::PromptLength`] if the context has too little space left.
    /// - [`Error::PromptToken`] if an id is not in the vocabulary.
    /// - [`Error::Driver`] if a launch fails. You cannot use the decoder afterwards. The other
    ///   errors leave it unchanged.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.write_prompt(tokens)?;
        self.launch_prompt(tokens, |_| ControlFlow::Continue(()))
            .map(drop)
    }

    /// Appends `tokens` to the sequence, reports progress, and returns the number of tokens
    /// appended.
    ///
    /// `progress` is called after each chunk, or after every eight steps if there are no chunks.
    /// Its argument is the number of `tokens` that the device has processed so far. The last call
    /// reports all of them.
    ///
    /// If `progress` returns `Break`, nothing more is launched. Work that is already in flight, at
    /// most one chunk, still completes and counts. The decoder then behaves as if it had been given
    /// only the returned number of tokens. You can decode from there, append the rest, or call
    /// [`reset`](Decoder::reset).
    ///
    /// # Errors
    /// Returns the errors of [`prefill`](Decoder::prefill).
    pub fn prefill_with(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        self.write_prompt(tokens)?;
        let launched = self.launch_prompt(tokens, &mut progress)?;
        while let Some(done) = self.in_flight.wait()? {
            if progress(done).is_break() {
                break;
            }
        }
        Ok(launched)
    }

    /// Returns the position of the next token: the number of tokens appended by
    /// [`prefill`](Decoder::prefill) and read from generations since the last reset.
    pub fn position(&self) -> u32 {
        self.sequence.len
    }

    /// Removes all tokens from the sequence.
    pub fn reset(&mut self) {
        self.sequence = DecoderSequence::default();
    }

    /// Removes all tokens but the first `len`, the last of which is `last`.
    ///
    /// [`decode`](Decoder::decode) and [`prefill`](Decoder::prefill) continue after it. The cached
    /// keys and values of the removed tokens stay until they are overwritten, and nothing reads
    /// them before that. If `len` is 0, `last` is ignored.
    ///
    /// # Errors
    /// - [`Error::SequenceShort`] if the decoder has fewer than `len` tokens.
    /// - [`Error::PromptToken`] if `last` is not in the vocabulary.
    ///
    /// Both leave the decoder unchanged.
    pub fn rewind(&mut self, len: u32, last: u32) -> Result<(), Error> {
        let had = self.sequence.len;
        let vocab = self.machine.config.vocab;
        if len > had {
            return Err(Error::SequenceShort { len, tokens: had });
        }

        if len == 0 {
            self.reset();
            return Ok(());
        }

        if last >= vocab {
            return Err(Error::PromptToken {
                index: len as usize - 1,
                id: last,
                vocab,
            });
        }

        // Nothing changes if no token is removed. The last token may then be pending still.
        if len < had {
            self.sequence = DecoderSequence {
                len,
                last: LastToken::Processed(last),
                placed: false,
            };
        }

        Ok(())
    }

    /// Writes the prompt to the device, and the state of its first token. A pending token is
    /// written in front of it.
    pub(crate) fn write_prompt(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let b = &self.machine.buffers;
        let vocab = self.machine.config.vocab;
        let sequence = &self.sequence;
        check(tokens, vocab, sequence.len, b.ctx)?;
        let tokens: Vec<u32> = sequence
            .pending()
            .into_iter()
            .chain(tokens.iter().copied())
            .collect();
        let first = sequence.position();
        let end = first + tokens.len() as u32;

        // The kernels read the tokens of positions below `prompt_len` from the prompt.
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

    /// Launches the tokens that [`write_prompt`](Decoder::write_prompt) wrote, with at most two
    /// launches in flight, until `progress` returns `Break`. Returns the number of tokens launched.
    pub(crate) fn launch_prompt(
        &mut self,
        tokens: &[u32],
        mut progress: impl FnMut(u32) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        let start = self.sequence.len;
        let mut position = self.sequence.position();
        let end = start + tokens.len() as u32;
        self.sequence.placed = false;
        self.in_flight.clear();
        while self.sequence.len < end {
            // Wait for the earlier launch only once the later one is queued, so that the device
            // never idles.
            if self.in_flight.is_full()
                && let Some(done) = self.in_flight.wait()?
                && progress(done).is_break()
            {
                self.in_flight.clear();
                return Ok(self.sequence.len - start);
            }

            let chunk = self.launch_next(&mut position, start, end)?;
            let (len, last) = match chunk {
                Some(tokens) => (position, LastToken::Chunk(tokens)),
                None => {
                    // Steps leave the prompt's last token to the first decode step.
                    let len = if position + 1 == end { end } else { position };
                    (len, LastToken::Pending(tokens[(len - start) as usize - 1]))
                }
            };
            self.sequence = DecoderSequence {
                len,
                last,
                placed: len == end,
            };
            self.in_flight.push(&self.stream, len - start)?;
        }

        Ok(end - start)
    }

    /// Launches a chunk or up to [`STEPS`] steps, moves `position` past them, and returns the
    /// length of the chunk.
    ///
    /// A chunk begins at `start` or later and may contain the prompt's last token. Steps stop in
    /// front of it.
    fn launch_next(
        &mut self,
        position: &mut u32,
        start: u32,
        end: u32,
    ) -> Result<Option<u32>, Error> {
        // A pending token of an earlier call is in front of `start`. It takes a step of its own,
        // because chunks begin with the first token of a call, whatever was pending.
        let chunked = self.next_chunk(end - start.max(*position)).is_some();
        if chunked && *position < start {
            self.launch(StepKind::Prefill)?;
            *position += 1;
        }

        if chunked {
            let tokens =
                self.machine
                    .chunk(&mut &self.stream, end - *position, WantedRows::Last)?;
            *position += tokens;
            return Ok(Some(tokens));
        }

        let batch = self.prefill_batch();
        for _ in 0..STEPS {
            let left = end - 1 - *position;
            let (kind, count) = match left {
                0 => break,
                1 => (StepKind::Prefill, 1),
                _ if batch == 1 => (StepKind::Prefill, 1),
                _ => (StepKind::PrefillBatch, batch.min(left)),
            };
            self.launch(kind)?;
            *position += count;
        }

        Ok(None)
    }

    /// Prepares the device state for decoding and returns the number of tokens already launched: 0
    /// or 1.
    ///
    /// If the last token was the end of a chunk, only the LM head is missing, so this method
    /// launches it and the choice of the next token.
    ///
    /// # Errors
    /// Returns [`Error::NoPrompt`] if the decoder has no tokens, or a driver error.
    pub(crate) fn resume(&mut self) -> Result<u32, Error> {
        self.write_state()?;
        let LastToken::Chunk(tokens) = self.sequence.last else {
            return Ok(0);
        };
        self.machine
            .end_chunk(&mut &self.stream, tokens, StepKind::Decode)?;
        Ok(1)
    }

    /// Launches the logits after the last token, without choosing one.
    ///
    /// # Errors
    /// Returns [`Error::NoPrompt`] if the decoder has no tokens, or a driver error.
    pub(crate) fn launch_logits(&mut self) -> Result<(), Error> {
        self.write_state()?;
        match self.sequence.last {
            LastToken::Chunk(tokens) => {
                self.machine
                    .end_chunk(&mut &self.stream, tokens, StepKind::Logits)
            }
            _ => self.launch(StepKind::Logits),
        }
    }

    /// Writes the state of the last token to the device unless it is there already. The next step
    /// advances it.
    fn write_state(&mut self) -> Result<(), Error> {
        let DecoderSequence { len, last, placed } = self.sequence;
        if !placed {
            let position = len.checked_sub(1).ok_or(Error::NoPrompt)?;
            let token = match last {
                LastToken::Pending(token) | LastToken::Processed(token) => token,
                // The row of the residual stream is kept, so the token itself is not read.
                LastToken::None | LastToken::Chunk(_) => 0,
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

/// Returns an error for a prompt that would make the device read or write out of bounds.
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
