//! What a model writes, on its way to standard output.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use warpwright_engine::chat::{CallStream, Part, ReplyEnd, ToolCall};
use warpwright_engine::{
    Generation, LogProbabilities, TextEnding, TextFragment, TextStream, Tokenizer,
};

use crate::failure::Failure;
use crate::terminal::{printable, say};
use crate::{interrupt, sampling};

/// What to print of each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Its text.
    Text,
    /// Its number, in a line with those of the others.
    Ids,
    /// Both, as a line of JSON.
    JsonLines,
    /// Nothing.
    Nothing,
}

/// Standard output.
pub(crate) struct Printer<'a> {
    out: StdoutLock<'static>,
    form: Form,
    /// Whether a number was printed.
    begun: bool,
    /// Finds calls of tools, if there are any to call.
    calls: Option<CallStream<'a>>,
    /// What was found.
    called: Called,
    /// Whether the line of the text goes on.
    in_line: bool,
}

/// A reply that may call tools.
#[derive(Debug, Default)]
pub(crate) struct Called {
    /// What is said beside the calls.
    pub(crate) said: String,
    pub(crate) calls: Vec<ToolCall>,
    /// The reasons why marks of calls do not begin a call, a sentence each.
    pub(crate) problems: Vec<String>,
}

/// What was read of a generation.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    /// Where there are tools: the parts of the text.
    pub(crate) called: Option<Called>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(form: Form) -> Printer<'a> {
        Printer {
            out: io::stdout().lock(),
            form,
            begun: false,
            calls: None,
            called: Called::default(),
            in_line: true,
        }
    }

    /// Tells calls of tools from text.
    pub(crate) fn with_calls(self, calls: Option<CallStream<'a>>) -> Printer<'a> {
        Printer { calls, ..self }
    }

    fn piece(&mut self, piece: &TextFragment<'_>) -> Result<(), Failure> {
        let TextFragment {
            token,
            text,
            probabilities,
            ..
        } = *piece;
        if let Some(parts) = self.calls.as_mut().map(|calls| calls.push(text)) {
            parts.into_iter().try_for_each(|part| self.part(part))?;
        }
        match self.form {
            Form::Text if self.calls.is_some() => Ok(()),
            Form::Text => self.text(text),
            Form::Ids => {
                let separator = if std::mem::replace(&mut self.begun, true) {
                    " "
                } else {
                    ""
                };
                self.text(&format!("{separator}{token}"))
            }
            Form::JsonLines => {
                let mut line = json!({ "token": token, "text": text });
                if let Some(LogProbabilities { chosen, best }) = probabilities {
                    line["logprob"] = json!(chosen);
                    line["top_logprobs"] = json!(best);
                }
                self.text(&format!("{line}\n"))
            }
            Form::Nothing => Ok(()),
        }
    }

    /// Keeps a part of a reply, and prints it where text is printed: a call in a line of its own.
    fn part(&mut self, part: Part) -> Result<(), Failure> {
        let shown = match part {
            Part::Text(text) => {
                self.called.said.push_str(&text);
                text
            }
            Part::Call(call) => {
                let line = format!(
                    "{}{}\n",
                    if self.in_line { "\n" } else { "" },
                    in_words(&call)
                );
                self.called.calls.push(call);
                line
            }
            Part::NoCall { mark, problem } => {
                self.called
                    .problems
                    .push(format!("{mark} does not begin a tool call: {problem}"));
                return Ok(());
            }
        };
        if self.form == Form::Text {
            self.in_line = !shown.ends_with('\n');
            self.text(&shown)?;
        }
        Ok(())
    }

    /// Prints the remaining text and ends the line. Returns the parts of the reply if there are tools.
    fn end_parts(&mut self, rest: &str, ending: &TextEnding) -> Result<Option<Called>, Failure> {
        let Some(mut calls) = self.calls.take() else {
            return Ok(None);
        };
        let end = match ending {
            TextEnding::EndToken(_) | TextEnding::Grammar => ReplyEnd::Complete,
            // The model did not end the reply, so the last value of a call may be incomplete.
            TextEnding::StopString(_)
            | TextEnding::Limit
            | TextEnding::ContextFull
            | TextEnding::Interrupted => ReplyEnd::Cut,
        };
        let mut parts = calls.push(rest);
        parts.extend(calls.finish(end));
        parts.into_iter().try_for_each(|part| self.part(part))?;
        if self.form == Form::Text && self.in_line {
            self.text("\n")?;
        }
        if self.form == Form::Text {
            self.called
                .problems
                .iter()
                .for_each(|problem| say(format!("{problem}; it is shown as text")));
        }
        Ok(Some(std::mem::take(&mut self.called)))
    }

    /// Writes a text at once; a terminal gets no control characters.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let shown = if self.out.is_terminal() {
            printable(text)
        } else {
            text.into()
        };
        self.out.write_all(shown.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// What was held back, and a line break.
    fn end(&mut self, rest: &str) -> Result<(), Failure> {
        match self.form {
            Form::Text => self.text(&format!("{rest}\n")),
            Form::Ids => self.text("\n"),
            Form::JsonLines if !rest.is_empty() => {
                self.text(&format!("{}\n", json!({ "text": rest })))
            }
            Form::JsonLines | Form::Nothing => Ok(()),
        }
    }
}

