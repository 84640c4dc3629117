//! An engine over a decoder, for one sequence at a time.
//!
//! It serves models and devices without kernels for batches. The keys and values of the latest
//! sequence stay on the device, and the next prompt reuses its longest common prefix with them.

use warpwright_driver::Context;
use warpwright_engine::{Decoder, Error, LogProbabilities, Options, Sampling, TokenChoice};
use warpwright_model::{Matcher, Model};

use super::interface::{
    ChosenToken, Engine, EngineError, EngineLimits, Joined, PageCounts, SequenceKey, SequenceStart,
    StepWork, Stepped, Wanted,
};
use super::log_softmax::log_probabilities;

/// The number of positions that count as a page.
const PAGE: u32 = 64;

/// The maximum number of best log-probabilities per token.
const LOGPROBS: u32 = 20;

/// An engine over a [`Decoder`].
pub struct DecoderEngine {
    decoder: Decoder,
    limits: EngineLimits,
    stop: Vec<u32>,
    joined: u64,
    running: Option<RunningText>,
    /// The tokens that are processed.
    tokens: Vec<u32>,
    /// The salt of the sequence that they come from.
    salt: u64,
    content: DecoderContent,
    lost: Option<String>,
}

/// The sequence of a [`DecoderEngine`].
struct RunningText {
    key: SequenceKey,
    sampling: Sampling,
}

/// The sequence of the decoder, compared to the engine's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderContent {
    /// It has the same tokens.
    Same,
    /// It has this token after them, which it chose last.
    Ahead(u32),
    /// It has other tokens.
    Other,
}

impl DecoderEngine {
    /// Uploads the weights of `model` and returns an engine without a sequence. The options need
    /// not allow sampling.
    ///
    /// `progress` is called from other threads with the number of bytes copied so far.
    ///
    /// # Errors
    /// Returns the errors of [`Decoder::new`].
    pub fn load(
        context: &Context,
        model: &Model,
        options: Options,
        progress: impl FnMut(u64) + Send,
    ) -> Result<DecoderEngine, Error> {
        let options = Options {
            choice: TokenChoice::Constrained { logprobs: LOGPROBS },
            ..options
        };
        let decoder = Decoder::new(context, model, options, progress)?;
        Ok(DecoderEngine {
            decoder,
            limits: EngineLimits {
                sequences: 1,
                ctx: options.ctx,
                tokens_per_step: options.chunk.clamp(1, options.ctx),
                pages: options.ctx.div_ceil(PAGE),
                page_len: PAGE,
                vocab: model.outline.config.vocab,
                logprobs: LOGPROBS,
            },
            stop: model.outline.stop.clone(),
            joined: 0,
            running: None,
            tokens: vec![],
            salt: 0,
            content: DecoderContent::Same,
            lost: None,
        })
    }

