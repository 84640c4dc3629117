//! Generations: iterators over the tokens that a decoder generates.

use warpwright_model::Matcher;

use crate::Error;
use crate::decode::constrained::Constraint;
use crate::decode::decoder::{Decoder, DecoderMachine};
use crate::decode::finite::check_logits;
use crate::decode::sequence::{DecoderSequence, LastToken};
use crate::decode::verify::Drafted;
use crate::sampling::options::Sampling;
use crate::sampling::probabilities::LogProbabilities;
use crate::speculative::speculation::Speculation;
use crate::step::StepKind;

/// An iterator over generated tokens, created by [`Decoder::decode`] and similar methods.
///
/// Up to two launches run ahead of the iterator. You can drop a generation early, because only the
/// tokens that were read become part of the decoder's sequence.
pub struct Generation<'a> {
    decoder: &'a mut Decoder,
    /// The position of the token that the first step processes.
    first: u32,
    limit: u32,
    end: GenerationEnd,
    /// The number of tokens in all launches so far.
    launched: u32,
    /// The number of tokens in the completed launches.
    made: u32,
    read: u32,
    /// The drafts, for speculative decoding.
    drafted: Option<Drafted<'a>>,
    /// The grammar, for constrained decoding.
    constraint: Option<Constraint<'a>>,
}

/// The reason why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationEnd {
    /// The last token ends the text.
    Text,
    /// The context has no position left.
    ContextFull,
    /// The requested number of tokens was generated.
    Limit,
    /// The grammar allows no further token.
    Grammar,
}

impl Iterator for Generation<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Result<u32, Error>> {
        if self.end != GenerationEnd::Text
            && self.constraint.as_ref().is_some_and(Constraint::is_over)
        {
            self.end = GenerationEnd::Grammar;
            self.limit = self.read;
        }

        if self.read == self.limit {
            return None;
        }

        let token = match self.constraint {
            Some(_) => self.constrained_step(),
            None => self.step(),
        };
        let stops = |id| self.decoder.machine.buffers.stop_tokens.contains(id);
        if token.as_ref().is_ok_and(stops) {
            self.end = GenerationEnd::Text;
        }

        // After an error or the end of the text, no further token is read.
        if token.is_err() || self.end == GenerationEnd::Text {
            self.limit = self.read;
        }

        Some(token)
    }
}

impl<'a> Generation<'a> {
    /// Creates a generation of at most `limit` tokens, or fewer if the context is shorter. `made`
    /// tokens, 0 or 1, are in flight already.
    pub(crate) fn new(
        decoder: &'a mut Decoder,
        first: u32,
        limit: u32,
        made: u32,
    ) -> Result<Generation<'a>, Error> {
        let room = decoder.machine.buffers.ctx - first;
        let (end, limit) = if limit > room {
            (GenerationEnd::ContextFull, room)
        } else {
            (GenerationEnd::Limit, limit)
        };
        decoder.in_flight.clear();
        if made > 0 {
            decoder.in_flight.push(&decoder.stream, made)?;
        }

