//! A request on its way through the scheduler.

use std::mem;
use std::time::Instant;

use tokio::sync::mpsc;
use warpwright_engine::{LogProbabilities, Sampling};
use warpwright_model::Matcher;

use super::metrics::{self, TokenTimes};
use super::outbox::Outbox;
use super::request::{
    AtEnd, EndReason, GenerationEnded, GenerationError, GenerationEvent, GenerationRequest,
};
use super::speculation::DraftHistory;
use crate::engine::{ChosenToken, SequenceKey};

/// A request with the tokens generated so far. It outlives evictions.
pub(super) struct ServedRequest {
    /// The place of the request in the order of arrival.
    pub(super) number: u64,
    pub(super) request_id: String,
    /// The tokens of the prompt, followed by the generated ones.
    pub(super) tokens: Vec<u32>,
    /// The number of tokens of the prompt.
    pub(super) prompt: usize,
    /// The maximum number of generated tokens.
    limit: usize,
    /// The reason of an end at the limit.
    limit_reason: EndReason,
    at_end: AtEnd,
    pub(super) sampling: Sampling,
    pub(super) grammar: Option<Box<Matcher>>,
    pub(super) adapter: Option<String>,
    pub(super) salt: u64,
    /// The log-probabilities of the prompt, if they are wanted and were not sent yet.
    pub(super) scores: Option<PromptScores>,
    /// The drafts of the request so far.
    pub(super) history: DraftHistory,
    events: mpsc::UnboundedSender<GenerationEvent>,
    times: RequestTimes,
}

/// The log-probabilities of a prompt.
pub(super) struct PromptScores {
    /// The number of best tokens per position.
    pub(super) best: u32,
    /// The log-probabilities so far, from those of the second token on.
    pub(super) collected: Vec<LogProbabilities>,
}

/// The moments of a request.
struct RequestTimes {
    arrived: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// The next work of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequencePhase {
    /// Processing a chunk of tokens that are known.
    Prompt,
    /// Repeating a step that generated a known token.
    Replay,
    /// Generating a token.
    Decode,
}

/// The way in which an evicted sequence is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recompute {
    /// In chunks, as if the generated tokens were part of the prompt.
    Chunks,
    /// In the same steps as at first.
    SameSteps,
}

/// A request with a slot in the engine.
pub(super) struct RunningSequence {
    pub(super) request: ServedRequest,
    pub(super) key: SequenceKey,
    /// The number of tokens that the engine has processed.
    pub(super) processed: usize,
    /// The number of the latest step in which the sequence took part.
    pub(super) last_step: u64,
    /// The drafts of the tokens that the next step chooses. They are not tokens of the request.
    pub(super) drafts: Vec<u32>,
}

impl ServedRequest {
    /// Returns a request without generated tokens. `ctx` is the number of positions of the context.
    pub(super) fn new(
        number: u64,
        request: GenerationRequest,
        events: mpsc::UnboundedSender<GenerationEvent>,
        arrived: Instant,
        ctx: u32,
    ) -> ServedRequest {
        let prompt = request.prompt.len();
        let space = (ctx as usize).saturating_sub(prompt);
        let asked = request.max_tokens.map(|most| most as usize);
        let is_over = request.grammar.as_ref().is_some_and(Matcher::is_over);
        let (limit, limit_reason) = match asked {
            // A grammar of the empty text allows no token at all.
            _ if is_over => (0, EndReason::Grammar),
            Some(asked) if asked <= space => (asked, EndReason::Length),
            Some(_) | None => (space, EndReason::Context),
        };
        ServedRequest {
            number,
            request_id: request.request_id,
            tokens: request.prompt,
            prompt,
            limit,
            limit_reason,
            at_end: request.at_end,
            sampling: request.sampling,
            grammar: request.grammar.map(Box::new),
            adapter: request.adapter,
            salt: request.salt,
            scores: request.prompt_logprobs.map(|best| PromptScores {
                best,
                collected: vec![],
            }),
            history: DraftHistory::default(),
            events,
            times: RequestTimes {
                arrived,
                started: None,
                first_token: None,
                last_token: None,
            },
        }
    }

    /// Returns the number of generated tokens.
    pub(super) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    /// Returns the number of tokens that may still be generated.
    pub(super) fn remaining(&self) -> usize {
        self.limit - self.generated()
    }

    /// Returns the tokens by which the engine looks for a cached prefix.
    pub(super) fn prefix(&self, recompute: Recompute) -> &[u32] {
        // A cached prefix has no log-probabilities.
        if self.scores.is_some() {
            return &[];
        }
        match recompute {
            Recompute::Chunks => &self.tokens,
            Recompute::SameSteps => &self.tokens[..self.prompt],
        }
    }

    /// Returns true if the receiver of the events is gone.
    pub(super) fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Returns true if the request never had a slot.
    pub(super) fn is_new(&self) -> bool {
        self.times.started.is_none()
    }

