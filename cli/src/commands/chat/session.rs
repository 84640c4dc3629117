//! The state of a conversation, and how an answer is generated.
//!
//! Each answer renders the whole conversation with the chat template. [`CachedTokens`] compares the
//! tokens with the tokens in the decoder's cache, and only those after the common prefix are
//! prefilled.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwright_engine::{CachedTokens, Sampling, TokenChoice};
use warpwright_model::{Grammar, Matcher, StopStrings, TextEnding, TextStream, Tokenizer};

use super::args::WhenFull;
use super::parameter::{ChatParameters, Setting, Statistics};
use crate::failure::Failure;
use crate::generation::grammar;
use crate::generation::reply::{Reply, ReplyFormat, ReplyParts, ReplyPrinter, why};
use crate::generation::sampling;
use crate::generation::speculative::TextGenerator;
use crate::generation::times::ArrivalTimes;
use crate::prompt::message::{ASSISTANT, AssistantCall, Message, SYSTEM, TOOL, USER, waiting};
use crate::prompt::template::ConfiguredTemplate;
use crate::terminal::progress::PromptBar;
use warpwright_emu::interrupt;
use warpwright_emu::terminal::{counted, say};

/// The limits of a conversation.
pub(super) struct ContextLimits {
    /// The number of positions.
    pub(super) ctx: u32,
    pub(super) when_full: WhenFull,
}

/// Everything that turns messages into tokens and tokens into text. It stays the same in a
/// conversation.
pub(super) struct TextTools<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) template: &'a ConfiguredTemplate,
    /// The tokens that end a text.
    pub(super) end_tokens: &'a [u32],
    pub(super) stops: &'a StopStrings,
    /// The grammar that every answer follows, if there is one.
    pub(super) grammar: Option<&'a Grammar>,
}

/// The loaded model, and a function that loads it again for another sampling.
pub(super) struct ReloadableModel<'a> {
    pub(super) load: &'a dyn Fn(&Sampling) -> Result<TextGenerator, Failure>,
    /// `None` only while the model is loaded again. The old one is freed first, because the device
    /// may not have enough memory for both.
    pub(super) writer: Option<TextGenerator>,
    /// The size of the vocabulary.
    pub(super) vocab: u32,
}

impl ReloadableModel<'_> {
    fn writer(&mut self) -> &mut TextGenerator {
        self.writer
            .as_mut()
            .expect("a model that cannot be loaded again ends the program")
    }
}

/// The statistics of an answer.
struct AnswerStatistics {
    /// The number of tokens in the prompt.
    prompt: usize,
    /// The number of prompt tokens that were in the decoder's cache already.
    kept: u32,
    times: ArrivalTimes,
    /// The number of tokens in the conversation, with the answer.
    positions: usize,
    /// The seed, if the answer was sampled.
    seed: Option<u64>,
}

/// A finished answer.
struct ChatAnswer {
    reply: Reply,
    ending: TextEnding,
    /// True if the answer is complete within its grammar, or if it follows none.
    is_complete: bool,
}

/// A conversation.
pub(super) struct Session<'a> {
    model: ReloadableModel<'a>,
    cached: CachedTokens,
    tools: TextTools<'a>,
    pub(super) limits: ContextLimits,
    parameters: ChatParameters,
    statistics: Statistics,
    /// The statistics of the last answer.
    last_answer: Option<AnswerStatistics>,
    messages: Vec<Message>,
    /// The number of messages after the system message that were dropped because the context is
    /// full.
    dropped: usize,
}

