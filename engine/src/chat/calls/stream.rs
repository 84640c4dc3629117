//! Finds calls in a reply while it comes: text is given on at once, calls when they are whole.
//!
//! What may be the beginning of an opening mark is held back. What stands between marks and is no call is text after
//! all, marks and all, and it is said why it is none. Calls that a model only thinks of, between `<think>` and
//! `</think>`, are none.
//!
//! A closing mark may stand in a value, which ends behind it. So where a model forgot to close the value, text is held
//! back: until the text cannot be one of a value any more, or is longer than a value is waited for.

use super::call::ToolCall;
use super::syntax::{Place, Syntax};
use super::tools::Tools;
use super::{body, elements};

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// What is said.
    Text(String),
    /// What is to be called.
    Call(ToolCall),
    /// The text that comes next begins with a mark of calls, and is none.
    NoCall {
        /// The mark.
        mark: &'static str,
        /// Why it is none, as the end of a sentence.
        problem: &'static str,
    },
}

/// Bytes behind a closing mark that stands in a value, for which the end of the value is waited for.
const PATIENCE: usize = 2000;

/// A reply, as it comes.
#[derive(Debug)]
pub struct CallStream<'a> {
    syntaxes: &'a [&'static Syntax],
    tools: &'a Tools,
    state: State,
    /// What was not given on yet.
    held: String,
    /// Whether nothing but white space has come.
    at_start: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Text,
    Thought,
    /// Behind the opening mark, which is held too.
    Call(&'static Syntax),
}

/// What a thought is between.
const THINK: [&str; 2] = ["<think>", "</think>"];

impl<'a> CallStream<'a> {
    /// For a reply to a conversation that was rendered as `prompt`, which may have begun the thought.
    pub(crate) fn new(syntaxes: &'a [&'static Syntax], tools: &'a Tools, prompt: &str) -> CallStream<'a> {
        let state = if prompt.trim_end().ends_with(THINK[0]) { State::Thought } else { State::Text };
        CallStream { syntaxes, tools, state, held: String::new(), at_start: true }
    }

