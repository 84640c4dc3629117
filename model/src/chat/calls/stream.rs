//! Finds calls in a reply while it arrives.
//!
//! Text is returned immediately, except where it may be the start of an opening mark. A call is
//! returned only if no continuation of the reply can change it. For formats with quotes, such as
//! JSON, this is the end of the call. For formats with tags it is the end of the reply (see
//! `readings`).
//!
//! A mark that does not start a call is reported, and the rest of the reply is text. The rest may
//! belong to a value, so it is not searched for calls. Calls between `<think>` and `</think>` are
//! text too, because the model only considers them.
//!
//! The reader can also separate the thoughts at the start of a reply from its text. White space
//! around their marks, and between text and calls, then belongs to neither.

use super::call::{ReplyPart, ToolCall};
use super::context::ReadContext;
use super::cursor::{CallFault, Cursor, NOT_CLOSED, Parsed, VALUE_NOT_CLOSED, named, wrong};
use super::elements::Elements;
use super::foreign::ForeignText;
use super::readings;
use super::syntax::{CallBody, CallFormats, CallsEnd, CallsPlace, Syntax, messages_only};
use super::thoughts::{Spacing, ThoughtMarks};
use super::tools::{NO_TOOLS, Tools};

/// The way in which a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The model ended the reply.
    Complete,
    /// The reply was cut, for example by a limit. A value without a closing quote may then be
    /// incomplete, although the text after it looks like the end of a call.
    Cut,
}

/// A reader of a reply that arrives in pieces, from
/// [`ChatTemplate::calls`](crate::chat::ChatTemplate::calls) or
/// [`ChatTemplate::reply`](crate::chat::ChatTemplate::reply).
///
/// The parts do not depend on how the reply is divided, except for the division of text.
#[derive(Debug)]
pub struct CallStream<'a> {
    syntaxes: &'a [&'static Syntax],
    separators: &'a [String],
    tools: &'a Tools,
    foreign: ForeignText,
    state: State,
    /// The text that has arrived and has not been returned.
    held: String,
    /// True while the reply has only white space and thoughts.
    at_start: bool,
    /// The length of `held` at which the end of a call is looked for next.
    next_look: usize,
    /// The number of bytes of `held` that were searched for a closing mark.
    searched: usize,
    /// The text of the current thought.
    thought: String,
    thoughts: Thoughts<'a>,
    /// The mark that ends the answer after a thought, if the answer began with a mark.
    answer_end: Option<&'static str>,
}

/// The treatment of thoughts.
#[derive(Debug)]
enum Thoughts<'a> {
    /// They are text, with their marks.
    Text,
    /// They are separate parts without their marks.
    Separate {
        marks: &'a [&'static ThoughtMarks],
        /// The marks around answers that the template contains.
        answers: &'a [[&'static str; 2]],
        spacing: Spacing,
    },
}

/// The part of a reply that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Some,
    All,
}