    /// Records that the request has a slot, and tells so the first time.
    pub(super) fn start(&mut self, cached: u32, now: Instant, outbox: &mut Outbox) {
        if self.times.started.is_some() {
            return;
        }
        self.times.started = Some(now);
        metrics::queued(now - self.times.arrived);
        metrics::prompt(self.prompt as u64, cached.into());
        outbox.push(&self.events, GenerationEvent::Started { cached });
    }

    /// Sends the log-probabilities of the prompt, which is processed.
    pub(super) fn send_scores(&mut self, outbox: &mut Outbox) {
        if let Some(scores) = self.scores.take() {
            outbox.push(&self.events, GenerationEvent::Prompt(scores.collected));
        }
    }

    /// Appends chosen tokens up to the end of the generation, sends them, and returns the reason
    /// if it has ended.
    pub(super) fn append(
        &mut self,
        chosen: Vec<ChosenToken>,
        stop: &[u32],
        now: Instant,
        outbox: &mut Outbox,
    ) -> Option<EndReason> {
        let mut sent = vec![];
        let mut end = None;
        for token in chosen {
            if self.at_end == AtEnd::Stop && stop.contains(&token.token) {
                end = Some(EndReason::Stop);
                break;
            }
            self.tokens.push(token.token);
            sent.push(token);
            if self.remaining() == 0 {
                end = Some(self.limit_reason);
                break;
            }
        }

        // The grammar has consumed the last token only, because several tokens at once are
        // generated for sequences without a grammar.
        let over = self
            .grammar
            .as_ref()
            .is_some_and(|grammar| grammar.is_over());
        if over && end != Some(EndReason::Stop) {
            end = Some(EndReason::Grammar);
        }
        outbox.record(self.take_times(sent.len(), now));
        if !sent.is_empty() {
            outbox.push(&self.events, GenerationEvent::Tokens(sent));
        }
        end
    }

    /// Returns the maximum number of drafts in the next step. Drafts need choices that depend on
    /// nothing but the tokens before, so a request with a grammar has none.
    pub(super) fn most_drafts(&self) -> usize {
        if self.grammar.is_some() || self.scores.is_some() {
            return 0;
        }
        // One more token is chosen than drafts are accepted.
        self.remaining().saturating_sub(1)
    }

    /// Removes the drafts that cannot be tokens of the text before the end, and those after them.
    pub(super) fn cut_drafts(&self, drafts: &mut Vec<u32>, stop: &[u32], vocab: u32) {
        let is_end = |token: &u32| self.at_end == AtEnd::Stop && stop.contains(token);
        let wrong = |token: &u32| *token >= vocab || is_end(token);
        if let Some(first) = drafts.iter().position(wrong) {
            drafts.truncate(first);
        }
    }

    /// Returns the reason of the end if no token is to be generated at all.
    pub(super) fn end_without_tokens(&self) -> Option<EndReason> {
        (self.limit == 0).then_some(self.limit_reason)
    }

    /// Returns the metrics of `tokens` tokens that come now.
    fn take_times(&mut self, tokens: usize, now: Instant) -> TokenTimes {
        let mut times = TokenTimes {
            tokens: tokens as u64,
            ..TokenTimes::default()
        };
        let mut later = tokens;
        if self.times.first_token.is_none() {
            self.times.first_token = Some(now);
            times.first = Some(now - self.times.arrived);
            later = tokens.saturating_sub(1);
        }
        if let Some(last) = self.times.last_token
            && later > 0
        {
            times.between = Some(((now - last) / later as u32, later));
        }
        self.times.last_token = Some(now);
        times
    }

    /// Sends the end of the generation.
    pub(super) fn end(self, reason: EndReason, now: Instant, outbox: &mut Outbox) {
        let times = &self.times;
        let started = times.started.unwrap_or(now);
        let first = times.first_token.unwrap_or(now);
        let ended = GenerationEnded {
            reason,
            queued: started - times.arrived,
            prompt: first.saturating_duration_since(started),
            decode: times.last_token.unwrap_or(first) - first,
            drafted: self.history.drafted,
            accepted: self.history.accepted,
        };
        metrics::ended(reason);
        outbox.push(&self.events, GenerationEvent::Ended(ended));
    }

    /// Sends the failure of the generation.
    pub(super) fn fail(self, error: GenerationError, outbox: &mut Outbox) {
        metrics::failed();
        outbox.push(&self.events, GenerationEvent::Failed(error));
    }

    /// Discards what depends on the pages of the engine.
    pub(super) fn forget_processed(&mut self) {
        if let Some(scores) = &mut self.scores {
            mem::take(&mut scores.collected);
        }
    }
}

impl RunningSequence {
    /// Returns the number of known tokens that the engine has not processed.
    pub(super) fn pending(&self) -> usize {
        self.request.tokens.len() - self.processed
    }

    /// Returns the next work of the sequence.
    pub(super) fn phase(&self, recompute: Recompute) -> SequencePhase {
        if self.processed < self.request.prompt {
            return SequencePhase::Prompt;
        }
        if self.pending() == 1 {
            return SequencePhase::Decode;
        }
        match recompute {
            Recompute::Chunks => SequencePhase::Prompt,
            Recompute::SameSteps => SequencePhase::Replay,
        }
    }
}
