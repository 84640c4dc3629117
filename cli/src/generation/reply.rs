//! Printing of a reply while it is generated.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::ops::ControlFlow;

use serde_json::{Value, json};
use warpwright_engine::{Generation, LogProbabilities, TextFragment};
use warpwright_model::chat::{CallStream, ReplyEnd, ReplyPart, ToolCall};
use warpwright_model::{TextEnding, TextStream, Tokenizer};

use crate::failure::Failure;
use crate::generation::sampling;
use warpwright_emu::interrupt;
use warpwright_emu::terminal::{printable, say};

/// The form in which each token is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyFormat {
    /// The text of the token.
    Text,
    /// The id of the token. All ids are in one line.
    Ids,
    /// A line of JSON with the id and the text.
    JsonLines,
    Nothing,
}

/// A writer of a reply to standard output, which it keeps locked.
pub(crate) struct ReplyPrinter<'a> {
    out: StdoutLock<'static>,
    format: ReplyFormat,
    /// Whether an id was printed, so that the next one needs a space.
    has_ids: bool,
    /// The parser of tool calls, if the model was given tools.
    call_stream: Option<CallStream<'a>>,
    /// The parts of the reply that the parser has found so far.
    parts: ReplyParts,
    /// Whether the text that was printed does not end with a line break.
    in_line: bool,
}

/// The parts of a reply that may call tools.
#[derive(Debug, Default)]
pub(crate) struct ReplyParts {
    /// The text outside the calls.
    pub(crate) content: String,
    pub(crate) calls: Vec<ToolCall>,
    /// A sentence for each mark of a call that no valid call follows.
    pub(crate) problems: Vec<String>,
}

/// A reply of the model.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    /// The parts of the text, if the model was given tools.
    pub(crate) parts: Option<ReplyParts>,
}

