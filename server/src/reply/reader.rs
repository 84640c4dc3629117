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
                    drafted: ended.drafted,
                    accepted: ended.accepted,
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
            // The scheduler counts the drafts, and reports them only at the end of a generation.
            drafted: 0,
            accepted: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::LazyLock;
    use std::time::Duration;

    use proptest::prelude::*;
    use warpwright_model::chat::{ChatTemplate, Conversation, Tools};

    use super::*;
    use crate::scheduler::{GenerationEnded, GenerationError};

    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/rustdoc-7m-Q4_K_M.gguf");
        Tokenizer::open(&model).expect("the small model has a tokenizer")
    });

    /// A template without calls, whose models think between `<think>` and `</think>`.
    static TEMPLATE: LazyLock<ChatTemplate> = LazyLock::new(|| {
        let text = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ \
                    c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor \
                    %}{% endfor %}";
        ChatTemplate::new(text, vec![]).expect("it is a template")
    });

    static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
        Tools::new(r#"[{"type": "function", "function": {"name": "f"}}]"#).expect("it is a list")
    });

    /// The way in which a reply is read.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Reading {
        Text,
        Chat,
        Tools,
    }

    fn chosen(token: u32) -> ChosenToken {
        ChosenToken {
            token,
            probabilities: Some(LogProbabilities {
                chosen: -1.0,
                best: vec![(token, -1.0), (5, -2.0)],
            }),
        }
    }

    fn ended(reason: EndReason) -> GenerationEvent {
        GenerationEvent::Ended(GenerationEnded {
            reason,
            queued: Duration::ZERO,
            prompt: Duration::ZERO,
            decode: Duration::ZERO,
            drafted: 0,
            accepted: 0,
        })
    }

    /// Reads tokens that arrive in groups of these sizes.
    fn read(
        tokens: &[u32],
        sizes: &[usize],
        stops: &StopStrings,
        reading: Reading,
        logprobs: Option<u32>,
    ) -> Vec<ReplyPart> {
        let conversation = Conversation::default();
        let tools = (reading == Reading::Tools).then_some(&*TOOLS);
        let calls = TEMPLATE.reply(tools, &conversation, "");
        let mut reader = ReplyReader::new(ReplyReaderOptions {
            tokenizer: &TOKENIZER,
            prompt: &[1, 2],
            stops,
            logprobs,
            prompt_logprobs: None,
            calls: (reading != Reading::Text).then_some(calls),
            call_limit: CallLimit::Many,
            shows: &|_| false,
        });
        let mut parts = reader.event(GenerationEvent::Started { cached: 1 });
        let mut rest = tokens;
        let mut sizes = sizes.iter().copied().chain(std::iter::repeat(3));
        while !rest.is_empty() {
            let size = sizes.next().unwrap_or(1).clamp(1, rest.len());
            let (group, after) = rest.split_at(size);
            rest = after;
            let group = group.iter().map(|token| chosen(*token)).collect();
            parts.extend(reader.event(GenerationEvent::Tokens(group)));
        }
        parts.extend(reader.event(ended(EndReason::Stop)));
        parts
    }

    /// The text and the thoughts of a reply, its tokens, and its end.
    fn summary(parts: &[ReplyPart]) -> (String, String, Vec<u32>, ReplyEnded) {
        let mut text = String::new();
        let mut thought = String::new();
        let mut tokens = vec![];
        for part in parts {
            match part {
                ReplyPart::Text(more) => text.push_str(more),
                ReplyPart::Reasoning(more) => thought.push_str(more),
                ReplyPart::Tokens(more) => tokens.extend(more.iter().map(|token| token.token)),
                ReplyPart::Started { .. }
                | ReplyPart::Prompt(_)
                | ReplyPart::Call(_)
                | ReplyPart::Ended(_)
                | ReplyPart::Failed(_) => {}
            }
        }
        let Some(ReplyPart::Ended(ended)) = parts.last() else {
            panic!("{parts:?} do not end")
        };
        // The times differ from run to run.
        let ended = ReplyEnded {
            times: ReplyTimes::default(),
            ..ended.clone()
        };
        (text, thought, tokens, ended)
    }

    fn encode(text: &str) -> Vec<u32> {
        TOKENIZER.encode_rest(text).expect("it has tokens")
    }

    fn stops(stops: &[&str]) -> StopStrings {
        let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
        StopStrings::new(stops).expect("none is empty")
    }

    #[test]
    fn an_incomplete_character_ends_as_a_replacement() {
        let mut tokens = encode("a🦀");
        tokens.pop();
        let parts = read(&tokens, &[], &stops(&[]), Reading::Chat, Some(0));
        let (text, _, reported, ended) = summary(&parts);
        assert_eq!(text, "a\u{fffd}");
        assert_eq!(reported, tokens);
        assert_eq!(ended.tokens as usize, tokens.len() + 1);
    }

    #[test]
    fn tokens_of_a_stop_string_are_not_reported() {
        let tokens = encode("one two three");
        let parts = read(&tokens, &[100], &stops(&[" two"]), Reading::Text, Some(1));
        let (text, _, reported, ended) = summary(&parts);
        assert_eq!(text, "one");
        assert_eq!(TOKENIZER.decode(&reported), "one");
        assert_eq!(ended.reason, FinishReason::StopString(" two".to_owned()));
        assert!((ended.tokens as usize) < tokens.len(), "later tokens count");
    }

    #[test]
    fn the_engine_reports_its_failure() {
        let no_stops = stops(&[]);
        let mut reader = ReplyReader::new(ReplyReaderOptions {
            tokenizer: &TOKENIZER,
            prompt: &[1, 2],
            stops: &no_stops,
            logprobs: None,
            prompt_logprobs: Some(1),
            calls: None,
            call_limit: CallLimit::Many,
            shows: &|_| false,
        });
        let scores = vec![LogProbabilities {
            chosen: -0.5,
            best: vec![(2, -0.5), (3, -1.0)],
        }];
        let prompt = reader.event(GenerationEvent::Prompt(scores));
        let [ReplyPart::Prompt(tokens)] = &prompt[..] else {
            panic!("{prompt:?}")
        };
        let logprobs: Vec<Option<f64>> = tokens.iter().map(|token| token.logprob).collect();
        assert_eq!(logprobs, [None, Some(-0.5)]);
        assert_eq!(tokens[1].best.len(), 1);

        let failed = reader.event(GenerationEvent::Failed(GenerationError::Lost("x".into())));
        assert!(matches!(failed[..], [ReplyPart::Failed(_)]));
        assert!(reader.event(ended(EndReason::Stop)).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// No text is lost or duplicated, and the groups of tokens do not matter.
        #[test]
        fn the_parts_do_not_depend_on_the_groups_of_tokens(
            words in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "a", "b ", " ", "\n", "ü", "🦀", "<", "stop", "st",
                "<tool_call>", "</tool_call>", "{\"name\": \"f\", \"arguments\": {}}",
            ]), 0..12),
            bytes in prop::collection::vec(prop::sample::select(vec![0_u32, 3, 4, 130, 200, 230]), 0..3),
            sizes in prop::collection::vec(1..5_usize, 0..8),
            reading in prop::sample::select(vec![Reading::Text, Reading::Chat, Reading::Tools]),
            has_logprobs in any::<bool>(),
        ) {
            let mut tokens = encode(&words.concat());
            // Single bytes, which may be the beginning of a character, and control tokens.
            tokens.extend(bytes);
            let stops = stops(&["stop", "\n\n\n"]);
            let logprobs = has_logprobs.then_some(1);
            let one = read(&tokens, &[1; 400], &stops, reading, logprobs);
            let many = read(&tokens, &sizes, &stops, reading, logprobs);
            let found = summary(&one);
            prop_assert_eq!(&found, &summary(&many));
            let (text, thought, reported, ended) = found;
            if reading == Reading::Text {
                let mut stream = TextStream::new(Some(&TOKENIZER), &[], &stops);
                let mut whole: String = tokens.iter().map(|token| stream.push(*token)).collect();
                whole += &stream.finish(TextEnding::Limit).0;
                prop_assert_eq!(&text, &whole);
                prop_assert_eq!(&thought, "");
            }
            if has_logprobs {
                // A reply that has calls reports `Calls`, even if a stop string ended it.
                let is_stopped =
                    matches!(ended.reason, FinishReason::StopString(_) | FinishReason::Calls);
                prop_assert!(tokens.starts_with(&reported));
                prop_assert_eq!(reported.len() == tokens.len() || is_stopped, true);
            }
            prop_assert!(ended.tokens as usize <= tokens.len() + 1);
            prop_assert!(ended.reasoning_tokens <= ended.tokens);
        }
    }
}