/// The state of a reader.
#[derive(Debug, Clone, Copy)]
enum State {
    /// In text that may contain calls.
    Text,
    /// Text without calls, up to this mark.
    Quiet(&'static str),
    /// In a thought that is a separate part.
    Thought(&'static ThoughtMarks),
    /// After a thought, where the mark of an answer may follow.
    Answer(&'static ThoughtMarks),
    /// In a call. Its opening mark is still in `held`.
    Call(&'static Syntax),
    /// After a mark that does not start a call. Everything is text.
    Rest,
    /// Before the header of a message of gpt-oss.
    Header,
    /// In a message of gpt-oss.
    Message(MessageKind),
    /// In a call of gpt-oss, after its header.
    Recipient,
}

/// The kind of a message of gpt-oss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Text,
    Thought,
}

/// The marks around a thought that is text.
const THINK: [&str; 2] = ["<think>", "</think>"];

/// The tokens that end a message of gpt-oss.
const MESSAGE_ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"];

/// The maximum length of the header of a message of gpt-oss.
const HEADER: usize = 400;

impl<'a> CallStream<'a> {
    /// Returns a reader of the reply to a prompt, which may have begun a thought.
    pub(crate) fn new(
        formats: &'a CallFormats,
        tools: &'a Tools,
        foreign: ForeignText,
        prompt: &str,
    ) -> CallStream<'a> {
        let is_in_thought = prompt.trim_end().ends_with(THINK[0]);
        let state = match initial(&formats.syntaxes, prompt) {
            None if is_in_thought => State::Quiet(THINK[1]),
            None => State::Text,
            // These messages have their own form of thoughts.
            Some(state) => state,
        };
        CallStream {
            syntaxes: &formats.syntaxes,
            separators: &formats.separators,
            tools,
            foreign,
            state,
            held: String::new(),
            at_start: true,
            next_look: 0,
            searched: 0,
            thought: String::new(),
            thoughts: Thoughts::Text,
            answer_end: None,
        }
    }

    /// Returns a reader that separates thoughts from text. Without tools, it finds no calls.
    pub(crate) fn with_thoughts(
        formats: &'a CallFormats,
        tools: Option<&'a Tools>,
        foreign: ForeignText,
        prompt: &str,
    ) -> CallStream<'a> {
        let syntaxes = match tools {
            Some(_) => &formats.syntaxes[..],
            None => messages_only(&formats.syntaxes),
        };
        let opened = |marks: &&&ThoughtMarks| prompt.trim_end().ends_with(marks.open);
        let opened = formats.thoughts.iter().find(opened);
        let thought = opened.map_or(State::Text, |marks| State::Thought(marks));
        let state = initial(syntaxes, prompt).unwrap_or(thought);
        let thoughts = Thoughts::Separate {
            marks: &formats.thoughts,
            answers: &formats.answers,
            spacing: Spacing::new(),
        };
        CallStream {
            syntaxes,
            state,
            thoughts,
            ..CallStream::new(formats, tools.unwrap_or(&NO_TOOLS), foreign, prompt)
        }
    }

    /// Adds a piece of the reply and returns the parts that are certain after it.
    pub fn push(&mut self, text: &str) -> Vec<ReplyPart> {
        self.held.push_str(text);
        let parts = self.steps();
        self.spaced(parts)
    }

    /// Returns the number of bytes of the reply that have arrived and belong to no returned part
    /// yet.
    pub fn held(&self) -> usize {
        let spaces = match &self.thoughts {
            Thoughts::Text => 0,
            Thoughts::Separate { spacing, .. } => spacing.held(),
        };
        self.held.len() + spaces
    }

    /// Returns true if the text that arrives next belongs to a thought, as far as is known.
    pub fn is_in_thought(&self) -> bool {
        match self.state {
            State::Quiet(_) | State::Thought(_) | State::Message(MessageKind::Thought) => true,
            State::Text
            | State::Answer(_)
            | State::Call(_)
            | State::Rest
            | State::Header
            | State::Message(MessageKind::Text)
            | State::Recipient => false,
        }
    }

    /// Removes white space around marks, if thoughts are separate.
    fn spaced(&mut self, parts: Vec<ReplyPart>) -> Vec<ReplyPart> {
        match &mut self.thoughts {
            Thoughts::Text => parts,
            Thoughts::Separate { spacing, .. } => parts
                .into_iter()
                .flat_map(|part| spacing.add(part))
                .collect(),
        }
    }

    /// Returns all parts that are certain.
    fn steps(&mut self) -> Vec<ReplyPart> {
        let mut parts = vec![];
        while let Some(more) = self.step() {
            parts.extend(more);
        }
        parts
    }

    /// Ends the reply and returns the remaining parts.
    pub fn finish(mut self, end: ReplyEnd) -> Vec<ReplyPart> {
        let parts = self.last_parts(end);
        let mut parts = self.spaced(parts);
        if let Thoughts::Separate { spacing, .. } = self.thoughts {
            parts.extend(spacing.finish());
        }
        parts
    }

    fn last_parts(&mut self, end: ReplyEnd) -> Vec<ReplyPart> {
        let mut parts = vec![];
        loop {
            match self.state {
                State::Text | State::Rest => {
                    parts.extend(self.take(self.held.len()).unwrap_or_default());
                    return parts;
                }
                State::Message(kind) => {
                    parts.extend(self.take_message(kind, self.held.len()));
                    parts.extend(self.message_end(kind));
                    return parts;
                }
                State::Header => {
                    // A header without a message has no text of its own.
                    parts.extend(text(std::mem::take(&mut self.held)));
                    return parts;
                }
                State::Quiet(_) => {
                    parts.extend(self.take(self.held.len()).unwrap_or_default());
                    parts.extend(self.considered_call());
                    return parts;
                }
                State::Thought(_) => {
                    parts.extend(self.take_thought(self.held.len()));
                    parts.extend(self.considered_call());
                    return parts;
                }
                State::Answer(_) => self.state = State::Text,
                // The text that arrived last may not have been looked at yet.
                State::Call(syntax) => match self.certain_call(syntax) {
                    Some(certain) => parts.extend(certain),
                    None => parts.extend(self.last_call_or_text(syntax, end)),
                },
                State::Recipient => match self.certain_recipient() {
                    Some(certain) => parts.extend(certain),
                    None => match self.harmony_call(&self.held, Arrival::All) {
                        Ok((call, bytes)) => parts.extend(self.accept(vec![call], bytes)),
                        Err(fault) => parts.extend(self.reject_mark("<|channel|>", fault)),
                    },
                },
            }
            parts.extend(self.steps());
        }
    }

    /// Returns the calls that the reply ends with, or its text if they are none.
    fn last_call_or_text(&mut self, syntax: &'static Syntax, end: ReplyEnd) -> Vec<ReplyPart> {
        match self.last_call(syntax, end) {
            Ok((calls, bytes)) => self.accept(calls, bytes),
            Err(fault) => self.reject(syntax, fault, self.held.len()),
        }
    }

    /// Returns the problem of a thought that does not end and contains the mark of a call.
    fn considered_call(&self) -> Option<ReplyPart> {
        let considered = self.syntaxes.iter().find(|syntax| {
            syntax.place == CallsPlace::Anywhere && self.thought.contains(syntax.opens)
        });
        let problem = "it is in a thought that does not end".to_owned();
        considered.map(|syntax| ReplyPart::NoCall {
            mark: syntax.opens,
            problem,
        })
    }

    /// Advances by one part. Returns `None` if that takes more text.
    fn step(&mut self) -> Option<Vec<ReplyPart>> {
        match self.state {
            State::Text => self.text(),
            State::Rest => self.take(self.held.len()),
            State::Quiet(close) => self.quiet(close),
            State::Thought(marks) => self.thought(marks),
            State::Answer(marks) => self.answer(marks),
            State::Call(syntax) => self.call(syntax),
            State::Header => self.header(),
            State::Message(kind) => self.message(kind),
            State::Recipient => self.recipient(),
        }
    }

    /// Returns text up to a mark.
    fn text(&mut self) -> Option<Vec<ReplyPart>> {
        if let Some((at, marks)) = self.opened_thought() {
            // The white space in front of the mark may have been returned already.
            let mut parts = self.take(at).unwrap_or_default();
            self.held.drain(..marks.open.len());
            self.thought.clear();
            self.state = State::Thought(marks);
            // It belongs to the mark, also if the thought stays empty.
            parts.push(ReplyPart::Reasoning(String::new()));
            return Some(parts);
        }

        // A longer mark of a thought may begin with another mark.
        let next = self.held.trim_start();
        let may_open = |marks: &&ThoughtMarks| marks.open.starts_with(next);
        if !next.is_empty() && self.thought_marks().iter().any(may_open) {
            return None;
        }

        let opened = self
            .syntaxes
            .iter()
            .filter_map(|syntax| Some((self.opened(syntax)?, *syntax)));
        let opened = opened.min_by_key(|(at, _)| *at);
        let quiet = self
            .quiet_marks()
            .filter_map(|[open, close]| Some((self.held.find(open)?, open, close)));
        let quiet = quiet.min_by_key(|(at, _, _)| *at);
        let answer_end = self
            .answer_end
            .and_then(|end| Some((self.held.find(end)?, end)));
        if let Some((at, end)) = answer_end
            && opened.is_none_or(|(call, _)| at < call)
            && quiet.is_none_or(|(quiet, _, _)| at < quiet)
        {
            let parts = self.take(at).unwrap_or_default();
            self.held.drain(..end.len());
            self.answer_end = None;
            return Some(parts);
        }

        if let Some((at, open, close)) =
            quiet.filter(|(at, _, _)| opened.is_none_or(|(call, _)| *at < call))
        {
            // A thought in front of a call leaves the call at the start of the reply.
            let at_start = self.at_start && self.held[..at].trim().is_empty();
            let parts = self.take(at + open.len());
            self.at_start = at_start;
            self.thought.clear();
            self.state = State::Quiet(close);
            return parts;
        }

        if let Some((at, syntax)) = opened {
            self.state = State::Call(syntax);
            self.next_look = 0;
            self.searched = 0;
            return self.take(at).or(Some(vec![]));
        }

        let calls = self
            .syntaxes
            .iter()
            .filter(|syntax| syntax.place == CallsPlace::Anywhere);
        let marks = calls
            .map(|syntax| syntax.opens)
            .chain(self.quiet_marks().map(|[open, _]| open))
            .chain(self.answer_end)
            .chain(self.thought_marks().iter().map(|marks| marks.open));
        let marks: Vec<&str> = marks.collect();
        self.take(self.held.len() - begun(&self.held, &marks))
    }

    /// Returns the marks around text without calls.
    fn quiet_marks(&self) -> impl Iterator<Item = [&'static str; 2]> {
        self.syntaxes
            .iter()
            .filter_map(|syntax| syntax.quiet)
            .chain([THINK])
    }

    /// Returns the marks of thoughts that are separate parts. Thoughts only come first in a reply,
    /// because a later mark may belong to a text about marks.
    fn thought_marks(&self) -> &'a [&'static ThoughtMarks] {
        match &self.thoughts {
            Thoughts::Separate { marks, .. } if self.at_start => marks,
            Thoughts::Separate { .. } | Thoughts::Text => &[],
        }
    }