        Ok(Generation {
            decoder,
            first,
            limit,
            end,
            launched: made,
            made: 0,
            read: 0,
            drafted: None,
            constraint: None,
        })
    }

    /// Returns the generation with drafts after `tokens`, which are all tokens of the decoder.
    fn with_drafts(self, speculation: &'a mut Speculation, tokens: &[u32]) -> Generation<'a> {
        Generation {
            drafted: Some(Drafted::new(speculation, tokens)),
            ..self
        }
    }

    /// Returns the reason why there are no more tokens. It is valid once the iterator has ended
    /// without an error.
    pub fn end(&self) -> GenerationEnd {
        self.end
    }

    /// Returns the log-probabilities at the position of the last token that was read.
    ///
    /// They are `None` unless the decoder [samples](crate::Sampling) with `logprobs` above 0. In
    /// constrained decoding they cover only the allowed tokens, and there are none for a token that
    /// the grammar forced.
    pub fn log_probabilities(&self) -> Option<LogProbabilities> {
        let position = self.first + self.read.checked_sub(1)?;
        let DecoderMachine { buffers, .. } = &self.decoder.machine;
        let best = match (&self.constraint, &buffers.allowed) {
            (Some(constraint), _) if !constraint.chose() => return None,
            (Some(_), Some(allowed)) => allowed.best(0),
            _ => self.decoder.logprobs,
        };
        buffers
            .sampler
            .as_ref()?
            .log_probabilities(0, position, best)
    }

    /// Returns the number of tokens in all completed launches.
    ///
    /// It includes the tokens that were read, those that can be read without waiting, and steps
    /// past the end of the text.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Waits until at least one unread token is available.
    fn wait(&mut self) -> Result<(), Error> {
        let Some(drafted) = &mut self.drafted else {
            return self.wait_for_launch();
        };

        if self.launched == self.made {
            self.made += drafted.round(self.decoder, self.limit - self.made)?;
            self.launched = self.made;
            return Ok(());
        }

        // One token is in flight: the one after a chunk, which `resume` launched. It was chosen
        // without drafts.
        self.decoder.in_flight.wait()?;
        drafted.push(self.decoder.token(self.first)?);
        self.made = self.launched;
        Ok(())
    }

    /// Queues launches until two are in flight, then waits for the earlier one.
    fn wait_for_launch(&mut self) -> Result<(), Error> {
        while !self.decoder.in_flight.is_full() && self.launched < self.limit {
            self.launched += self.decoder.launch_tokens(self.limit - self.launched)?;
            let Decoder {
                in_flight, stream, ..
            } = &mut *self.decoder;
            in_flight.push(stream, self.launched)?;
        }
        self.made = self
            .decoder
            .in_flight
            .wait()?
            .expect("tokens are wanted, so a launch is in flight");
        Ok(())
    }

    /// Chooses the next token under the grammar.
    fn constrained_step(&mut self) -> Result<u32, Error> {
        let Generation {
            decoder,
            first,
            limit,
            read,
            constraint: Some(constraint),
            ..
        } = self
        else {
            return self.step();
        };

        let token = constraint.next(decoder, *first + *read, *limit - *read)?;
        *read += 1;
        self.made = self.made.max(*read + constraint.ahead());
        Ok(token)
    }

    /// Reads the next token, and waits for it if necessary.
    fn step(&mut self) -> Result<u32, Error> {
        if self.read == self.made {
            self.wait()?;
        }

        let position = self.first + self.read;
        self.read += 1;
        let token = self.decoder.token(position)?;

        // Later steps may already be running. Whatever they write to the cache is overwritten
        // before it is read.
        self.decoder.sequence = DecoderSequence {
            len: position + 2,
            last: LastToken::Pending(token),
            placed: false,
        };
        Ok(token)
    }
}

impl Decoder {
    /// Sets the sampling parameters of the following tokens.
    ///
    /// A decoder made with [`TokenChoice::Sampled`](crate::TokenChoice) chooses the most likely
    /// token until this method is called. The parameters are data on the device, so no kernel is
    /// compiled and no graph is rebuilt.
    ///
    /// # Errors
    /// - [`Error::NotSampled`] if the decoder was made for greedy decoding.
    /// - An error that names the option if a value is outside its range.
    /// - [`Error::Driver`] if the copy to the device fails.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<(), Error> {
        let DecoderMachine {
            buffers, config, ..
        } = &self.machine;
        let sampler = buffers.sampler.as_ref().ok_or(Error::NotSampled)?;
        sampling.check(config.vocab)?;
        let params = sampler.set(&self.stream, 0, sampling)?;
        if let Some(allowed) = &mut self.machine.buffers.allowed {
            allowed.set_params(0, params);
        }