    /// Returns the decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn check_lost(&self) -> Result<(), EngineError> {
        match &self.lost {
            Some(reason) => Err(EngineError::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Translates an error of the decoder, which may have processed some tokens.
    fn failed(&mut self, error: &Error) -> EngineError {
        self.content = DecoderContent::Other;
        let reason = error.to_string();
        match error {
            Error::Driver(_) => {
                self.lost = Some(reason.clone());
                EngineError::Lost(reason)
            }
            _ => match &self.running {
                Some(running) => EngineError::Sequence {
                    key: running.key,
                    reason,
                },
                None => EngineError::Unsupported(reason),
            },
        }
    }

    /// Makes the engine's tokens, followed by `more`, the sequence of the decoder.
    fn process(&mut self, more: &[u32]) -> Result<(), Error> {
        let len = self.tokens.len() as u32;
        let rest = match self.content {
            DecoderContent::Same => more,
            DecoderContent::Ahead(token) if more.first() == Some(&token) => &more[1..],
            DecoderContent::Ahead(_) => {
                let last = self.tokens.last().copied().unwrap_or(0);
                self.decoder.rewind(len, last)?;
                more
            }
            DecoderContent::Other => {
                self.decoder.reset();
                if !self.tokens.is_empty() {
                    self.decoder.prefill(&self.tokens)?;
                }
                more
            }
        };
        if !rest.is_empty() {
            self.decoder.prefill(rest)?;
        }
        Ok(())
    }

    /// Returns the log-probabilities of the tokens after each of `given`, which follow the engine's
    /// tokens. The decoder has other tokens afterwards.
    fn score(
        &mut self,
        given: &[u32],
        best: u32,
        following: Option<u32>,
    ) -> Result<Vec<LogProbabilities>, Error> {
        let all = [&self.tokens, given].concat();
        let followers: Vec<u32> = given[1..].iter().copied().chain(following).collect();
        self.content = DecoderContent::Other;
        let rows = self.decoder.logits(&all)?.skip(self.tokens.len());
        rows.zip(followers)
            .map(|(row, token)| Ok(log_probabilities(&row?, token, best)))
            .collect()
    }

    /// Chooses up to `limit` tokens after the decoder's sequence.
    fn choose(
        &mut self,
        limit: u32,
        matcher: Option<&mut Matcher>,
        logprobs: LogprobsWanted,
    ) -> Result<Vec<ChosenToken>, Error> {
        let constrained = matcher.is_some();
        let mut generation = match matcher {
            Some(matcher) => self.decoder.decode_constrained(limit, matcher)?,
            None => self.decoder.decode(limit)?,
        };
        let mut chosen = vec![];
        while let Some(token) = generation.next() {
            let token = token?;
            let probabilities = match logprobs {
                LogprobsWanted::Yes => generation.log_probabilities(),
                LogprobsWanted::No => None,
            };
            // A forced token has no logits. It is the only one that the grammar allows.
            let certain = || LogProbabilities {
                chosen: 0.0,
                best: vec![(token, 0.0)],
            };
            let probabilities = match (logprobs, probabilities) {
                (LogprobsWanted::Yes, None) if constrained => Some(certain()),
                (_, probabilities) => probabilities,
            };
            chosen.push(ChosenToken {
                token,
                probabilities,
            });
        }
        Ok(chosen)
    }

    fn step_one(&mut self, item: &mut StepWork<'_>) -> Result<Stepped, Error> {
        let mut stepped = Stepped::default();
        if let Wanted::Scored { best, following } = item.wanted {
            stepped.scored = self.score(item.tokens, best, following)?;
        }
        self.process(item.tokens)?;
        if item.wanted.chooses() {
            let logprobs = self.logprobs_wanted();
            let chosen = self.choose(1, item.matcher.as_deref_mut(), logprobs)?;
            stepped.next = chosen.into_iter().next();
        }

        self.tokens.extend(item.tokens);
        self.content = match &stepped.next {
            Some(chosen) => DecoderContent::Ahead(chosen.token),
            None => DecoderContent::Same,
        };
        Ok(stepped)
    }

    fn decode_one(&mut self, token: u32, steps: u32) -> Result<Vec<ChosenToken>, Error> {
        self.process(&[token])?;
        let chosen = self.choose(steps, None, self.logprobs_wanted())?;
        self.tokens.push(token);
        let (last, processed) = chosen.split_last().expect("the context has space");
        self.tokens
            .extend(processed.iter().map(|chosen| chosen.token));
        self.content = DecoderContent::Ahead(last.token);
        Ok(chosen)
    }

    fn logprobs_wanted(&self) -> LogprobsWanted {
        match &self.running {
            Some(running) if running.sampling.logprobs > 0 => LogprobsWanted::Yes,
            _ => LogprobsWanted::No,
        }
    }

    /// Returns the hidden states of a text, averaged and scaled to length 1.
    fn mean_state(&mut self, text: &[u32]) -> Result<Vec<f32>, Error> {
        let mut sums: Vec<f64> = vec![];
        for row in self.decoder.hidden_states(text)? {
            let row = row?;
            sums.resize(row.len(), 0.0);
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += f64::from(x);
            }
        }
        let length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
        // The length is 0 only if all values are, which then stay 0.
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        Ok(sums.iter().map(|x| (x * scale) as f32).collect())
    }
}

/// Whether log-probabilities are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogprobsWanted {
    Yes,
    No,
}