    /// Returns the position of a mark that begins a thought, with the marks.
    fn opened_thought(&self) -> Option<(usize, &'static ThoughtMarks)> {
        let start = self.held.len() - self.held.trim_start().len();
        let is_next = |marks: &&&ThoughtMarks| self.held[start..].starts_with(marks.open);
        let found = self.thought_marks().iter().find(is_next);
        found.map(|marks| (start, *marks))
    }

    /// Returns text of a thought, up to its closing mark.
    fn thought(&mut self, marks: &'static ThoughtMarks) -> Option<Vec<ReplyPart>> {
        // Some models repeat the mark with which the prompt ended, even several times.
        if self.thought.trim().is_empty() {
            let start = self.held.len() - self.held.trim_start().len();
            let rest = &self.held[start..];
            if rest.starts_with(marks.open) {
                self.held.drain(..start + marks.open.len());
                return Some(vec![]);
            } else if marks.open.starts_with(rest) {
                return None;
            }
        }

        let Some(end) = self.held.find(marks.close) else {
            let bytes = self.held.len() - begun(&self.held, &[marks.close]);
            let parts = self.take_thought(bytes);
            return (!parts.is_empty()).then_some(parts);
        };

        let mut parts = self.take_thought(end);
        // Even an empty thought ends the white space in front of it.
        parts.push(ReplyPart::Reasoning(String::new()));
        self.held.drain(..marks.close.len());
        self.state = State::Answer(marks);
        Some(parts)
    }