        self.logprobs = sampling.logprobs;
        Ok(())
    }

    /// Replaces the sequence by `prompt` and generates at most `limit` tokens after it.
    ///
    /// Tokens are chosen greedily (the token with the largest logit), or by the [sampling
    /// parameters](Decoder::set_sampling) that were set. The generation ends after a token that
    /// ends texts, or when the context is full.
    ///
    /// # Errors
    /// Returns the errors of [`prefill`](Decoder::prefill), for example if the prompt is empty,
    /// longer than the context, or contains an id outside the vocabulary.
    pub fn generate(&mut self, prompt: &[u32], limit: u32) -> Result<Generation<'_>, Error> {
        self.reset();
        self.prefill(prompt)?;
        self.decode(limit)
    }

    /// Generates at most `limit` tokens after the decoder's sequence.
    ///
    /// The sequence consists of the tokens given to [`prefill`](Decoder::prefill) and of those read
    /// from earlier generations. You can drop a generation early, because only tokens that were
    /// read count.
    ///
    /// # Errors
    /// Returns [`Error::NoPrompt`] if the sequence is empty, or a driver error.
    pub fn decode(&mut self, limit: u32) -> Result<Generation<'_>, Error> {
        let made = self.resume()?;
        let first = self.sequence.len - 1;
        Generation::new(self, first, limit, made)
    }

    /// Generates the tokens that [`decode`](Decoder::decode) would generate, but verifies guesses
    /// several at a time.
    ///
    /// The output is identical, bit for bit. It is faster when guesses are right. `tokens` must be
    /// the whole sequence of the decoder, because the drafter needs the history.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Options, PromptLookup, Speculation};
    /// use warpwright_model::Model;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = Model::open("model.gguf".as_ref())?;
    /// # let tokenizer = model.tokenizer()?;
    /// # let context = Context::new(&Driver::load()?.devices()?[0])?;
    /// let options = Options { drafts: 7, ..Options::new(1024, Launch::Graph) };
    /// let mut decoder = Decoder::new(&context, &model, options, |_bytes| ())?;
    /// let mut lookup = Speculation::new(PromptLookup::default());
    /// let prompt = tokenizer.encode("fn first(a: u32) {}\nfn second(")?;
    /// decoder.prefill(&prompt)?;
    /// let mut text = tokenizer.stream();
    /// for token in decoder.decode_speculative(&prompt, 48, &mut lookup)? {
    ///     print!("{}", text.push(token?));
    /// }
    /// println!("{:?}", lookup.counts());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NotSpeculative`] if the decoder was made without
    ///   [drafts](field@crate::Options::drafts).
    /// - [`Error::OtherHistory`] if `tokens` has another length than the decoder's sequence.
    /// - The errors of [`decode`](Decoder::decode).
    ///
    /// Errors of the drafter are returned by the iterator.
    pub fn decode_speculative<'a>(
        &'a mut self,
        tokens: &[u32],
        limit: u32,
        speculation: &'a mut Speculation,
    ) -> Result<Generation<'a>, Error> {
        if self.drafts() == 0 {
            return Err(Error::NotSpeculative);
        }
        if tokens.len() != self.sequence.len as usize {
            return Err(Error::OtherHistory {
                given: tokens.len(),
                tokens: self.sequence.len,
            });
        }
        Ok(self.decode(limit)?.with_drafts(speculation, tokens))
    }

    /// Generates at most `limit` tokens that a grammar allows, starting at the matcher's current
    /// position.
    ///
    /// Tokens are chosen greedily or by the [sampling parameters](Decoder::set_sampling), among the
    /// allowed ones. The generation ends with [`GenerationEnd::Grammar`] when the grammar allows
    /// nothing more. A token that ends texts is allowed only where the text is complete. If the
    /// limit or the context ends the generation, [`Matcher::is_complete`] tells you whether the
    /// text is complete.
    ///
    /// The matcher advances with the generation. It has consumed every token that was read, and
    /// possibly forced tokens after them.
    ///
    /// Each token takes two launches. While the first one computes the logits, the CPU works out
    /// the allowed tokens.
    ///
    /// # Errors
    /// - [`Error::NotConstrained`] if the decoder was not made with
    ///   [`TokenChoice::Constrained`](crate::TokenChoice).
    /// - [`Error::OtherVocabulary`] if the grammar was compiled for another vocabulary size.
    /// - [`Error::NoPrompt`] if the sequence is empty, or a driver error.
    pub fn decode_constrained<'a>(
        &'a mut self,
        limit: u32,
        matcher: &'a mut Matcher,
    ) -> Result<Generation<'a>, Error> {
        let DecoderMachine {
            buffers, config, ..
        } = &self.machine;
        let grammar = matcher.vocab();
        let model = config.vocab;
        if buffers.allowed.is_none() {
            return Err(Error::NotConstrained);
        }
        if grammar != model {
            return Err(Error::OtherVocabulary { grammar, model });
        }

        let first = self.sequence.len.checked_sub(1).ok_or(Error::NoPrompt)?;
        let generation = Generation::new(self, first, limit, 0)?;
        Ok(Generation {
            constraint: Some(Constraint::new(matcher)),
            ..generation
        })
    }

    /// Returns the logits after the last token of the sequence, one per token of the vocabulary.
    ///
    /// # Errors
    /// - [`Error::NoPrompt`] if the sequence is empty.
    /// - [`Error::ContextFull`] if the last token was generated when the context was full, because
    ///   it has no position.
    /// - [`Error::Logit`] if a logit is not finite.
    /// - [`Error::Driver`] if a launch or a copy fails.
    pub fn last_logits(&mut self) -> Result<Vec<f32>, Error> {
        let len = self.sequence.len;
        let ctx = self.machine.buffers.ctx;
        if len > ctx {
            return Err(Error::ContextFull { ctx });
        }
        if self.resume()? == 0 {
            self.launch(StepKind::Decode)?;
        }

        // The step has written the token's keys and values, so the next one may start after it.
        if let LastToken::Pending(token) = self.sequence.last {
            self.sequence.last = LastToken::Processed(token);
        }

        let logits = self.stream.read(&self.machine.buffers.logits)?;
        check_logits(len - 1, &logits).map(|()| logits)
    }

    /// Returns the token chosen after `position`, whose step must have completed.
    ///
    /// # Errors
    /// Returns [`Error::Logit`] if a logit was not finite. The device chose no token then, and
    /// every later step has computed the same logits again.
    pub(crate) fn token(&self, position: u32) -> Result<u32, Error> {
        let DecoderMachine {
            buffers, config, ..
        } = &self.machine;
        let token = buffers.out.read(position as usize);
        if token < config.vocab {
            return Ok(token);
        }
        check_logits(position, &self.stream.read(&buffers.logits)?)?;
        Err(Error::NoToken { position })
    }
}
