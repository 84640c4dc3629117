//! Turns the events of a generation into the parts of a reply. It knows nothing of channels.
//!
//! ```text
//! tokens -> TextStream (characters, stop strings) -> CallStream (thoughts, calls) -> parts
//! ```
//!
//! Both streams hold text back until later tokens decide about it. Tokens with log-probabilities
//! wait in [`PendingTokens`] until their text is released.

use std::time::Instant;

use warpwright_engine::LogProbabilities;
use warpwright_model::chat::{self, CallStream, ReplyEnd, ToolCall};
use warpwright_model::{StopStrings, TextEnding, TextStream, Tokenizer};

use super::event::{FinishReason, ReplyCall, ReplyEnded, ReplyPart, ReplyTimes};
use super::request::CallLimit;
use super::tokens::{PendingTokens, token_text};
use crate::engine::ChosenToken;
use crate::id::random_id;
use crate::scheduler::{EndReason, GenerationEvent};

/// The inputs of a reader.
pub(super) struct ReplyReaderOptions<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// The tokens of the prompt.
    pub(super) prompt: &'a [u32],
    pub(super) stops: &'a StopStrings,
    /// The number of best log-probabilities per generated token, or `None` for none at all.
    pub(super) logprobs: Option<u32>,
    /// The number of best log-probabilities per token of the prompt.
    pub(super) prompt_logprobs: Option<u32>,
    /// The reader of thoughts and calls, if the prompt is a conversation.
    pub(super) calls: Option<CallStream<'a>>,
    pub(super) call_limit: CallLimit,
    /// Returns true for the name of a control token that belongs to the text.
    pub(super) shows: &'a (dyn Fn(&str) -> bool + Sync),
}

/// A reader of the events of one generation.
pub(super) struct ReplyReader<'a> {
    tokenizer: &'a Tokenizer,
    prompt: &'a [u32],
    prompt_logprobs: Option<u32>,
    call_limit: CallLimit,
    /// The stream, until the text has ended.
    stream: Option<TextStream<'a>>,
    /// The reader of thoughts and calls, until the text has ended.
    calls: Option<CallStream<'a>>,
    pending: Option<PendingTokens<'a>>,
    /// The number of bytes that the text stream has released.
    released: usize,
    /// The number of tokens so far.
    tokens: u32,
    reasoning_tokens: u32,
    /// The number of calls so far.
    found_calls: u32,
    problems: Vec<String>,
    clock: ReplyClock,
}