impl<'a> ReplyPrinter<'a> {
    /// Locks standard output.
    pub(crate) fn new(format: ReplyFormat) -> ReplyPrinter<'a> {
        ReplyPrinter {
            out: io::stdout().lock(),
            format,
            has_ids: false,
            call_stream: None,
            parts: ReplyParts::default(),
            in_line: true,
        }
    }

    /// Returns the printer with a parser that separates tool calls from text.
    pub(crate) fn with_calls(self, call_stream: Option<CallStream<'a>>) -> ReplyPrinter<'a> {
        ReplyPrinter {
            call_stream,
            ..self
        }
    }

    /// Prints a token.
    fn piece(&mut self, piece: &TextFragment<'_>) -> Result<(), Failure> {
        let TextFragment {
            token,
            text,
            probabilities,
            ..
        } = *piece;
        if let Some(call_stream) = &mut self.call_stream {
            for part in call_stream.push(text) {
                self.part(part)?;
            }
        }
        match self.format {
            // The parser has printed the text, except the part that may turn out to be a call.
            ReplyFormat::Text if self.call_stream.is_some() => Ok(()),
            ReplyFormat::Text => self.text(text),
            ReplyFormat::Ids => {
                let separator = if self.has_ids { " " } else { "" };
                self.has_ids = true;
                self.text(&format!("{separator}{token}"))
            }
            ReplyFormat::JsonLines => {
                let mut line = json!({ "token": token, "text": text });
                if let Some(LogProbabilities { chosen, best }) = probabilities {
                    line["logprob"] = json!(chosen);
                    line["top_logprobs"] = json!(best);
                }
                self.text(&format!("{line}\n"))
            }
            ReplyFormat::Nothing => Ok(()),
        }
    }

    /// Keeps a part of a reply, and prints it if text is printed. A call is printed on a separate
    /// line.
    fn part(&mut self, part: ReplyPart) -> Result<(), Failure> {
        let shown = match part {
            // The parser does not separate thoughts from text.
            ReplyPart::Text(text) | ReplyPart::Reasoning(text) => {
                self.parts.content.push_str(&text);
                text
            }
            ReplyPart::Call(call) => {
                let line_break = if self.in_line { "\n" } else { "" };
                let line = format!("{line_break}{}\n", call_line(&call));
                self.parts.calls.push(call);
                line
            }
            ReplyPart::NoCall { mark, problem } => {
                self.parts
                    .problems
                    .push(format!("{mark} does not begin a tool call: {problem}"));
                return Ok(());
            }
        };
        if self.format == ReplyFormat::Text {
            self.in_line = !shown.ends_with('\n');
            self.text(&shown)?;
        }
        Ok(())
    }

    /// Prints the remaining text and ends the line. Returns the parts of the reply if there are
    /// tools.
    fn end_parts(
        &mut self,
        rest: &str,
        ending: &TextEnding,
    ) -> Result<Option<ReplyParts>, Failure> {
        let Some(mut call_stream) = self.call_stream.take() else {
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
        for part in call_stream.push(rest) {
            self.part(part)?;
        }
        for part in call_stream.finish(end) {
            self.part(part)?;
        }

        if self.format == ReplyFormat::Text {
            if self.in_line {
                self.text("\n")?;
            }
            for problem in &self.parts.problems {
                say(format!("{problem}; it is shown as text"));
            }
        }

        Ok(Some(std::mem::take(&mut self.parts)))
    }

    /// Writes a text and flushes it. If standard output is a terminal, control characters are
    /// escaped.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let shown = if self.out.is_terminal() {
            printable(text)
        } else {
            text.into()
        };
        self.out.write_all(shown.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// Prints the remaining text and ends the line.
    fn end(&mut self, rest: &str) -> Result<(), Failure> {
        match self.format {
            ReplyFormat::Text => self.text(&format!("{rest}\n")),
            ReplyFormat::Ids => self.text("\n"),
            ReplyFormat::JsonLines if !rest.is_empty() => {
                self.text(&format!("{}\n", json!({ "text": rest })))
            }
            ReplyFormat::JsonLines | ReplyFormat::Nothing => Ok(()),
        }
    }
}

impl Reply {
    /// Prints tokens as they are generated, and returns the reason why they ended.
    ///
    /// `each` is called for each token before it is printed. Ctrl-C ends the reply.
    ///
    /// # Errors
    /// Returns an error if the decoder fails or standard output cannot be written.
    pub(crate) fn print(
        &mut self,
        tokens: Generation<'_>,
        stream: &mut TextStream<'_>,
        printer: &mut ReplyPrinter<'_>,
        mut each: impl FnMut(&TextFragment<'_>),
    ) -> Result<TextEnding, Failure> {
        tokens.read_into(stream, |piece| {
            each(&piece);
            self.tokens.push(piece.token);
            self.text.push_str(piece.text);
            printer.piece(&piece)?;

            // Lines of JSON contain the log-probabilities already.
            if let Some(probabilities) = piece.probabilities
                && printer.format != ReplyFormat::JsonLines
            {
                say(sampling::line(piece.token, probabilities));
            }

            Ok(if interrupt::check().is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })
    }

    /// Prints the text that the stream has not released yet, and returns the reason why the reply
    /// ended.
    ///
    /// `why` is the reason why generation ended. The stream may know an earlier one, such as a stop
    /// string.
    pub(crate) fn finish(
        &mut self,
        stream: TextStream<'_>,
        printer: &mut ReplyPrinter<'_>,
        why: TextEnding,
    ) -> Result<TextEnding, Failure> {
        let (rest, ending) = stream.finish(why);
        self.text.push_str(&rest);
        self.parts = printer.end_parts(&rest, &ending)?;
        // With tools, `end_parts` has printed the remaining text.
        if self.parts.is_none() || printer.format != ReplyFormat::Text {
            printer.end(&rest)?;
        }
        Ok(ending)
    }
}

/// Returns the line that shows a tool call.
fn call_line(call: &ToolCall) -> String {
    format!(
        "[calls {} {}]",
        call.name,
        Value::from(call.arguments.clone())
    )
}

/// Returns the reason why a text ended, in a few words.
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

/// Returns the reason why a text ended, for `--json`.
pub(crate) fn end_json(ending: &TextEnding, words: Option<&Tokenizer>) -> Value {
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
