//! What a decoder yields: tokens as they are generated.

use crate::Error;
use crate::decode::decoder::{Decoder, Machine};
use crate::decode::finite::check_logits;
use crate::decode::guided::Guide;
use crate::decode::sequence::{Last, Sequence};
use crate::decode::verify::Drafted;
use crate::grammar::matcher::Matcher;
use crate::sampling::options::Sampling;
use crate::sampling::probabilities::LogProbabilities;
use crate::speculative::speculation::Speculation;
use crate::step::StepKind;

/// Tokens as they are generated.
pub struct Generation<'a> {
    decoder: &'a mut Decoder,
    /// The position of the first token's step.
    first: u32,
    limit: u32,
    end: End,
    /// Tokens of all launches.
    launched: u32,
    /// Tokens of the completed launches.
    made: u32,
    read: u32,
    /// Where tokens are guessed.
    drafted: Option<Drafted<'a>>,
    /// Within a grammar.
    guide: Option<Guide<'a>>,
}

/// Why tokens end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The last token ends the text.
    Text,
    /// There is no room for another position.
    ContextFull,
    /// The limit is reached.
    Limit,
    /// The grammar allows nothing more.
    Grammar,
}

impl Iterator for Generation<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Result<u32, Error>> {
        if self.end != End::Text && self.guide.as_ref().is_some_and(Guide::is_over) {
            (self.end, self.limit) = (End::Grammar, self.read);
        }
        if self.read == self.limit {
            return None;
        }
        let token = match self.guide {
            Some(_) => self.guided_step(),
            None => self.step(),
        };
        let stops = |id| self.decoder.machine.buffers.stop_tokens.contains(id);
        if token.as_ref().is_ok_and(stops) {
            self.end = End::Text;
        }
        // After an error or the end of the text there is nothing to wait for.
        if token.is_err() || self.end == End::Text {
            self.limit = self.read;
        }
        Some(token)
    }
}

impl<'a> Generation<'a> {
    /// At most `limit` tokens, and no more than there is room for. `made` of them, 0 or 1, are in flight.
    pub(crate) fn new(
        decoder: &'a mut Decoder,
        first: u32,
        limit: u32,
        made: u32,
    ) -> Result<Generation<'a>, Error> {
        let room = decoder.machine.buffers.ctx - first;
        let (end, limit) = if limit > room {
            (End::ContextFull, room)
        } else {
            (End::Limit, limit)
        };
        decoder.in_flight.clear();
        if made > 0 {
            decoder.in_flight.push(&decoder.stream, made)?;
        }
        let nobody = Generation {
            decoder,
            first,
            limit,
            end,
            launched: made,
            made: 0,
            read: 0,
            drafted: None,
            guide: None,
        };
        Ok(nobody)
    }

    /// The same with guesses after the tokens that the decoder has.
    fn with_drafts(self, speculation: &'a mut Speculation, tokens: &[u32]) -> Generation<'a> {
        Generation {
            drafted: Some(Drafted::new(speculation, tokens)),
            ..self
        }
    }

    /// Why there are no more tokens, once they have ended without an error.
    pub fn end(&self) -> End {
        self.end
    }

    /// The log-probabilities after the token that was yielded last, if the decoder [samples](crate::Sampling) and was asked for
    /// some. Within a grammar they are those of the tokens that were allowed, and there are none of one that was forced.
    pub fn log_probabilities(&self) -> Option<LogProbabilities> {
        let position = self.first + self.read.checked_sub(1)?;
        let Machine { buffers, .. } = &self.decoder.machine;
        let best = match (&self.guide, &buffers.allowed) {
            (Some(guide), _) if !guide.chose() => return None,
            (Some(_), Some(allowed)) => allowed.best(0),
            _ => self.decoder.logprobs,
        };
        buffers
            .sampler
            .as_ref()?
            .log_probabilities(0, position, best)
    }

    /// Tokens of the completed launches: those already yielded, those available without waiting, and steps past the
    /// end of the text.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Waits for the next tokens.
    fn wait(&mut self) -> Result<(), Error> {
        let Some(drafted) = &mut self.drafted else {
            return self.wait_for_launch();
        };
        if self.launched == self.made {
            self.made += drafted.round(self.decoder, self.limit - self.made)?;
            self.launched = self.made;
            return Ok(());
        }
        // The token after a chunk.
        self.decoder.in_flight.wait()?;
        drafted.push(self.decoder.token(self.first)?);
        self.made = self.launched;
        Ok(())
    }

    /// Keeps two launches in flight, then waits for the earlier one.
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

    fn guided_step(&mut self) -> Result<u32, Error> {
        let Generation {
            decoder,
            first,
            limit,
            read,
            guide: Some(guide),
            ..
        } = self
        else {
            return self.step();
        };
        let token = guide.next(decoder, *first + *read, *limit - *read)?;
        *read += 1;
        self.made = self.made.max(*read + guide.ahead());
        Ok(token)
    }

    fn step(&mut self) -> Result<u32, Error> {
        if self.read == self.made {
            self.wait()?;
        }
        let position = self.first + self.read;
        self.read += 1;
        let token = self.decoder.token(position)?;
        // Steps beyond it may run; what they leave in the cache is overwritten before it is read.
        self.decoder.sequence = Sequence {
            len: position + 2,
            last: Last::Waiting(token),
            placed: false,
        };
        Ok(token)
    }
}