impl<'a> Session<'a> {
    /// Starts a conversation without messages.
    pub(super) fn new(
        model: ReloadableModel<'a>,
        tools: TextTools<'a>,
        limits: ContextLimits,
        parameters: ChatParameters,
    ) -> Session<'a> {
        Session {
            model,
            cached: CachedTokens::default(),
            tools,
            limits,
            parameters,
            statistics: Statistics::Hidden,
            last_answer: None,
            messages: vec![],
            dropped: 0,
        }
    }

    /// Returns all messages, including those that were dropped from the context.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the text of the system message, if there is one.
    pub(super) fn system(&self) -> Option<&str> {
        let first = self
            .messages
            .first()
            .filter(|message| message.role == SYSTEM);
        first.map(|message| message.content.as_str())
    }

    /// Sets or replaces the system message.
    pub(super) fn set_system(&mut self, text: &str) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        self.messages.insert(0, Message::new(SYSTEM, text));
    }

    /// Removes all messages except the system message.
    pub(super) fn reset(&mut self) {
        self.messages.retain(|message| message.role == SYSTEM);
        self.dropped = 0;
        self.last_answer = None;
    }

    /// Changes a setting for the answers that follow.
    ///
    /// # Errors
    /// Returns an error if the value is out of range, or if the model must be loaded again and that
    /// fails.
    pub(super) fn set(&mut self, setting: Setting) -> Result<(), Failure> {
        match setting {
            Setting::System(text) => self.set_system(&text),
            Setting::Statistics(statistics) => self.statistics = statistics,
            Setting::Parameter(parameter, value) => {
                let parameters = self
                    .parameters
                    .with(parameter, &value)
                    .map_err(Failure::Input)?;
                self.set_sampling(&parameters.sampling)?;
                self.parameters = parameters;
                let greedy = self.parameters.sampling.temperature == 0.0;
                if greedy && parameter.needs_sampling() {
                    say(
                        "(no effect at temperature 0, which takes the most likely token; /set temperature 0.8 samples)",
                    );
                }
            }
        }
        Ok(())
    }

    /// Sets the sampling of the decoder, and loads the model again if its kernels cannot do that.
    fn set_sampling(&mut self, sampling: &Sampling) -> Result<(), Failure> {
        sampling.check(self.model.vocab)?;
        if *sampling == self.parameters.sampling {
            return Ok(());
        }
        match self.model.writer().decoder.set_sampling(sampling) {
            // A decoder that was made for greedy decoding has no sampling kernels in its graphs.
            Err(warpwright_engine::Error::NotSampled)
                if sampling::choice(sampling) != TokenChoice::Greedy =>
            {
                say("(the model is loaded again, with the kernels that sample)");
                self.model.writer = None;
                self.cached = CachedTokens::default();
                let loaded = (self.model.load)(sampling);
                // Without a model, the conversation cannot continue.
                self.model.writer = Some(loaded.map_err(Failure::fatal)?);
                Ok(())
            }
            // The greedy kernels choose the same tokens with this sampling.
            Err(warpwright_engine::Error::NotSampled) => Ok(()),
            set => Ok(set?),
        }
    }

    /// Prints the system message, the parameters and the size of the conversation.
    pub(super) fn show(&self) -> Result<(), Failure> {
        if let Some(system) = self.system() {
            say(format!("{:18} {system}", "system"));
        }
        for line in self.parameters.lines() {
            say(line);
        }

        let positions = if self.messages.is_empty() {
            0
        } else {
            self.tokens(&[])?.len()
        };
        let dropped = match self.dropped {
            0 => String::new(),
            dropped => format!(" ({dropped} dropped from the context)"),
        };
        say(format!(
            "{:18} {}{dropped}",
            "messages",
            self.messages.len()
        ));
        say(format!(
            "{:18} {positions} of {}",
            "positions", self.limits.ctx
        ));
        Ok(())
    }

    /// Replaces the last answer by another one. If that fails or is interrupted, the old answer
    /// stays.
    ///
    /// The random numbers depend only on the seed and the position, so the same seed would repeat
    /// the answer. The next seed is the old one plus 1, unless the user has changed it since, so a
    /// script with a seed stays reproducible.
    ///
    /// # Errors
    /// Returns an error if the conversation does not end with an answer, or if decoding fails.
    pub(super) fn regenerate(&mut self) -> Result<(), Failure> {
        let Some(answer) = self.messages.pop_if(|last| last.role == ASSISTANT) else {
            return Err(Failure::Input(
                "there is no answer to regenerate".to_owned(),
            ));
        };

        let dropped = self.dropped;
        let len = self.messages.len();
        let answered = self.prepare_again().and_then(|()| self.answer());
        let silent = self.messages.len() == len;
        if answered.is_err() || silent {
            self.messages.truncate(len);
            self.messages.push(answer);
            self.dropped = dropped;
        }

        if answered.is_ok() && silent {
            say("interrupted before the first token; the answer stays as it was");
        }

        answered
    }

    /// Returns true if the conversation ends with a message that the model should answer.
    fn awaits_answer(&self) -> bool {
        match self.messages.last() {
            Some(last) => last.role == USER || last.role == TOOL,
            None => false,
        }
    }

    /// Checks that there is a message to answer, and moves on to the next seed.
    fn prepare_again(&mut self) -> Result<(), Failure> {
        if !self.awaits_answer() {
            return Err(Failure::Input(
                "the last answer does not follow a message of the user or a tool".to_owned(),
            ));
        }

        let Sampling {
            temperature, seed, ..
        } = self.parameters.sampling;
        if temperature == 0.0 {
            say("(temperature 0 gives the same answer again; /set temperature 0.8 changes that)");
            return Ok(());
        }

        if self
            .last_answer
            .as_ref()
            .is_some_and(|answer| answer.seed == Some(seed))
        {
            let sampling = Sampling {
                seed: seed.wrapping_add(1),
                ..self.parameters.sampling.clone()
            };
            self.set_sampling(&sampling)?;
            self.parameters.sampling = sampling;
        }

        say(format!("(seed {})", self.parameters.sampling.seed));
        Ok(())
    }

    /// Removes the last message of the user and everything after it.
    ///
    /// # Errors
    /// Returns an error if the user has not said anything yet.
    pub(super) fn undo(&mut self) -> Result<(), Failure> {
        let Some(last) = self
            .messages
            .iter()
            .rposition(|message| message.role == USER)
        else {
            return Err(Failure::Input("there is no message to undo".to_owned()));
        };

        let removed = self.messages.len() - last;
        self.messages.truncate(last);

        // The messages that were dropped may fit into the context again.
        self.dropped = 0;
        self.last_answer = None;
        say(format!("removed {}", counted(removed, "message")));
        Ok(())
    }

    /// Prints the statistics of the last answer.
    pub(super) fn print_statistics(&self) {
        let Some(AnswerStatistics {
            prompt,
            kept,
            times,
            positions,
            seed,
        }) = &self.last_answer
        else {
            return say("there is no answer yet");
        };

        let guesses = self
            .model
            .writer
            .as_ref()
            .map(TextGenerator::summary)
            .unwrap_or_default();
        say(format!("({}{guesses})", times.summary()));
        let seed = seed
            .map(|seed| format!(", seed {seed}"))
            .unwrap_or_default();
        let ctx = self.limits.ctx;
        say(format!(
            "(prompt of {prompt} tokens, {kept} of them cached; {positions} of {ctx} positions used{seed})"
        ));
    }

    /// Replaces the conversation. If the new one ends with a message of the user or a tool, the
    /// model answers it.
    ///
    /// # Errors
    /// Returns an error if the answer fails. The conversation is then the old one again.
    pub(super) fn load(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        self.last_answer = None;
        let old_messages = std::mem::replace(&mut self.messages, messages);
        let old_dropped = std::mem::take(&mut self.dropped);
        if !waiting(&self.messages).is_empty() {
            self.print_waiting();
            return Ok(());
        }

        if !self.awaits_answer() {
            return Ok(());
        }

        let answered = self.answer();
        if answered.is_err() {
            self.messages = old_messages;
            self.dropped = old_dropped;
        }

        answered
    }

    /// Adds a message of the user and prints the answer.
    ///
    /// The message is removed again if the answer fails or is interrupted before its first token.
    ///
    /// # Errors
    /// Returns an error if the answer fails.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.add_and_answer(Message::new(USER, text))
    }

    /// Adds the result of a tool. The model continues when all of its calls have a result.
    ///
    /// # Errors
    /// Returns an error if the model does not wait for this tool, or if its answer fails.
    pub(super) fn tool(&mut self, name: &str, result: &str) -> Result<(), Failure> {
        let waiting = waiting(&self.messages);
        let Some(call) = waiting.iter().find(|call| call.function.name == name) else {
            return Err(Failure::Input(if waiting.is_empty() {
                "the model does not wait for a tool".to_owned()
            } else {
                format!(
                    "the model does not wait for {name}: it waits for {}",
                    names(&waiting)
                )
            }));
        };

        let message = Message::answering(call, result);
        if waiting.len() == 1 {
            return self.add_and_answer(message);
        }

        self.messages.push(message);
        self.print_waiting();
        Ok(())
    }

    /// Prints the calls that have no result yet.
    fn print_waiting(&self) {
        let waiting = waiting(&self.messages);
        if let Some(first) = waiting.first() {
            let names = names(&waiting);
            let first = &first.function.name;
            say(format!("(waits for {names}: /tool {first} RESULT)"));
        }
    }

    /// Adds a message and prints the answer. Without an answer, the message is removed again.
    fn add_and_answer(&mut self, message: Message) -> Result<(), Failure> {
        let len = self.messages.len();
        let dropped = self.dropped;
        self.messages.push(message);
        let answered = self.answer();
        let silent = self.messages.len() == len + 1;
        if answered.is_err() || silent {
            self.messages.truncate(len);
            self.dropped = dropped;
        }

        if answered.is_ok() && silent {
            say("interrupted before the first token; your message is removed again");
        }

        answered
    }

    /// Prints the answer to the last message, and adds it to the conversation.
    fn answer(&mut self) -> Result<(), Failure> {
        let Some(ChatAnswer {
            reply,
            ending,
            is_complete,
        }) = self.generate()?
        else {
            return Ok(());
        };

        let message = self.message(&reply);
        self.messages.push(message);
        if matches!(
            ending,
            TextEnding::Limit | TextEnding::ContextFull | TextEnding::Interrupted
        ) {
            say(format!("({})", why(&ending, Some(self.tools.tokenizer))));
        }

        if !is_complete {
            say(format!("({})", grammar::INCOMPLETE));
        }
        if self.statistics == Statistics::Shown {
            self.print_statistics();
        }

        self.print_waiting();
        Ok(())
    }

    /// Returns the message for a reply, with its tool calls.
    fn message(&self, reply: &Reply) -> Message {
        let Some(ReplyParts { content, calls, .. }) =
            reply.parts.as_ref().filter(|parts| !parts.calls.is_empty())
        else {
            return Message::new(ASSISTANT, &reply.text);
        };

        let unknown = calls
            .iter()
            .find(|call| self.tools.template.lacks(&call.name));
        if let Some(call) = unknown {
            say(format!("(there is no tool {})", call.name));
        }

        let before = self
            .messages
            .iter()
            .map(|message| message.tool_calls.len())
            .sum();
        Message::calling(content.trim(), calls, before)
    }

    /// Generates and prints an answer. Returns `None` if it was interrupted before its first token.
    ///
    /// If the context fills up while the answer grows, the oldest turns are dropped and the answer
    /// continues.
    fn generate(&mut self) -> Result<Option<ChatAnswer>, Failure> {
        let TextTools {
            tokenizer,
            end_tokens,
            stops,
            grammar,
            template,
        } = self.tools;
        let mut matcher = grammar.map(Grammar::matcher);
        let mut reply = Reply::default();
        let mut stream = TextStream::new(Some(tokenizer), end_tokens, stops);
        let mut prompt = self.fit(&[])?.ok_or_else(|| self.no_room())?;
        let start = Instant::now();
        let Sampling {
            temperature, seed, ..
        } = self.parameters.sampling;
        let mut statistics = AnswerStatistics {
            prompt: prompt.len(),
            kept: 0,
            times: ArrivalTimes::from(Duration::ZERO),
            positions: 0,
            seed: if temperature > 0.0 { Some(seed) } else { None },
        };

        // An answer that drops turns is prefilled several times. The statistics describe the first
        // time.
        let mut first = true;
        stream.spell(|token| template.shows_token(token));
        let mut printer = ReplyPrinter::new(ReplyFormat::Text)
            .with_calls(template.calls(self.shown(), &template.text(self.shown())?));
        loop {
            let (kept, prefilled) = self.prefill(&prompt)?;
            if first {
                statistics.kept = kept;
                first = false;
            }

            let ending = match prefilled {
                ControlFlow::Break(()) if reply.tokens.is_empty() => return Ok(None),
                ControlFlow::Break(()) => TextEnding::Interrupted,
                ControlFlow::Continue(()) => {
                    let mut each = |made| statistics.times.token(start.elapsed(), made);
                    self.print(
                        &mut reply,
                        &mut stream,
                        matcher.as_mut(),
                        &mut printer,
                        &mut each,
                    )?
                }
            };
            let more = if ending == TextEnding::ContextFull {
                self.fit(&reply.tokens)?
            } else {
                None
            };
            let Some(more) = more else {
                let ending = reply.finish(stream, &mut printer, ending)?;
                let is_complete =
                    matcher.is_none_or(|mut matcher| grammar::is_complete(&mut matcher, &ending));
                statistics.positions = self.cached.tokens().len();
                self.last_answer = Some(statistics);
                return Ok(Some(ChatAnswer {
                    reply,
                    ending,
                    is_complete,
                }));
            };

            prompt = more;
        }
    }

    /// Generates and prints tokens until something ends them. `each` is called with the number of
    /// tokens made.
    fn print(
        &mut self,
        reply: &mut Reply,
        stream: &mut TextStream<'_>,
        matcher: Option<&mut Matcher>,
        printer: &mut ReplyPrinter<'_>,
        each: &mut dyn FnMut(u32),
    ) -> Result<TextEnding, Failure> {
        let limit = self.parameters.tokens.unwrap_or(u32::MAX) - reply.tokens.len() as u32;
        let cached = &mut self.cached;
        let tokens = self
            .model
            .writer()
            .tokens(cached.tokens(), limit, matcher)?;
        reply.print(tokens, stream, printer, |piece| {
            cached.push(piece.token);
            each(piece.made);
        })
    }

    /// Prefills the tokens of `prompt` that are not in the decoder's cache.
    ///
    /// Returns the number of tokens that were in the cache, and `Break` if Ctrl-C stopped the
    /// prefill.
    fn prefill(&mut self, prompt: &[u32]) -> Result<(u32, ControlFlow<()>), Failure> {
        let mut bar = PromptBar::new(prompt.len());
        let go_on = || {
            if interrupt::check().is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let decoder = &mut self.model.writer().decoder;
        let kept = self.cached.prefill(decoder, prompt, |done| {
            bar.set(done as usize);
            go_on()
        })?;
        if self.cached.tokens().len() < prompt.len() {
            return Ok((kept, ControlFlow::Break(())));
        }

        // The last chunk may have been launched before the signal arrived.
        Ok((kept, go_on()))
    }

    /// Returns the tokens of the conversation followed by the answer so far, or `None` if they
    /// cannot fit.
    ///
    /// If they are too long for the context, and `--when-full` allows that, the oldest turns are
    /// dropped until a quarter of the context is free.
    fn fit(&mut self, answer: &[u32]) -> Result<Option<Vec<u32>>, Failure> {
        let ctx = self.limits.ctx as usize;
        let mut prompt = self.tokens(answer)?;
        let before = self.dropped;
        if prompt.len() <= ctx {
            return Ok(Some(prompt));
        }

        while self.limits.when_full == WhenFull::Drop
            && prompt.len() > ctx - ctx / 4
            && self.drop_turn()
        {
            prompt = self.tokens(answer)?;
        }

        if prompt.len() > ctx {
            // Dropping turns did not help, so the model keeps them.
            self.dropped = before;
            return Ok(None);
        }

        let line = if answer.is_empty() { "" } else { "\n" };
        let dropped = match self.dropped - before {
            1 => "message is".to_owned(),
            dropped => format!("{dropped} messages are"),
        };
        say(format!(
            "{line}(the context of {ctx} positions is full: the oldest {dropped} dropped)"
        ));
        Ok(Some(prompt))
    }

    /// Returns the tokens of the messages that are not dropped, followed by the answer so far.
    fn tokens(&self, answer: &[u32]) -> Result<Vec<u32>, Failure> {
        let TextTools {
            template,
            tokenizer,
            ..
        } = self.tools;
        let mut tokens = template.tokens(self.shown(), tokenizer)?;
        tokens.extend(answer);
        Ok(tokens)
    }

    /// Returns the messages that are not dropped.
    fn shown(&self) -> impl Iterator<Item = &Message> {
        let system = usize::from(self.system().is_some());
        self.messages[..system]
            .iter()
            .chain(&self.messages[system + self.dropped..])
    }

    /// Drops the oldest turn, which ends before the next message of the user.
    ///
    /// Returns false if only the latest turn is left, which is never dropped.
    fn drop_turn(&mut self) -> bool {
        let shown = &self.messages[usize::from(self.system().is_some()) + self.dropped..];
        let next = shown
            .iter()
            .skip(1)
            .position(|message| message.role == USER);
        self.dropped += next.map_or(0, |next| next + 1);
        next.is_some()
    }

    /// Returns the error about a conversation that does not fit into the context.
    fn no_room(&self) -> Failure {
        let ctx = self.limits.ctx;
        let instead = match self.limits.when_full {
            WhenFull::Drop => "shorten your message, or start with a larger --ctx",
            WhenFull::Refuse => {
                "/reset removes the earlier messages; or start with a larger --ctx, or with --when-full drop"
            }
        };
        Failure::Input(format!(
            "the conversation does not fit into the context of {ctx} positions: {instead}"
        ))
    }
}

/// Returns the names of the called tools, separated by commas.
fn names(calls: &[&AssistantCall]) -> String {
    calls
        .iter()
        .map(|call| call.function.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
