//! Reading of the user's lines, from an editor at a terminal or from a pipe.

use std::io::{self, BufRead, IsTerminal, Read};

use rustyline::error::ReadlineError;
use rustyline::{CompletionType, Config};

use super::args::Args;
use super::complete::{ChatHelper, LineEditor};
use super::history::LineHistory;
use crate::failure::Failure;
use crate::terminal::settings;

/// The result of reading a line.
pub(super) enum InputLine {
    /// A line without its line break.
    Text(String),
    /// A message of several lines. It is never a command.
    Message(String),
    /// Ctrl-C while the line was edited.
    Interrupted,
    /// Bytes that are not valid UTF-8, typed at a terminal.
    NoText,
    /// The end of the input.
    End,
}

/// The source of the user's lines.
pub(super) enum ChatInput {
    Terminal(Box<LineEditor>, LineHistory),
    Pipe,
}

/// The prompt of the line editor.
const PROMPT: &str = "> ";
/// The prompt for further lines of a message.
const MORE: &str = "... ";
/// The mark that begins and ends a message of several lines, as in Ollama.
const FENCE: &str = "\"\"\"";
/// The largest message in bytes.
const LONGEST: u64 = 1 << 26;

impl ChatInput {
    /// Opens the line editor if both standard streams are a terminal, and reads a pipe otherwise.
    ///
    /// # Errors
    /// Returns an error if the terminal cannot be used.
    pub(super) fn open(args: &Args) -> Result<ChatInput, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(ChatInput::Pipe);
        }

        settings::remember();
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .build();
        let mut editor = LineEditor::with_config(config).map_err(fault)?;
        editor.set_helper(Some(ChatHelper));
        let history = LineHistory::load(args, &mut editor);
        Ok(ChatInput::Terminal(Box::new(editor), history))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, ChatInput::Terminal(..))
    }

    /// Reads a line, or all lines of a message that begins with `"""`.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, or if a message is too long or has no end.
    pub(super) fn read(&mut self) -> Result<InputLine, Failure> {
        let line = self.line(PROMPT)?;
        let InputLine::Text(first) = line else {
            return Ok(line);
        };
        let Some(begun) = first.strip_prefix(FENCE) else {
            return Ok(InputLine::Text(first));
        };
        if let Some(whole) = begun.trim_end().strip_suffix(FENCE) {
            return Ok(InputLine::Message(whole.to_owned()));
        }

        // A line with nothing but the mark is not part of the message.
        let mut lines: Vec<String> = vec![];
        if !begun.is_empty() {
            lines.push(begun.to_owned());
        }

        let mut bytes = 0;
        loop {
            let next = match self.line(MORE)? {
                InputLine::Text(next) => next,
                InputLine::End if !self.is_terminal() => {
                    return Err(Failure::Input(format!(
                        "the last message begins with {FENCE} and has no {FENCE} at its end"
                    )));
                }
                other => return Ok(other),
            };
            if let Some(last) = next.trim_end().strip_suffix(FENCE) {
                if !last.is_empty() {
                    lines.push(last.to_owned());
                }
                return Ok(InputLine::Message(lines.join("\n")));
            }

            bytes += next.len() as u64;
            lines.push(next);
            if bytes > LONGEST {
                return Err(Failure::Input(format!(
                    "a message is larger than {} MiB",
                    LONGEST >> 20
                )));
            }
        }
    }

    /// Reads a single line.
    fn line(&mut self, prompt: &str) -> Result<InputLine, Failure> {
        let ChatInput::Terminal(editor, history) = self else {
            return piped();
        };
        match editor.readline(prompt) {
            Ok(line) => {
                history.add(editor, &line);
                Ok(InputLine::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(InputLine::Interrupted),
            Err(ReadlineError::Eof) => Ok(InputLine::End),
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Ok(InputLine::NoText)
            }
            Err(error) => Err(fault(error)),
        }
    }
}

fn fault(error: ReadlineError) -> Failure {
    Failure::Runtime(format!("cannot read from the terminal: {error}"))
}

/// Reads the next line of standard input.
fn piped() -> Result<InputLine, Failure> {
    let mut bytes = vec![];

    // A stream without line breaks, such as a binary file, must not fill the memory.
    let read = io::stdin()
        .lock()
        .take(LONGEST + 1)
        .read_until(b'\n', &mut bytes);
    read.map_err(|error| Failure::Input(format!("cannot read standard input: {error}")))?;
    if bytes.is_empty() {
        return Ok(InputLine::End);
    }

    if bytes.len() as u64 > LONGEST {
        return Err(Failure::Input(format!(
            "a line of standard input is larger than {} MiB",
            LONGEST >> 20
        )));
    }

    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!(
            "a line of standard input is not valid UTF-8 at byte {at}"
        ))
    })?;
    let line = text
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(InputLine::Text(line.unwrap_or(&text).to_owned()))
}