impl Decoder {
    /// Lets the next tokens be drawn in this way. Until it is called, a decoder made with
    /// [`TokenChoice::Sampled`](crate::TokenChoice) takes the most likely token each time. Nothing is compiled or recorded anew.
    ///
    /// # Errors
    /// An option outside its range; a decoder that was made to be greedy; driver errors.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<(), Error> {
        let Machine {
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

    /// Starts anew and continues `prompt` greedily, the argmax token each time, or as [sampling](Decoder::set_sampling) says:
    /// at most `limit` tokens, up to and including an end-of-text token, or until the context is full.
    ///
    /// # Errors
    /// A prompt that is empty, longer than the context, or contains an id outside the vocabulary.
    pub fn generate(&mut self, prompt: &[u32], limit: u32) -> Result<Generation<'_>, Error> {
        self.reset();
        self.prefill(prompt)?;
        self.decode(limit)
    }

    /// The same from the tokens that the decoder has: those that it has [taken in](Decoder::prefill), and those read from
    /// generations. A generation may be dropped early; only tokens that were read count.
    ///
    /// # Errors
    /// A decoder that has no tokens, and driver errors.
    pub fn decode(&mut self, limit: u32) -> Result<Generation<'_>, Error> {
        let made = self.resume()?;
        let first = self.sequence.len - 1;
        Generation::new(self, first, limit, made)
    }

    /// The same tokens, faster where guesses are right: they are verified several at a time. `tokens` are all that the
    /// decoder has.
    ///
    /// ```no_run
    /// use warpwright_driver::{Context, Driver};
    /// use warpwright_engine::{Decoder, Launch, Model, Options, PromptLookup, Speculation};
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
    /// As [`decode`](Decoder::decode); a decoder that was made without [drafts](field@crate::Options::drafts); fewer or
    /// more tokens than it has. Those of the drafter come with the tokens.
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

    /// The same within a grammar, from where the matcher is: each token is one that it allows, greedily or as
    /// [sampling](Decoder::set_sampling) says. Tokens end where it allows nothing more ([`End::Grammar`]); a token that ends
    /// texts is given where the text is whole. If the limit or the context ends them, [`Matcher::is_complete`] says whether
    /// the text is whole. The matcher goes along: it has taken each token that was given, and perhaps some that must follow.
    ///
    /// A token is two launches, and the host has a part in it: it finds the tokens that are allowed while the forward pass
    /// runs.
    ///
    /// # Errors
    /// As [`decode`](Decoder::decode); a decoder not made with [`TokenChoice::Within`](crate::TokenChoice); a grammar for
    /// another vocabulary.
    pub fn decode_within<'a>(
        &'a mut self,
        limit: u32,
        matcher: &'a mut Matcher,
    ) -> Result<Generation<'a>, Error> {
        let Machine {
            buffers, config, ..
        } = &self.machine;
        let (grammar, model) = (matcher.vocab(), config.vocab);
        if buffers.allowed.is_none() {
            return Err(Error::NotWithin);
        }
        if grammar != model {
            return Err(Error::OtherVocabulary { grammar, model });
        }
        let first = self.sequence.len.checked_sub(1).ok_or(Error::NoPrompt)?;
        let generation = Generation::new(self, first, limit, 0)?;
        Ok(Generation {
            guide: Some(Guide::new(matcher)),
            ..generation
        })
    }

    /// The logits after the last of the tokens that the decoder has: `vocab` of them.
    ///
    /// # Errors
    /// A decoder that has no tokens, or whose last token was made when the context was full; logits that are not finite;
    /// and driver errors.
    pub fn last_logits(&mut self) -> Result<Vec<f32>, Error> {
        let (len, ctx) = (self.sequence.len, self.machine.buffers.ctx);
        if len > ctx {
            return Err(Error::ContextFull { ctx });
        }
        if self.resume()? == 0 {
            self.launch(StepKind::Decode)?;
        }
        if let Last::Waiting(token) = self.sequence.last {
            self.sequence.last = Last::Taken(token);
        }
        let logits = self.stream.read(&self.machine.buffers.logits)?;
        check_logits(len - 1, &logits).map(|()| logits)
    }

    /// The token after a position whose step has completed.
    ///
    /// # Errors
    /// A logit that was not finite: the device then chose no token, and every later step has left the same logits.
    pub(crate) fn token(&self, position: u32) -> Result<u32, Error> {
        let Machine {
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
