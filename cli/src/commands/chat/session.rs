//! A conversation: its messages, and the tokens of them that the decoder has.
//!
//! Each answer renders the whole conversation anew. The tokens that the decoder has from before stay, as far as the new
//! ones begin like them.

use std::ops::ControlFlow;

use warpwright_engine::{Cached, Ending, Grammar, Matcher, StopStrings, TextStream, Tokenizer};

use super::WhenFull;
use crate::failure::Failure;
use crate::grammar;
use crate::interrupt;
use crate::message::{ASSISTANT, Call, Message, SYSTEM, TOOL, USER, waiting};
use crate::progress::PromptBar;
use crate::reply::{Called, Form, Printer, Reply, why};
use crate::speculative::Writer;
use crate::template::Template;
use crate::terminal::say;

/// What bounds an answer.
pub(super) struct Limits {
    /// Positions.
    pub(super) ctx: u32,
    /// Tokens of an answer.
    pub(super) tokens: u32,
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

/// A conversation.
pub(super) struct Session<'a> {
    writer: Writer,
    cached: Cached,
    voice: Voice<'a>,
    pub(super) limits: Limits,
    messages: Vec<Message>,
    /// Messages after that of the system which the context has no room for.
    dropped: usize,
}

impl<'a> Session<'a> {
    pub(super) fn new(writer: Writer, voice: Voice<'a>, limits: Limits) -> Session<'a> {
        Session { writer, cached: Cached::default(), voice, limits, messages: vec![], dropped: 0 }
    }

    /// All messages, also those that were dropped from the context.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the system says.
    pub(super) fn system(&self) -> Option<&str> {
        let first = self.messages.first().filter(|message| message.role == SYSTEM);
        first.map(|message| message.content.as_str())
    }

    pub(super) fn set_system(&mut self, text: &str) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        self.messages.insert(0, Message::new(SYSTEM, text));
    }

    /// Forgets all that was said, but not what the system says.
    pub(super) fn reset(&mut self) {
        self.messages.retain(|message| message.role == SYSTEM);
        self.dropped = 0;
    }

    /// Goes on with another conversation. If it ends with a message of a user or a tool, that is answered.
    pub(super) fn load(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.messages, messages);
        let dropped = std::mem::take(&mut self.dropped);
        if !waiting(&self.messages).is_empty() {
            self.tell_waiting();
            return Ok(());
        }
        if self.messages.last().is_none_or(|last| last.role != USER && last.role != TOOL) {
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
                names => format!("the model has not called {name}, or has its answer; it waits for {names}"),
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
        let Some((reply, ending, whole)) = self.speak()? else { return Ok(()) };
        let message = self.message(&reply);
        self.messages.push(message);
        if matches!(ending, Ending::Limit | Ending::ContextFull | Ending::Interrupted) {
            say(format!("({})", why(&ending, Some(self.voice.words))));
        }
        if !whole {
            say(format!("({})", grammar::INCOMPLETE));
        }
        self.tell_waiting();
        Ok(())
    }

    /// The message that a reply is.
    fn message(&self, reply: &Reply) -> Message {
        let Some(Called { said, calls, .. }) =
            reply.called.as_ref().filter(|called| !called.calls.is_empty())
        else {
            return Message::new(ASSISTANT, &reply.text);
        };
        let unknown = calls.iter().find(|call| self.voice.template.lacks(&call.name));
        unknown.iter().for_each(|call| say(format!("(there is no tool {})", call.name)));
        let before = self.messages.iter().map(|message| message.tool_calls.len()).sum();
        Message::calling(said.trim(), calls, before)
    }

    /// Prints an answer, and gives whether it is a whole one within the grammar. While it grows, turns may be dropped.
    /// Nothing if it was interrupted before its first token.
    fn speak(&mut self) -> Result<Option<(Reply, Ending, bool)>, Failure> {
        let Voice { words, end_tokens, stops, grammar, template } = self.voice;
        let mut matcher = grammar.map(Grammar::matcher);
        let (mut reply, mut stream) = (Reply::default(), TextStream::new(Some(words), end_tokens, stops));
        let mut prompt = self.fit(&[])?.ok_or_else(|| self.no_room())?;
        stream.spell(|token| template.shows_token(token));
        let mut printer = Printer::new(Form::Text).with_calls(template.calls(&template.text(self.shown())?));
        loop {
            let ending = match self.take_in(&prompt)? {
                ControlFlow::Break(()) if reply.tokens.is_empty() => return Ok(None),
                ControlFlow::Break(()) => Ending::Interrupted,
                ControlFlow::Continue(()) => {
                    self.print(&mut reply, &mut stream, &mut printer, matcher.as_mut())?
                }
            };
            let more = if ending == Ending::ContextFull { self.fit(&reply.tokens)? } else { None };
            let Some(more) = more else {
                let ending = reply.finish(stream, &mut printer, ending)?;
                let whole = matcher.is_none_or(|mut matcher| grammar::is_complete(&mut matcher, &ending));
                return Ok(Some((reply, ending, whole)));
            };
            prompt = more;
        }
    }

    /// Prints tokens until something ends them.
    fn print(
        &mut self,
        reply: &mut Reply,
        stream: &mut TextStream<'_>,
        printer: &mut Printer<'_>,
        matcher: Option<&mut Matcher>,
    ) -> Result<Ending, Failure> {
        let limit = self.limits.tokens - reply.tokens.len() as u32;
        let (writer, cached) = (&mut self.writer, &mut self.cached);
        let tokens = writer.tokens(cached.tokens(), limit, matcher)?;
        reply.print(tokens, stream, printer, |piece| cached.push(piece.token))
    }

    /// Makes these the tokens of the decoder; breaks if the user does.
    fn take_in(&mut self, prompt: &[u32]) -> Result<ControlFlow<()>, Failure> {
        let mut bar = PromptBar::new(prompt.len());
        self.cached.prefill(&mut self.writer.decoder, prompt, |taken| {
            bar.set(taken as usize);
            if interrupt::check().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let whole = self.cached.tokens().len() == prompt.len() && interrupt::check().is_ok();
        Ok(if whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// The tokens of the conversation, and of an answer so far. Where they do not fit, and that was not refused, the
    /// oldest turns are dropped until a quarter of the context is free. Nothing if that is not enough for these.
    fn fit(&mut self, said: &[u32]) -> Result<Option<Vec<u32>>, Failure> {
        let ctx = self.limits.ctx as usize;
        let (mut prompt, before) = (self.tokens(said)?, self.dropped);
        if prompt.len() <= ctx {
            return Ok(Some(prompt));
        }
        while self.limits.when_full == WhenFull::Drop && prompt.len() > ctx - ctx / 4 && self.drop_turn() {
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
        say(format!("{line}(the context of {ctx} positions is full: the oldest {dropped} dropped)"));
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
        self.messages[..system].iter().chain(&self.messages[system + self.dropped..])
    }

    /// Drops the oldest turn: all up to the user's next message. Not the latest one.
    fn drop_turn(&mut self) -> bool {
        let shown = &self.messages[usize::from(self.system().is_some()) + self.dropped..];
        let next = shown.iter().skip(1).position(|message| message.role == USER);
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
    calls.iter().map(|call| call.function.name.as_str()).collect::<Vec<_>>().join(", ")
}