impl Reply {
    /// Prints tokens as they come, until there are no more or the user interrupts, and gives why they ended. `each`
    /// hears of them first.
    pub(crate) fn print(
        &mut self,
        tokens: Generation<'_>,
        stream: &mut TextStream<'_>,
        printer: &mut Printer<'_>,
        mut each: impl FnMut(&TextFragment<'_>),
    ) -> Result<TextEnding, Failure> {
        stream.read(tokens, |piece| {
            each(&piece);
            self.tokens.push(piece.token);
            self.text.push_str(piece.text);
            printer.piece(&piece)?;
            if let (Some(found), false) = (piece.probabilities, printer.form == Form::JsonLines) {
                say(sampling::line(piece.token, found));
            }
            Ok(if interrupt::check().is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })
    }

    /// Prints what was held back. Gives why the text ended: `why`, unless it had ended before.
    pub(crate) fn finish(
        &mut self,
        stream: TextStream<'_>,
        printer: &mut Printer<'_>,
        why: TextEnding,
    ) -> Result<TextEnding, Failure> {
        let (rest, ending) = stream.finish(why);
        self.text.push_str(&rest);
        self.called = printer.end_parts(&rest, &ending)?;
        if self.called.is_none() || printer.form != Form::Text {
            printer.end(&rest)?;
        }
        Ok(ending)
    }
}

/// A call as people read it.
fn in_words(call: &ToolCall) -> String {
    format!(
        "[calls {} {}]",
        call.name,
        Value::from(call.arguments.clone())
    )
}

/// Why a text ended, in a few words.
pub(crate) fn why(ending: &TextEnding, words: Option<&Tokenizer>) -> String {
    match ending {
        TextEnding::EndToken(id) => match words.and_then(|words| words.control(*id)) {
            Some(spelling) => format!("end of text ({spelling})"),
            None => format!("end of text (token {id})"),
        },
        TextEnding::StopString(stop) => format!("stop string {stop:?}"),
        TextEnding::Limit => "limit of -n".to_owned(),
        TextEnding::ContextFull => "context full".to_owned(),
        TextEnding::Grammar => "end of the grammar".to_owned(),
        TextEnding::Interrupted => "interrupted".to_owned(),
    }
}

/// The same for programs.
pub(crate) fn end(ending: &TextEnding, words: Option<&Tokenizer>) -> Value {
    match ending {
        TextEnding::EndToken(id) => {
            let spelling = words.and_then(|words| words.control(*id));
            json!({ "reason": "end_token", "token": id, "spelling": spelling })
        }
        TextEnding::StopString(stop) => json!({ "reason": "stop_string", "string": stop }),
        TextEnding::Limit => json!({ "reason": "limit" }),
        TextEnding::ContextFull => json!({ "reason": "context_full" }),
        TextEnding::Grammar => json!({ "reason": "grammar" }),
        TextEnding::Interrupted => json!({ "reason": "interrupted" }),
    }
}