    /// Removes the mark of an answer, if one follows a thought.
    fn answer(&mut self, marks: &'static ThoughtMarks) -> Option<Vec<ReplyPart>> {
        let answers = match &self.thoughts {
            Thoughts::Text => &[],
            Thoughts::Separate { answers, .. } => *answers,
        };
        let answers = marks
            .answers
            .iter()
            .filter(|answer| answers.contains(answer));
        let start = self.held.len() - self.held.trim_start().len();
        let rest = &self.held[start..];
        for [open, close] in answers {
            if rest.starts_with(open) {
                self.held.drain(..start + open.len());
                self.answer_end = Some(close);
                break;
            }
            if open.starts_with(rest) {
                return None;
            }
        }

        self.state = State::Text;
        Some(vec![])
    }

    /// Removes the first `bytes` of the held text and returns them as a part of a thought.
    fn take_thought(&mut self, bytes: usize) -> Vec<ReplyPart> {
        let rest = self.held.split_off(bytes);
        let taken = std::mem::replace(&mut self.held, rest);
        self.thought.push_str(&taken);
        if taken.is_empty() {
            vec![]
        } else {
            vec![ReplyPart::Reasoning(taken)]
        }
    }

    /// Returns the position at which a call in this format starts.
    fn opened(&self, syntax: &Syntax) -> Option<usize> {
        let at = self.held.find(syntax.opens)?;
        match syntax.place {
            CallsPlace::Anywhere => Some(at),
            CallsPlace::Start => (self.at_start && self.held[..at].trim().is_empty()).then_some(at),
        }
    }