/// The times of a reply as the reader sees them. They count if the reply ends before its
/// generation.
struct ReplyClock {
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

/// The reason why a text is over.
enum TextEnd {
    Generation(EndReason),
    StopString(String),
    /// The reply has as many calls as it may have.
    Calls,
}

impl<'a> ReplyReader<'a> {
    pub(super) fn new(options: ReplyReaderOptions<'a>) -> ReplyReader<'a> {
        let ReplyReaderOptions {
            tokenizer,
            prompt,
            stops,
            logprobs,
            prompt_logprobs,
            calls,
            call_limit,
            shows,
        } = options;

        // The scheduler leaves out the token that ends a text. With `ignore_eos`, such tokens are
        // like any other.
        let mut stream = TextStream::new(Some(tokenizer), &[], stops);
        stream.spell(shows);
        ReplyReader {
            tokenizer,
            prompt,
            prompt_logprobs,
            call_limit,
            stream: Some(stream),
            calls,
            pending: logprobs.map(|best| PendingTokens::new(tokenizer, best, shows)),
            released: 0,
            tokens: 0,
            reasoning_tokens: 0,
            found_calls: 0,
            problems: vec![],
            clock: ReplyClock {
                submitted: Instant::now(),
                started: None,
                first_token: None,
            },
        }
    }

    /// Returns the parts that an event completes. After [`ReplyPart::Ended`] or
    /// [`ReplyPart::Failed`] there are no more.
    pub(super) fn event(&mut self, event: GenerationEvent) -> Vec<ReplyPart> {
        if self.stream.is_none() {
            return vec![];
        }
        match event {
            GenerationEvent::Started { cached } => {
                self.clock.started = Some(Instant::now());
                vec![ReplyPart::Started {
                    prompt_tokens: self.prompt.len() as u32,
                    cached_tokens: cached,
                }]
            }
            GenerationEvent::Prompt(probabilities) => vec![self.prompt_part(&probabilities)],
            GenerationEvent::Tokens(tokens) => {
                self.clock.first_token.get_or_insert_with(Instant::now);
                self.read(&tokens)
            }
            GenerationEvent::Ended(ended) => {
                let times = ReplyTimes {
                    queued: ended.queued,
                    prompt: ended.prompt,
                    decode: ended.decode,
                };
                self.tokens += u32::from(ended.reason == EndReason::Stop);
                self.end(TextEnd::Generation(ended.reason), times)
            }
            GenerationEvent::Failed(error) => {
                self.stream = None;
                vec![ReplyPart::Failed(error.into())]
            }
        }
    }

    /// Returns the tokens of the prompt with their log-probabilities.
    fn prompt_part(&self, probabilities: &[LogProbabilities]) -> ReplyPart {
        let best = self.prompt_logprobs.unwrap_or_default();
        let first = self.prompt.iter().take(1);
        let first = first.map(|token| token_text(self.tokenizer, *token, None, best));
        let rest = self.prompt.iter().skip(1).zip(probabilities);
        let rest = rest.map(|(token, probabilities)| {
            token_text(self.tokenizer, *token, Some(probabilities), best)
        });
        ReplyPart::Prompt(first.chain(rest).collect())
    }

    /// Reads tokens up to the end of the text.
    fn read(&mut self, tokens: &[ChosenToken]) -> Vec<ReplyPart> {
        let mut parts = vec![];
        for token in tokens {
            let Some(stream) = &mut self.stream else {
                break;
            };

            let text = stream.push(token.token);
            let stop = stream.ended().cloned();
            self.tokens += 1;
            self.released += text.len();
            if let Some(pending) = &mut self.pending {
                pending.push(token);
            }

            let was_thought = self.is_in_thought();
            let found = self.split(&text);
            self.reasoning_tokens += u32::from(was_thought || self.is_in_thought());
            let is_last = self.add(found, &mut parts);
            let end = match stop {
                Some(TextEnding::StopString(stop)) => Some(TextEnd::StopString(stop)),
                Some(
                    TextEnding::EndToken(_)
                    | TextEnding::Limit
                    | TextEnding::ContextFull
                    | TextEnding::Grammar
                    | TextEnding::Interrupted,
                )
                | None => None,
            };
            let end = if is_last { Some(TextEnd::Calls) } else { end };
            if let Some(end) = end {
                let times = self.clock.times();
                parts.extend(self.end(end, times));
            }
        }

        parts
    }

    fn is_in_thought(&self) -> bool {
        self.calls.as_ref().is_some_and(CallStream::is_in_thought)
    }

    /// Splits a text into thoughts, text and calls.
    fn split(&mut self, text: &str) -> Vec<chat::ReplyPart> {
        match &mut self.calls {
            Some(calls) => calls.push(text),
            None if text.is_empty() => vec![],
            None => vec![chat::ReplyPart::Text(text.to_owned())],
        }
    }

    /// Adds the tokens of found parts and the parts. Returns true if the reply has as many calls as
    /// it may have.
    fn add(&mut self, found: Vec<chat::ReplyPart>, parts: &mut Vec<ReplyPart>) -> bool {
        if found.is_empty() {
            return false;
        }

        if let Some(pending) = &mut self.pending {
            let held = self.calls.as_ref().map_or(0, CallStream::held);
            let tokens = pending.take(self.released.saturating_sub(held));
            if !tokens.is_empty() {
                parts.push(ReplyPart::Tokens(tokens));
            }
        }

        for part in found {
            match part {
                chat::ReplyPart::Text(text) => match parts.last_mut() {
                    Some(ReplyPart::Text(last)) => last.push_str(&text),
                    Some(_) | None => parts.push(ReplyPart::Text(text)),
                },
                chat::ReplyPart::Reasoning(text) => match parts.last_mut() {
                    Some(ReplyPart::Reasoning(last)) => last.push_str(&text),
                    Some(_) | None => parts.push(ReplyPart::Reasoning(text)),
                },
                chat::ReplyPart::Call(call) => {
                    parts.push(ReplyPart::Call(self.call(call)));
                    if self.call_limit == CallLimit::One {
                        return true;
                    }
                }
                chat::ReplyPart::NoCall { mark, problem } => {
                    let problem = format!("{mark} does not begin a tool call: {problem}");
                    self.problems.push(problem);
                }
            }
        }

        false
    }

    fn call(&mut self, call: ToolCall) -> ReplyCall {
        let index = self.found_calls;
        self.found_calls += 1;
        ReplyCall {
            index,
            // Templates of models that write ids themselves expect them in the results.
            id: call.id.unwrap_or_else(|| random_id("call_")),
            name: call.name,
            arguments: serde_json::Value::Object(call.arguments).to_string(),
        }
    }

    /// Ends the text and returns the last parts.
    fn end(&mut self, end: TextEnd, times: ReplyTimes) -> Vec<ReplyPart> {
        let mut parts = vec![];
        let Some(stream) = self.stream.take() else {
            return parts;
        };

        let (rest, ending) = stream.finish(TextEnding::Limit);
        self.released += rest.len();
        let end = match ending {
            // The rest may complete a stop string.
            TextEnding::StopString(stop) if !matches!(end, TextEnd::Calls) => {
                TextEnd::StopString(stop)
            }
            TextEnding::StopString(_)
            | TextEnding::EndToken(_)
            | TextEnding::Limit
            | TextEnding::ContextFull
            | TextEnding::Grammar
            | TextEnding::Interrupted => end,
        };
        if !matches!(end, TextEnd::Calls) {
            let mut found = self.split(&rest);
            if let Some(calls) = self.calls.take() {
                let is_complete = matches!(
                    end,
                    TextEnd::Generation(EndReason::Stop | EndReason::Grammar)
                );
                found.extend(calls.finish(if is_complete {
                    ReplyEnd::Complete
                } else {
                    ReplyEnd::Cut
                }));
            }
            self.add(found, &mut parts);
        }

        if let Some(pending) = &mut self.pending {
            // The text of a stop string is not part of the reply, and neither are its tokens.
            let tokens = match end {
                TextEnd::StopString(_) | TextEnd::Calls => pending.take(self.released),
                TextEnd::Generation(_) => pending.take(usize::MAX),
            };
            if !tokens.is_empty() {
                parts.push(ReplyPart::Tokens(tokens));
            }
        }

        let reason = match end {
            TextEnd::Calls => FinishReason::Calls,
            TextEnd::Generation(EndReason::Length | EndReason::Context) => FinishReason::Length,
            TextEnd::Generation(EndReason::Shutdown) => FinishReason::Shutdown,
            TextEnd::Generation(EndReason::Stop | EndReason::Grammar) if self.found_calls > 0 => {
                FinishReason::Calls
            }
            TextEnd::Generation(EndReason::Stop | EndReason::Grammar) => FinishReason::Stop,
            TextEnd::StopString(_) if self.found_calls > 0 => FinishReason::Calls,
            TextEnd::StopString(stop) => FinishReason::StopString(stop),
        };
        parts.push(ReplyPart::Ended(ReplyEnded {
            reason,
            tokens: self.tokens,
            reasoning_tokens: self.reasoning_tokens,
            problems: std::mem::take(&mut self.problems),
            times,
        }));
        parts
    }
}

impl ReplyClock {
    /// Returns the times of a reply that ends now.
    fn times(&self) -> ReplyTimes {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let first = self.first_token.unwrap_or(now);
        ReplyTimes {
            queued: started.duration_since(self.submitted),
            prompt: first.duration_since(started),
            decode: now.duration_since(first),
        }
    }
}