    /// Parts that are known with this text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = vec![];
        while let Some(more) = self.step() {
            parts.extend(more);
        }
        parts
    }

    /// What was held back, where no more text comes.
    pub fn finish(mut self) -> Vec<Part> {
        let State::Call(syntax) = self.state else { return text(self.held) };
        // A name, or some of the values, may be all that came of a call without its closing mark.
        let whole = syntax.closes.is_none() || body::ends_itself(&self.held[syntax.opens.len()..]);
        if let Some(calls) = self.calls(syntax, self.held.len()).filter(|_| whole) {
            return calls;
        }
        // No call: it may be one behind this mark.
        let closed = syntax.closes.is_none_or(|closes| self.held.contains(closes));
        let problem = if closed { self.problem(syntax, self.held.len()) } else { "it is not closed" };
        let mut parts = self.no_call(syntax, problem);
        parts.extend(self.push(""));
        parts.extend(self.finish());
        parts
    }

    /// Goes on by a part; nothing if that takes more text.
    fn step(&mut self) -> Option<Vec<Part>> {
        match self.state {
            State::Text => self.text(),
            State::Thought => {
                let end = self.held.find(THINK[1]).map(|at| at + THINK[1].len());
                self.state = if end.is_some() { State::Text } else { State::Thought };
                let begun = begun(&self.held, &THINK[1..]);
                self.take(end.unwrap_or(self.held.len() - begun))
            }
            State::Call(syntax) => self.call(syntax),
        }
    }

    /// Gives on text up to a mark.
    fn text(&mut self) -> Option<Vec<Part>> {
        let opened = self.syntaxes.iter().filter_map(|syntax| Some((self.opened(syntax)?, *syntax)));
        let opened = opened.min_by_key(|(at, _)| *at);
        let thought = self.held.find(THINK[0]);
        if let Some(at) = thought.filter(|at| opened.is_none_or(|(call, _)| *at < call)) {
            self.state = State::Thought;
            return self.take(at + THINK[0].len());
        }
        if let Some((at, syntax)) = opened {
            self.state = State::Call(syntax);
            return self.take(at).or(Some(vec![]));
        }
        let marks = self.syntaxes.iter().filter(|syntax| syntax.place == Place::Anywhere);
        let marks: Vec<&str> = marks.map(|syntax| syntax.opens).chain([THINK[0]]).collect();
        self.take(self.held.len() - begun(&self.held, &marks))
    }

    /// Where a call begins.
    fn opened(&self, syntax: &Syntax) -> Option<usize> {
        let at = self.held.find(syntax.opens)?;
        let first = self.at_start && self.held[..at].trim().is_empty();
        (syntax.place == Place::Anywhere || first).then_some(at)
    }

    /// Gives on calls if their end is there. An end that stands in a string of an argument is none. What ends and is no
    /// call is text after all, and there may be a call behind its mark.
    fn call(&mut self, syntax: &'static Syntax) -> Option<Vec<Part>> {
        let closes = syntax.closes?;
        let mut ends = self.held.match_indices(closes).map(|(at, _)| at);
        let (at, calls) = ends.find_map(|at| match self.calls(syntax, at) {
            None if self.may_go_on(syntax, at, closes) => None,
            calls => Some((at, calls)),
        })?;
        if calls.is_none() {
            return Some(self.no_call(syntax, self.problem(syntax, at)));
        }
        (self.state, self.at_start) = (State::Text, false);
        self.held.drain(..at + closes.len());
        calls
    }

    /// Whether a closing mark stands in a value that goes on behind it.
    fn may_go_on(&self, syntax: &Syntax, at: usize, closes: &str) -> bool {
        let (before, after) = (&self.held[syntax.opens.len()..at], &self.held[at + closes.len()..]);
        let open = body::is_open(before, closes);
        open && after.len() <= PATIENCE && !elements::ends_without_its_value(before, after)
    }

    /// Why what is held up to there is no call.
    fn problem(&self, syntax: &Syntax, end: usize) -> &'static str {
        match body::is_open(&self.held[syntax.opens.len()..end], syntax.closes.unwrap_or_default()) {
            true => "a value in it is not closed",
            false => "it is not written as calls are",
        }
    }

    /// Gives on the opening mark as text.
    fn no_call(&mut self, syntax: &'static Syntax, problem: &'static str) -> Vec<Part> {
        self.state = State::Text;
        let said = Part::NoCall { mark: syntax.opens, problem };
        let mark = self.take(syntax.opens.len()).unwrap_or_default();
        // A reply that only looks like a call at its start is one of JSON.
        let said = Some(said).filter(|_| syntax.place == Place::Anywhere);
        self.at_start = false;
        said.into_iter().chain(mark).collect()
    }

    /// The calls of what is held, up to `end`.
    fn calls(&self, syntax: &Syntax, end: usize) -> Option<Vec<Part>> {
        let begin = if syntax.place == Place::Start { 0 } else { syntax.opens.len() };
        let calls = (syntax.body)(self.held.get(begin..end)?, self.tools)?;
        let known = |call: &ToolCall| self.tools.names().any(|name| name == call.name);
        let are_calls = syntax.place == Place::Anywhere || calls.iter().all(known);
        are_calls.then(|| calls.into_iter().map(Part::Call).collect())
    }

    /// Gives on so many bytes; nothing if there are none.
    fn take(&mut self, bytes: usize) -> Option<Vec<Part>> {
        let rest = self.held.split_off(bytes);
        let taken = std::mem::replace(&mut self.held, rest);
        self.at_start &= taken.trim().is_empty();
        (!taken.is_empty()).then(|| text(taken))
    }
}

fn text(text: String) -> Vec<Part> {
    if text.is_empty() { vec![] } else { vec![Part::Text(text)] }
}

/// Bytes at the end of a text that one of the marks may begin with.
fn begun(text: &str, marks: &[&str]) -> usize {
    let tails = text.char_indices().map(|(at, _)| &text[at..]);
    let mut held =
        tails.filter(|tail| marks.iter().any(|mark| mark.len() > tail.len() && mark.starts_with(tail)));
    held.next().map_or(0, str::len)
}