    /// Returns text without calls, up to its closing mark.
    fn quiet(&mut self, close: &'static str) -> Option<Vec<ReplyPart>> {
        let end = self.held.find(close).map(|at| at + close.len());
        if end.is_some() {
            self.state = State::Text;
        }

        let at_start = self.at_start;
        let parts = self.take(end.unwrap_or(self.held.len() - begun(&self.held, &[close])));
        self.at_start = at_start;
        if let Some([ReplyPart::Text(text)]) = parts.as_deref() {
            self.thought.push_str(text);
        }

        parts
    }

    /// Returns calls if they are certain.
    fn call(&mut self, syntax: &'static Syntax) -> Option<Vec<ReplyPart>> {
        // Each attempt reads the whole body. To keep their number small, the length grows by an
        // eighth in between, unless a closing mark arrives.
        let closes = if let CallsEnd::Mark(mark) = syntax.ends {
            mark
        } else {
            ""
        };
        let unsearched = self
            .held
            .get(self.searched.saturating_sub(closes.len())..)
            .unwrap_or(&self.held);
        let closed = !closes.is_empty() && unsearched.contains(closes);
        if self.held.len() < self.next_look && !closed {
            return None;
        }

        self.next_look = self.held.len() + self.held.len() / 8;
        self.searched = self.held.len();
        self.certain_call(syntax)
    }

    /// Returns calls if the text that is held back has certain ones, or its text if it has none.
    fn certain_call(&mut self, syntax: &'static Syntax) -> Option<Vec<ReplyPart>> {
        match self.certain_calls(syntax, &self.held) {
            Ok((calls, bytes)) => Some(self.accept(calls, bytes)),
            Err(CallFault::Open(_)) => None,
            Err(CallFault::Wrong(_)) => {
                let read = |text: &str| self.certain_calls(syntax, text).map(drop);
                let (fault, end) = first_fault(&self.held, read);
                Some(self.reject(syntax, fault, end))
            }
        }
    }

    /// Returns the calls in a text and their end, if no further text can change them.
    fn certain_calls(&self, syntax: &'static Syntax, text: &str) -> Parsed<(Vec<ToolCall>, usize)> {
        let mut cursor = body_start(syntax, text);
        let calls = match self.body(syntax, &cursor)? {
            CallBody::Elements(elements) => {
                elements.check_start(text)?;
                return Err(NOT_CLOSED);
            }
            CallBody::Marked(format) => {
                format.check(&mut cursor, &self.context())?;
                return Err(NOT_CLOSED);
            }
            body => self.read(body, &mut cursor)?,
        };
        match syntax.ends {
            CallsEnd::Mark(mark) => {
                cursor.skip_space();
                cursor.expect(mark)?;
            }
            CallsEnd::Body => {}
            CallsEnd::Reply(_) => return Err(NOT_CLOSED),
        }

        Ok((calls, cursor.at))
    }

    /// Returns the calls in the text that is held back and their end, where no more text comes.
    fn last_call(&self, syntax: &'static Syntax, end: ReplyEnd) -> Parsed<(Vec<ToolCall>, usize)> {
        let mut cursor = body_start(syntax, &self.held);
        let calls = match self.body(syntax, &cursor)? {
            CallBody::Elements(elements) => return self.last_elements(elements, end),
            CallBody::Marked(format) => {
                let calls = format.read(&mut cursor, &self.context())?;
                check_end(&calls, end)?;
                calls
            }
            body => self.read(body, &mut cursor)?,
        };
        let mut next = cursor;
        next.skip_space();
        match (syntax.place, syntax.ends) {
            (CallsPlace::Start, _) => {
                if !next.rest().is_empty() {
                    return wrong("there is text after it");
                }
                if let Some(call) = calls.iter().find(|call| !self.tools.has(&call.name)) {
                    return wrong(format!("there is no function {}", call.name));
                }
                cursor = next;
            }
            (CallsPlace::Anywhere, CallsEnd::Mark(mark)) => {
                // The closing mark may be missing or incomplete, because the body has an end of its
                // own.
                if next.may_become(mark) {
                    next.at = self.held.len();
                } else {
                    next.expect(mark)?;
                }
                cursor = next;
            }
            (CallsPlace::Anywhere, CallsEnd::Reply(Some(mark))) => {
                if next.eat(mark) {
                    cursor = next;
                }
            }
            (CallsPlace::Anywhere, CallsEnd::Reply(None) | CallsEnd::Body) => {}
        }

        Ok((calls, cursor.at))
    }

