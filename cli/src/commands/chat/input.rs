//! Where the user's lines come from: an editor at a terminal, or a pipe.

use std::io::{self, BufRead, IsTerminal, Read};

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::Args;
use super::history::History;
use crate::failure::Failure;
use crate::terminal;

/// What a user did.
pub(super) enum Line {
    /// A line, without its end.
    Text(String),
    /// Ctrl-C on a line.
    Interrupted,
    /// Bytes at a terminal that are no text.
    NoText,
    /// There are no more lines.
    End,
}

pub(super) enum Input {
    Terminal(Box<DefaultEditor>, History),
    Pipe,
}

/// What an editor shows before a line.
const PROMPT: &str = "> ";
/// Bytes of the longest line of a pipe.
const LONGEST: u64 = 1 << 26;

impl Input {
    pub(super) fn open(args: &Args) -> Result<Input, Failure> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Input::Pipe);
        }
        terminal::remember();
        let mut editor = DefaultEditor::new().map_err(fault)?;
        let history = History::load(args, &mut editor);
        Ok(Input::Terminal(Box::new(editor), history))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(..))
    }

    /// Waits for a line.
    pub(super) fn line(&mut self) -> Result<Line, Failure> {
        let Input::Terminal(editor, history) = self else { return piped() };
        match editor.readline(PROMPT) {
            Ok(line) => {
                history.add(editor, &line);
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Ok(Line::NoText),
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
    let read = io::stdin().lock().take(LONGEST + 1).read_until(b'\n', &mut bytes);
    read.map_err(|error| Failure::Input(format!("cannot read standard input: {error}")))?;
    if bytes.is_empty() {
        return Ok(Line::End);
    }
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::Input(format!("a line of standard input has more than {} MiB", LONGEST >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!("a line of standard input is not UTF-8: byte {at} begins no character"))
    })?;
    let line = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(Line::Text(line.unwrap_or(&text).to_owned()))
}
