//! A conversation: its messages, and the tokens of them that the decoder has.
//!
//! Each answer renders the whole conversation anew. The tokens that the decoder has from before stay, as far as the new
//! ones begin like them.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use warpwright_engine::{
    CachedTokens, Grammar, Matcher, Sampling, StopStrings, TextEnding, TextStream, TokenChoice,
    Tokenizer,
};

use super::WhenFull;
use super::parameter::{Parameters, Setting, Statistics};
use crate::failure::Failure;
use crate::grammar;
use crate::interrupt;
use crate::message::{ASSISTANT, Call, Message, SYSTEM, TOOL, USER, waiting};
use crate::progress::PromptBar;
use crate::reply::{Called, Form, Printer, Reply, why};
use crate::sampling;
use crate::speculative::Writer;
use crate::template::Template;
use crate::terminal::{counted, say};
use crate::times::Times;

/// What bounds an answer.
pub(super) struct Limits {
    /// Positions.
    pub(super) ctx: u32,
    pub(super) when_full: WhenFull,
}

/// What a model needs to speak.
pub(super) struct Voice<'a> {
    pub(super) words: &'a Tokenizer,
    pub(super) template: &'a Template,
    /// Tokens that end a text.
    pub(super) end_tokens: &'a [u32],
    pub(super) stops: &'a StopStrings,
    /// What each answer is to be within.
    pub(super) grammar: Option<&'a Grammar>,
}

/// A model that writes, and how to load it again for other parameters.
pub(super) struct Engine<'a> {
    pub(super) make: &'a dyn Fn(&Sampling) -> Result<Writer, Failure>,
    /// There except while the model is loaded again, because the device may not have room for it twice.
    pub(super) writer: Option<Writer>,
    pub(super) vocab: u32,
}

impl Engine<'_> {
    fn writer(&mut self) -> &mut Writer {
        self.writer
            .as_mut()
            .expect("a model that cannot be loaded again ends the program")
    }
}

/// Figures of an answer.
struct Figures {
    prompt: usize,
    /// Tokens of the prompt that the decoder had from before.
    kept: u32,
    times: Times,
    /// Tokens of the conversation, with the answer.
    positions: usize,
    seed: Option<u64>,
}