    /// Returns the calls of a format with tags and their end.
    fn last_elements(
        &self,
        elements: &'static Elements,
        end: ReplyEnd,
    ) -> Parsed<(Vec<ToolCall>, usize)> {
        let found = readings::read(elements, &self.held, &self.context())?;
        check_end(&found.0, end)?;
        Ok(found)
    }

    /// Returns the reader of the body. The mark `<tool_call>` has several.
    fn body(&self, syntax: &Syntax, cursor: &Cursor<'_>) -> Parsed<CallBody> {
        let CallBody::ToolCall = syntax.body else {
            return Ok(syntax.body);
        };
        let mut first = *cursor;
        first.skip_space();
        first
            .peek()
            .map(|first| syntax.body_with(first))
            .ok_or(NOT_CLOSED)
    }

    fn context(&self) -> ReadContext<'_> {
        ReadContext {
            tools: self.tools,
            separators: self.separators,
            foreign: &self.foreign,
        }
    }

    /// Reads a body that one function can read.
    fn read(&self, body: CallBody, cursor: &mut Cursor<'_>) -> Parsed<Vec<ToolCall>> {
        cursor.skip_space();
        match body {
            CallBody::Plain(read) => read(cursor),
            CallBody::Marked(_)
            | CallBody::Elements(_)
            | CallBody::ToolCall
            | CallBody::Harmony => {
                unreachable!("these bodies are read by other functions")
            }
        }
    }

    /// Returns calls as parts and continues after them.
    fn accept(&mut self, calls: Vec<ToolCall>, bytes: usize) -> Vec<ReplyPart> {
        let harmony = matches!(self.state, State::Recipient);
        self.state = if harmony { State::Header } else { State::Text };
        self.at_start = false;
        self.held.drain(..bytes);
        calls.into_iter().map(ReplyPart::Call).collect()
    }

    /// Reports that a mark does not start a call, and returns the rest of the reply as text. `end`
    /// is the end of the text that shows the fault.
    fn reject(&mut self, syntax: &'static Syntax, fault: CallFault, end: usize) -> Vec<ReplyPart> {
        // Without an opening mark, a reply may simply be JSON or a list, unless it names a
        // function. A name after the fault does not count, because it may not have arrived yet.
        let read = &self.held[..end];
        let names = |name: &str| {
            [format!("\"{name}\""), format!("{name}(")]
                .iter()
                .any(|begin| read.contains(begin))
        };
        if syntax.place == CallsPlace::Start && !self.tools.names().any(names) {
            self.state = State::Text;
            self.at_start = false;
            return self.take(syntax.opens.len()).unwrap_or_default();
        }
        self.reject_mark(syntax.opens, fault)
    }

    /// Reports that a mark does not start a call, for the given reason.
    fn reject_mark(&mut self, mark: &'static str, fault: CallFault) -> Vec<ReplyPart> {
        let problem = match fault {
            CallFault::Open(problem) => problem.to_owned(),
            CallFault::Wrong(problem) => problem,
        };
        self.state = State::Rest;
        let mut parts = vec![ReplyPart::NoCall { mark, problem }];
        parts.extend(self.take(self.held.len()).unwrap_or_default());
        parts
    }

    /// Reads the header of a message of gpt-oss: `<|start|>assistant<|channel|>commentary
    /// to=functions.f <|constrain|>json<|message|>`. The prompt contains the first two words of the
    /// first one.
    fn header(&mut self) -> Option<Vec<ReplyPart>> {
        const BEGINS: [&str; 4] = ["<|start|>", "<|channel|>", " to=", "to="];
        let begins = BEGINS
            .iter()
            .any(|mark| self.held.starts_with(mark) || mark.starts_with(&self.held));
        const MESSAGE: &str = "<|message|>";
        let end = self.held.find(MESSAGE);
        // The text that had arrived before the header was complete.
        let open = end.map_or(self.held.len(), |end| end + MESSAGE.len() - 1);
        if !begins || open > HEADER {
            // The model wrote text without a header. A mark at its start is a part of it, because
            // it would otherwise begin the same header again.
            self.state = State::Message(MessageKind::Text);
            let mark = BEGINS.iter().find(|mark| self.held.starts_with(**mark));
            return Some(
                self.take(mark.map_or(0, |mark| mark.len()))
                    .unwrap_or_default(),
            );
        }

        let header = self.held[..end?].to_owned();
        if header_value(&header, "to=").is_some() {
            self.state = State::Recipient;
            self.next_look = 0;
            return Some(vec![]);
        }

        self.held.drain(..header.len() + MESSAGE.len());
        if header_value(&header, "<|channel|>") != Some("analysis") {
            self.state = State::Message(MessageKind::Text);
            return Some(vec![]);
        }

        self.state = State::Message(MessageKind::Thought);
        self.thought.clear();
        match self.thoughts {
            Thoughts::Text => Some(text(THINK[0].to_owned())),
            Thoughts::Separate { .. } => Some(vec![]),
        }
    }

    /// Returns the text of a message of gpt-oss.
    fn message(&mut self, kind: MessageKind) -> Option<Vec<ReplyPart>> {
        let ends = MESSAGE_ENDS
            .iter()
            .filter_map(|mark| Some((self.held.find(mark)?, *mark)));
        let Some((at, mark)) = ends.min_by_key(|(at, _)| *at) else {
            let bytes = self.held.len() - begun(&self.held, &MESSAGE_ENDS);
            let parts = self.take_message(kind, bytes);
            return (!parts.is_empty()).then_some(parts);
        };

        let mut parts = self.take_message(kind, at);
        parts.extend(self.message_end(kind));
        if mark != "<|start|>" {
            self.held.drain(..mark.len());
        }

        self.state = State::Header;
        Some(parts)
    }

    /// Removes the first `bytes` of the held text and returns them as a part of a message.
    fn take_message(&mut self, kind: MessageKind, bytes: usize) -> Vec<ReplyPart> {
        match (kind, &self.thoughts) {
            (MessageKind::Thought, Thoughts::Separate { .. }) => self.take_thought(bytes),
            (MessageKind::Thought, Thoughts::Text) | (MessageKind::Text, _) => {
                self.take(bytes).unwrap_or_default()
            }
        }
    }

    /// Returns the text to add at the end of a message.
    fn message_end(&self, kind: MessageKind) -> Vec<ReplyPart> {
        match (kind, &self.thoughts) {
            (MessageKind::Thought, Thoughts::Text) => text("</think>\n".to_owned()),
            (MessageKind::Thought, Thoughts::Separate { .. }) | (MessageKind::Text, _) => vec![],
        }
    }

    /// Reads a call of gpt-oss.
    fn recipient(&mut self) -> Option<Vec<ReplyPart>> {
        if self.held.len() < self.next_look {
            return None;
        }
        self.next_look = self.held.len() + self.held.len() / 8;
        self.certain_recipient()
    }

    /// Returns the call of gpt-oss if it is certain, or its text if it is none.
    fn certain_recipient(&mut self) -> Option<Vec<ReplyPart>> {
        match self.harmony_call(&self.held, Arrival::Some) {
            Ok((call, bytes)) => Some(self.accept(vec![call], bytes)),
            Err(CallFault::Open(_)) => None,
            Err(CallFault::Wrong(_)) => {
                let read = |text: &str| self.harmony_call(text, Arrival::Some).map(drop);
                let (fault, _) = first_fault(&self.held, read);
                Some(self.reject_mark("<|channel|>", fault))
            }
        }
    }

    /// Reads a header and the call after it, and returns the call and its end.
    fn harmony_call(&self, text: &str, arrival: Arrival) -> Parsed<(ToolCall, usize)> {
        let mut cursor = Cursor::new(text, 0);
        let header = cursor.until("<|message|>")?;
        let recipient = header_value(header, "to=").unwrap_or_default();
        if !is_whole(header, recipient) {
            return wrong("its header does not have the form of a call");
        }
        if self.tools.names().next().is_none() {
            return wrong("there are no functions");
        }
        let Some(name) = recipient.strip_prefix("functions.") else {
            return wrong(format!("its recipient {recipient:?} is not a function"));
        };

        cursor.skip_space();
        if cursor.rest().is_empty() {
            return Err(VALUE_NOT_CLOSED);
        }

        let arguments = cursor.object()?;
        let call = named(None, name, arguments)?;
        let end = cursor.at;
        cursor.skip_space();
        for mark in ["<|call|>", "<|end|>", "<|return|>"] {
            if cursor.eat(mark) {
                return Ok((call, cursor.at));
            }
        }

        let ends_reply = arrival == Arrival::All && cursor.rest().is_empty();
        if ends_reply || cursor.rest().starts_with("<|start|>") {
            return Ok((call, end));
        }
        if MESSAGE_ENDS.iter().any(|mark| cursor.may_become(mark)) {
            return Err(NOT_CLOSED);
        }

        wrong("there is text after its arguments")
    }

    /// Removes the first `bytes` of the held text and returns them, or `None` if there are none.
    fn take(&mut self, bytes: usize) -> Option<Vec<ReplyPart>> {
        let rest = self.held.split_off(bytes);
        let taken = std::mem::replace(&mut self.held, rest);
        self.at_start &= taken.trim().is_empty();
        (!taken.is_empty()).then(|| text(taken))
    }
}

