//! Where the user's lines come from: an editor at a terminal, or a pipe.

use std::io::{self, BufRead, IsTerminal, Read};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::Args;
use super::complete::ChatHelper;
use super::history::History;
use crate::failure::Failure;
use crate::terminal;

/// What a user did.
pub(super) enum Line {
    /// A line, without its end.
    Text(String),
    /// A message of several lines, which is never a command.
    Message(String),
    /// Ctrl-C on a line.
    Interrupted,
    /// Bytes at a terminal that are no text.
    NoText,
    /// There are no more lines.
    End,
}

/// The editor of lines at a terminal.
pub(super) type LineEditor = Editor<ChatHelper, FileHistory>;

pub(super) enum Input {
    Terminal(Box<LineEditor>, History),
    Pipe,
}

/// The prompts of the line editor: before a message, and before its further lines.
const PROMPT: &str = "> ";
const MORE: &str = "... ";
/// Begins and ends a message of several lines, as in ollama.
const FENCE: &str = "\"\"\"";
/// Bytes of the longest line of a pipe.
const LONGEST: u64 = 1 << 26;

impl Input {
    pub(super) fn open(args: &Args) -> Result<Input, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Input::Pipe);
        }
        terminal::remember();
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .build();
        let mut editor = LineEditor::with_config(config).map_err(fault)?;
        editor.set_helper(Some(ChatHelper));
        let history = History::load(args, &mut editor);
        Ok(Input::Terminal(Box::new(editor), history))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(..))
    }

    /// Waits for a line, or for all lines of a message that begins with `"""`.
    pub(super) fn read(&mut self) -> Result<Line, Failure> {
        let line = self.line(PROMPT)?;
        let Line::Text(first) = line else {
            return Ok(line);
        };
        let Some(begun) = first.strip_prefix(FENCE) else {
            return Ok(Line::Text(first));
        };
        if let Some(whole) = begun.trim_end().strip_suffix(FENCE) {
            return Ok(Line::Message(whole.to_owned()));
        }
        // A line with nothing but the mark is not part of the message.
        let mut lines: Vec<String> = Some(begun.to_owned())
            .filter(|begun| !begun.is_empty())
            .into_iter()
            .collect();
        let mut bytes = 0;
        loop {
            let next = match self.line(MORE)? {
                Line::Text(next) => next,
                Line::End if !self.is_terminal() => {
                    return Err(Failure::Input(format!(
                        "the message that {FENCE} begins has no {FENCE} at its end"
                    )));
                }
                other => return Ok(other),
            };
            if let Some(last) = next.trim_end().strip_suffix(FENCE) {
                lines.extend(Some(last.to_owned()).filter(|last| !last.is_empty()));
                return Ok(Line::Message(lines.join("\n")));
            }
            bytes += next.len() as u64;
            lines.push(next);
            if bytes > LONGEST {
                return Err(Failure::Input(format!(
                    "a message has more than {} MiB",
                    LONGEST >> 20
                )));
            }
        }
    }

    /// Waits for a line.
    fn line(&mut self, prompt: &str) -> Result<Line, Failure> {
        let Input::Terminal(editor, history) = self else {
            return piped();
        };
        match editor.readline(prompt) {
            Ok(line) => {
                history.add(editor, &line);
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Ok(Line::NoText)
            }
            Err(error) => Err(fault(error)),
        }
    }
}

fn fault(error: ReadlineError) -> Failure {
    Failure::Runtime(format!("cannot read from the terminal: {error}"))
}

/// The next line of standard input.
fn piped() -> Result<Line, Failure> {
    let mut bytes = vec![];
    let read = io::stdin()
        .lock()
        .take(LONGEST + 1)
        .read_until(b'\n', &mut bytes);
    read.map_err(|error| Failure::Input(format!("cannot read standard input: {error}")))?;
    if bytes.is_empty() {
        return Ok(Line::End);
    }
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::Input(format!(
            "a line of standard input has more than {} MiB",
            LONGEST >> 20
        )));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!(
            "a line of standard input is not UTF-8: byte {at} begins no character"
        ))
    })?;
    let line = text
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(Line::Text(line.unwrap_or(&text).to_owned()))
}