/// A conversation.
pub(super) struct Session<'a> {
    engine: Engine<'a>,
    cached: CachedTokens,
    voice: Voice<'a>,
    pub(super) limits: Limits,
    parameters: Parameters,
    statistics: Statistics,
    /// Those of the last answer.
    figures: Option<Figures>,
    messages: Vec<Message>,
    /// Messages after that of the system which the context has no room for.
    dropped: usize,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        engine: Engine<'a>,
        voice: Voice<'a>,
        limits: Limits,
        parameters: Parameters,
    ) -> Session<'a> {
        Session {
            engine,
            cached: CachedTokens::default(),
            voice,
            limits,
            parameters,
            statistics: Statistics::Hidden,
            figures: None,
            messages: vec![],
            dropped: 0,
        }
    }

    /// All messages, also those that were dropped from the context.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the system says.
    pub(super) fn system(&self) -> Option<&str> {
        let first = self
            .messages
            .first()
            .filter(|message| message.role == SYSTEM);
        first.map(|message| message.content.as_str())
    }

    pub(super) fn set_system(&mut self, text: &str) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        self.messages.insert(0, Message::new(SYSTEM, text));
    }

    /// Forgets all messages except that of the system.
    pub(super) fn reset(&mut self) {
        self.messages.retain(|message| message.role == SYSTEM);
        self.dropped = 0;
        self.figures = None;
    }

    /// Changes a parameter from the next answer on.
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
                if greedy && parameter.is_of_drawing() {
                    say(
                        "(temperature 0 takes the most likely token: this counts from a higher temperature on)",
                    );
                }
            }
        }
        Ok(())
    }

    /// Makes the decoder sample by other parameters.
    fn set_sampling(&mut self, sampling: &Sampling) -> Result<(), Failure> {
        sampling.check(self.engine.vocab)?;
        if *sampling == self.parameters.sampling {
            return Ok(());
        }
        match self.engine.writer().decoder.set_sampling(sampling) {
            // A decoder that was made for the most likely token cannot draw another.
            Err(warpwright_engine::Error::NotSampled)
                if sampling::choice(sampling) != TokenChoice::Greedy =>
            {
                say("(the model is loaded again, with the kernels that sample)");
                self.engine.writer = None;
                self.cached = CachedTokens::default();
                let made = (self.engine.make)(sampling);
                // Without a model, the conversation cannot continue.
                self.engine.writer = Some(made.map_err(Failure::fatal)?);
                Ok(())
            }
            Err(warpwright_engine::Error::NotSampled) => Ok(()),
            set => Ok(set?),
        }
    }

    /// Prints the system message, the parameters and the size of the conversation.
    pub(super) fn show(&self) -> Result<(), Failure> {
        if let Some(system) = self.system() {
            say(format!("{:18} {system}", "system"));
        }
        self.parameters.lines().for_each(say);
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

    /// Replaces the last answer by another one.
    ///
    /// The random numbers depend on the seed and the position only, so the same seed would give the same answer: the seed
    /// that follows is taken, unless it was changed since. A script with a seed is as reproducible as before.
    pub(super) fn regenerate(&mut self) -> Result<(), Failure> {
        let Some(answer) = self.messages.pop_if(|last| last.role == ASSISTANT) else {
            return Err(Failure::Input(
                "there is no answer to write again".to_owned(),
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

    /// Checks that there is a message to answer, and takes another seed.
    fn prepare_again(&mut self) -> Result<(), Failure> {
        if self
            .messages
            .last()
            .is_none_or(|last| last.role != USER && last.role != TOOL)
        {
            return Err(Failure::Input(
                "there is no message that the last answer answers".to_owned(),
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
            .figures
            .as_ref()
            .is_some_and(|figures| figures.seed == Some(seed))
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

    /// Takes back the last message of the user and everything after it.
    pub(super) fn undo(&mut self) -> Result<(), Failure> {
        let Some(last) = self
            .messages
            .iter()
            .rposition(|message| message.role == USER)
        else {
            return Err(Failure::Input(
                "there is no message to take back".to_owned(),
            ));
        };
        let taken = self.messages.len() - last;
        self.messages.truncate(last);
        // What was dropped may have room again.
        self.dropped = 0;
        self.figures = None;
        say(format!("{} taken back", counted(taken, "message")));
        Ok(())
    }

    /// Prints the statistics of the last answer.
    pub(super) fn tell_statistics(&self) {
        let Some(Figures {
            prompt,
            kept,
            times,
            positions,
            seed,
        }) = &self.figures
        else {
            return say("there is no answer yet");
        };
        let guesses = self
            .engine
            .writer
            .as_ref()
            .map(Writer::summary)
            .unwrap_or_default();
        say(format!("({}{guesses})", times.summary()));
        let seed = seed
            .map(|seed| format!(", seed {seed}"))
            .unwrap_or_default();
        let ctx = self.limits.ctx;
        say(format!(
            "(prompt of {prompt} tokens, {kept} of them from before; {positions} of {ctx} positions{seed})"
        ));
    }

    /// Goes on with another conversation. If it ends with a message of a user or a tool, that is answered.
    pub(super) fn load(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        self.figures = None;
        let before = std::mem::replace(&mut self.messages, messages);
        let dropped = std::mem::take(&mut self.dropped);
        if !waiting(&self.messages).is_empty() {
            self.tell_waiting();
            return Ok(());
        }
        if self
            .messages
            .last()
            .is_none_or(|last| last.role != USER && last.role != TOOL)
        {
            return Ok(());
        }
        let answered = self.answer();
        if answered.is_err() {
            (self.messages, self.dropped) = (before, dropped);
        }
        answered
    }

    /// Says something and prints the answer. If there is none, nothing was said.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.put(Message::new(USER, text))
    }

    /// Gives the answer of a tool that was called. The model goes on when the last call has its answer.
    pub(super) fn tool(&mut self, name: &str, result: &str) -> Result<(), Failure> {
        let waiting = waiting(&self.messages);
        let Some(call) = waiting.iter().find(|call| call.function.name == name) else {
            return Err(Failure::Input(match names(&waiting) {
                none if none.is_empty() => "the model waits for no tool".to_owned(),
                names => format!(
                    "the model has not called {name}, or has its answer; it waits for {names}"
                ),
            }));
        };
        let message = Message::answering(call, result);
        if waiting.len() == 1 {
            return self.put(message);
        }
        self.messages.push(message);
        self.tell_waiting();
        Ok(())
    }

    fn tell_waiting(&self) {
        let waiting = waiting(&self.messages);
        if let Some(first) = waiting.first() {
            let (names, first) = (names(&waiting), &first.function.name);
            say(format!("(waits for {names}: /tool {first} RESULT)"));
        }
    }

    /// Adds a message and prints the answer. If there is none, the message was not.
    fn put(&mut self, message: Message) -> Result<(), Failure> {
        let (len, dropped) = (self.messages.len(), self.dropped);
        self.messages.push(message);
        let answered = self.answer();
        let silent = self.messages.len() == len + 1;
        if answered.is_err() || silent {
            self.messages.truncate(len);
            self.dropped = dropped;
        }
        if answered.is_ok() && silent {
            say("interrupted before the first token; what was said is taken back");
        }
        answered
    }

    /// Prints the answer to the last message, and keeps it.
    fn answer(&mut self) -> Result<(), Failure> {
        let Some((reply, ending, whole)) = self.speak()? else {
            return Ok(());
        };
        let message = self.message(&reply);
        self.messages.push(message);
        if matches!(
            ending,
            TextEnding::Limit | TextEnding::ContextFull | TextEnding::Interrupted
        ) {
            say(format!("({})", why(&ending, Some(self.voice.words))));
        }
        if !whole {
            say(format!("({})", grammar::INCOMPLETE));
        }
        if self.statistics == Statistics::Shown {
            self.tell_statistics();
        }
        self.tell_waiting();
        Ok(())
    }

    /// The message that a reply is.
    fn message(&self, reply: &Reply) -> Message {
        let Some(Called { said, calls, .. }) = reply
            .called
            .as_ref()
            .filter(|called| !called.calls.is_empty())
        else {
            return Message::new(ASSISTANT, &reply.text);
        };
        let unknown = calls
            .iter()
            .find(|call| self.voice.template.lacks(&call.name));
        unknown
            .iter()
            .for_each(|call| say(format!("(there is no tool {})", call.name)));
        let before = self
            .messages
            .iter()
            .map(|message| message.tool_calls.len())
            .sum();
        Message::calling(said.trim(), calls, before)
    }

    /// Prints an answer, and gives whether it is a whole one within the grammar. While it grows, turns may be dropped.
    /// Nothing if it was interrupted before its first token.
    fn speak(&mut self) -> Result<Option<(Reply, TextEnding, bool)>, Failure> {
        let Voice {
            words,
            end_tokens,
            stops,
            grammar,
            template,
        } = self.voice;
        let mut matcher = grammar.map(Grammar::matcher);
        let (mut reply, mut stream) = (
            Reply::default(),
            TextStream::new(Some(words), end_tokens, stops),
        );
        let mut prompt = self.fit(&[])?.ok_or_else(|| self.no_room())?;
        let start = Instant::now();
        let mut figures = Figures {
            prompt: prompt.len(),
            kept: 0,
            times: Times::from(Duration::ZERO),
            positions: 0,
            seed: (self.parameters.sampling.temperature > 0.0)
                .then_some(self.parameters.sampling.seed),
        };
        // Of an answer that drops turns, the first prompt counts.
        let mut first = true;
        stream.spell(|token| template.shows_token(token));
        let calls = template.calls(self.shown(), &template.text(self.shown())?);
        let mut printer = Printer::new(Form::Text).with_calls(calls);
        loop {
            let (kept, taken) = self.take_in(&prompt)?;
            if std::mem::take(&mut first) {
                figures.kept = kept;
            }
            let ending = match taken {
                ControlFlow::Break(()) if reply.tokens.is_empty() => return Ok(None),
                ControlFlow::Break(()) => TextEnding::Interrupted,
                ControlFlow::Continue(()) => {
                    let mut each = |made| figures.times.token(start.elapsed(), made);
                    self.print(
                        &mut reply,
                        (&mut stream, matcher.as_mut()),
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
                let whole =
                    matcher.is_none_or(|mut matcher| grammar::is_complete(&mut matcher, &ending));
                figures.positions = self.cached.tokens().len();
                self.figures = Some(figures);
                return Ok(Some((reply, ending, whole)));
            };
            prompt = more;
        }
    }

    /// Prints tokens until something ends them.
    fn print(
        &mut self,
        reply: &mut Reply,
        (stream, matcher): (&mut TextStream<'_>, Option<&mut Matcher>),
        printer: &mut Printer<'_>,
        each: &mut dyn FnMut(u32),
    ) -> Result<TextEnding, Failure> {
        let limit = self.parameters.tokens.unwrap_or(u32::MAX) - reply.tokens.len() as u32;
        let cached = &mut self.cached;
        let tokens = self
            .engine
            .writer()
            .tokens(cached.tokens(), limit, matcher)?;
        reply.print(tokens, stream, printer, |piece| {
            cached.push(piece.token);
            each(piece.made);
        })
    }

    /// Makes these the tokens of the decoder; breaks if the user does. Returns how many it had from before.
    fn take_in(&mut self, prompt: &[u32]) -> Result<(u32, ControlFlow<()>), Failure> {
        let mut bar = PromptBar::new(prompt.len());
        let kept = self
            .cached
            .prefill(&mut self.engine.writer().decoder, prompt, |taken| {
                bar.set(taken as usize);
                if interrupt::check().is_ok() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        let whole = self.cached.tokens().len() == prompt.len() && interrupt::check().is_ok();
        Ok((
            kept,
            if whole {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            },
        ))
    }

    /// The tokens of the conversation, and of an answer so far. Where they do not fit, and that was not refused, the
    /// oldest turns are dropped until a quarter of the context is free. Nothing if that is not enough for these.
    fn fit(&mut self, said: &[u32]) -> Result<Option<Vec<u32>>, Failure> {
        let ctx = self.limits.ctx as usize;
        let (mut prompt, before) = (self.tokens(said)?, self.dropped);
        if prompt.len() <= ctx {
            return Ok(Some(prompt));
        }
        while self.limits.when_full == WhenFull::Drop
            && prompt.len() > ctx - ctx / 4
            && self.drop_turn()
        {
            prompt = self.tokens(said)?;
        }
        if prompt.len() > ctx {
            // What does not help is not done.
            self.dropped = before;
            return Ok(None);
        }
        let line = if said.is_empty() { "" } else { "\n" };
        let dropped = match self.dropped - before {
            1 => "message is".to_owned(),
            dropped => format!("{dropped} messages are"),
        };
        say(format!(
            "{line}(the context of {ctx} positions is full: the oldest {dropped} dropped)"
        ));
        Ok(Some(prompt))
    }

    /// The tokens of what is not dropped.
    fn tokens(&self, said: &[u32]) -> Result<Vec<u32>, Failure> {
        let mut tokens = self.voice.template.tokens(self.shown(), self.voice.words)?;
        tokens.extend(said);
        Ok(tokens)
    }

    /// The messages that are not dropped.
    fn shown(&self) -> impl Iterator<Item = &Message> {
        let system = usize::from(self.system().is_some());
        self.messages[..system]
            .iter()
            .chain(&self.messages[system + self.dropped..])
    }

    /// Drops the oldest turn: all up to the user's next message. Not the latest one.
    fn drop_turn(&mut self) -> bool {
        let shown = &self.messages[usize::from(self.system().is_some()) + self.dropped..];
        let next = shown
            .iter()
            .skip(1)
            .position(|message| message.role == USER);
        self.dropped += next.map_or(0, |next| next + 1);
        next.is_some()
    }

    fn no_room(&self) -> Failure {
        let ctx = self.limits.ctx;
        let instead = match self.limits.when_full {
            WhenFull::Drop => "say less, or start with a larger --ctx",
            WhenFull::Refuse => {
                "/reset forgets what was said; or start with a larger --ctx, or --when-full drop"
            }
        };
        Failure::Input(format!(
            "the conversation does not fit into the context of {ctx} positions; {instead}"
        ))
    }
}

/// The names of the tools that are called.
fn names(calls: &[&Call]) -> String {
    calls
        .iter()
        .map(|call| call.function.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