/// Returns the position at the start of the body of a call.
fn body_start<'t>(syntax: &Syntax, text: &'t str) -> Cursor<'t> {
    let start = match syntax.place {
        CallsPlace::Anywhere => syntax.opens.len(),
        CallsPlace::Start => 0,
    };
    // The mark itself may not have arrived completely.
    Cursor::new(text, start.min(text.len()))
}

/// Returns the fault of the shortest beginning of a text that no continuation can turn into a call,
/// and the end of this beginning.
///
/// A longer text may show another fault, and how much of it has arrived depends on the division of
/// the reply. `text` itself must have such a fault. All texts that continue a wrong one are wrong,
/// so the shortest one is found by bisection.
fn first_fault(text: &str, read: impl Fn(&str) -> Parsed<()>) -> (CallFault, usize) {
    let is_wrong = |end: usize| matches!(read(&text[..end]), Err(CallFault::Wrong(_)));
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let first = ends.partition_point(|end| !is_wrong(*end));
    let end = ends.get(first).copied().unwrap_or(text.len());
    let fault = read(&text[..end]).err().unwrap_or(NOT_CLOSED);
    (fault, end)
}

/// Returns the state before the reply of a format with messages, or `None` for other formats.
fn initial(syntaxes: &[&'static Syntax], prompt: &str) -> Option<State> {
    let harmony = syntaxes
        .iter()
        .any(|syntax| matches!(syntax.body, CallBody::Harmony));
    if !harmony {
        None
    } else if prompt.ends_with("<|message|>") {
        Some(State::Message(MessageKind::Text))
    } else {
        Some(State::Header)
    }
}

/// Returns an error for calls of a reply that was cut, because their last value may be incomplete.
///
/// Calls without arguments have no value that could be.
fn check_end(calls: &[ToolCall], end: ReplyEnd) -> Parsed<()> {
    let has_values = calls.iter().any(|call| !call.arguments.is_empty());
    match end {
        ReplyEnd::Cut if has_values => {
            wrong("the reply was cut, so a value in it may be incomplete")
        }
        ReplyEnd::Cut | ReplyEnd::Complete => Ok(()),
    }
}

/// Returns the word after a key in a header.
fn header_value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(key)?;
    let end = rest
        .find(|c: char| c.is_whitespace() || c == '<')
        .unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Returns true if the header of a message of gpt-oss names a channel, and continues after the
/// recipient as the format demands: with a mark, or with the type of the content. Otherwise the
/// recipient may be a part of a damaged name.
fn is_whole(header: &str, recipient: &str) -> bool {
    let after = header
        .split_once("to=")
        .and_then(|(_, rest)| rest.strip_prefix(recipient))
        .unwrap_or_default()
        .trim();
    let is_mark = |mark: &&str| after.starts_with(*mark);
    let is_type = !after.contains(|c: char| c.is_whitespace() || c == '<');
    let marks = ["<|channel|>", "<|constrain|>"];
    header.contains(marks[0]) && (is_type || marks.iter().any(is_mark))
}

/// Returns a text as a part, unless it is empty.
fn text(text: String) -> Vec<ReplyPart> {
    if text.is_empty() {
        vec![]
    } else {
        vec![ReplyPart::Text(text)]
    }
}

/// Returns the length of the longest end of a text with which one of the marks may start.
fn begun(text: &str, marks: &[&str]) -> usize {
    let tails = text.char_indices().map(|(at, _)| &text[at..]);
    let mut held = tails.filter(|tail| {
        marks
            .iter()
            .any(|mark| mark.len() > tail.len() && mark.starts_with(tail))
    });
    held.next().map_or(0, str::len)
}