impl Engine for DecoderEngine {
    fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn stop(&self) -> &[u32] {
        &self.stop
    }

    fn pages(&self) -> PageCounts {
        let pages = (self.tokens.len() as u32).div_ceil(PAGE);
        let free = self.limits.pages - pages;
        match self.running {
            Some(_) => PageCounts {
                used: pages,
                kept: 0,
                free,
            },
            None => PageCounts {
                used: 0,
                kept: pages,
                free,
            },
        }
    }

    fn join(&mut self, start: &SequenceStart<'_>) -> Result<Joined, EngineError> {
        self.check_lost()?;
        assert!(self.running.is_none(), "a decoder has one sequence");
        if let Some(name) = start.adapter {
            let reason = format!("no adapter with the name {name} is loaded");
            return Err(EngineError::Unsupported(reason));
        }
        if let Err(error) = self.decoder.set_sampling(start.sampling) {
            return Err(self.failed(&error));
        }

        // The last token of the prompt must be processed.
        let most = start.prompt.len().saturating_sub(1);
        let pairs = self.tokens.iter().zip(&start.prompt[..most]);
        let common = pairs.take_while(|(had, given)| had == given).count();
        let kept = match self.content {
            _ if self.salt != start.salt => 0,
            // Its tokens would have to be processed again.
            DecoderContent::Other => 0,
            DecoderContent::Same | DecoderContent::Ahead(_) => common,
        };
        let last = kept.checked_sub(1).map_or(0, |last| self.tokens[last]);
        if self.content == DecoderContent::Other {
            self.decoder.reset();
        } else if let Err(error) = self.decoder.rewind(kept as u32, last) {
            return Err(self.failed(&error));
        }
        self.tokens.truncate(kept);
        self.content = DecoderContent::Same;
        self.salt = start.salt;

        let key = SequenceKey(self.joined);
        self.joined += 1;
        self.running = Some(RunningText {
            key,
            sampling: start.sampling.clone(),
        });
        Ok(Joined {
            key,
            cached: kept as u32,
        })
    }

    fn leave(&mut self, key: SequenceKey) {
        let running = self.running.take();
        let left = running.is_some_and(|running| running.key == key);
        assert!(left, "only the joined sequence leaves");
    }

    fn step(&mut self, work: &mut [StepWork<'_>]) -> Result<Vec<Stepped>, EngineError> {
        self.check_lost()?;
        let [item] = work else {
            panic!("a decoder has one sequence");
        };
        assert!(!item.tokens.is_empty(), "a step has tokens");
        let stepped = self.step_one(item);
        match stepped {
            Ok(stepped) => Ok(vec![stepped]),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn decode(
        &mut self,
        work: &[(SequenceKey, u32)],
        steps: u32,
    ) -> Result<Vec<Vec<ChosenToken>>, EngineError> {
        self.check_lost()?;
        let [(_, token)] = work else {
            panic!("a decoder has one sequence");
        };
        match self.decode_one(*token, steps) {
            Ok(chosen) => Ok(vec![chosen]),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn embed(&mut self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EngineError> {
        self.check_lost()?;
        let mut vectors = vec![];
        for text in texts {
            let vector = self.mean_state(text);
            self.content = DecoderContent::Other;
            match vector {
                Ok(vector) => vectors.push(vector),
                Err(error) => {
                    return Err(match self.failed(&error) {
                        // The running sequence is not to blame.
                        EngineError::Sequence { reason, .. } => EngineError::Unsupported(reason),
                        other => other,
                    });
                }
            }
        }
        Ok(vectors)
    }
}
