//! The prompt of `run`: an argument, an option, a file, standard input or token ids.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use warpwright_model::{Model, Tokenizer};

use crate::failure::Failure;
use warpwright_emu::terminal::say;

/// The ways to pass a prompt.
// The heading is reset, because a struct of options before this one may have set another.
#[derive(clap::Args)]
#[command(next_help_heading = None::<&'static str>)]
#[group(multiple = false)]
pub(crate) struct PromptArgs {
    /// Text to continue, in quotes; piped text goes before it [default: standard input]
    #[arg(value_name = "PROMPT")]
    text: Option<String>,
    /// Text to continue, given as an option; - reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// File with the text to continue, in UTF-8
    ///
    /// One line break at the end of the file is not part of the prompt.
    #[arg(short = 'f', long, alias = "file", value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Token ids to continue instead of a text, such as 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = id)]
    prompt_ids: Option<Vec<u32>>,
}

/// A prompt that has been read.
pub(crate) enum PromptSource {
    Text(String),
    Ids(Vec<u32>),
}

impl PromptArgs {
    /// Reads the prompt.
    ///
    /// Standard input is read for `-`. It is also read if there is only the positional argument or
    /// no prompt at all, unless it is a terminal. The options do not read it, because a shell loop
    /// that calls the program may read its own lines from it.
    ///
    /// # Errors
    /// Returns an error if there is no prompt, or if it cannot be read.
    pub(crate) fn read(&self) -> Result<PromptSource, Failure> {
        let text = match self {
            PromptArgs {
                prompt_ids: Some(ids),
                ..
            } => return Ok(PromptSource::Ids(ids.clone())),
            PromptArgs {
                prompt_file: Some(path),
                ..
            } if path != Path::new("-") => file(PROMPT, path)?,
            PromptArgs {
                prompt: Some(text), ..
            }
            | PromptArgs {
                text: Some(text), ..
            } if text == "-" => standard_input(PROMPT)?,
            PromptArgs {
                prompt: Some(text), ..
            } => text.clone(),
            PromptArgs {
                prompt_file: Some(_),
                ..
            } => standard_input(PROMPT)?,
            PromptArgs {
                text: Some(text), ..
            } => after(&piped()?, text),
            PromptArgs { text: None, .. } => Some(piped()?)
                .filter(|text| !text.is_empty())
                .ok_or_else(no_prompt)?,
        };
        Ok(PromptSource::Text(text))
    }

    /// Returns the positional prompt, if there is one.
    pub(crate) fn positional(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

fn no_prompt() -> Failure {
    Failure::Input(
        "there is no prompt: add a text after the model, use --prompt TEXT or --prompt-file FILE, or pipe a text in; \
         `warpwright chat` starts a conversation"
            .to_owned(),
    )
}

/// Returns the piped text and the prompt after it, with an empty line between them.
fn after(piped: &str, prompt: &str) -> String {
    if piped.is_empty() {
        prompt.to_owned()
    } else {
        format!("{piped}\n\n{prompt}")
    }
}

/// Returns the text of standard input, or an empty text if it is a terminal.
///
/// If the pipe stays silent for [`PATIENCE`], a line on stderr explains what the program is waiting
/// for.
fn piped() -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        return Ok(String::new());
    }

    let (done, wait) = mpsc::channel::<()>();
    let reminder = thread::Builder::new().spawn(move || {
        if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            say(
                "waiting for the end of standard input, which is part of the prompt; --prompt TEXT does not read it",
            );
        }
    });
    let text = standard_input(PROMPT);

    // Ends the thread before it prints its line.
    drop(done);
    drop(reminder);
    text
}

/// The time after which a silent pipe is explained.
const PATIENCE: Duration = Duration::from_secs(2);

impl PromptSource {
    /// Returns the tokens of the prompt.
    ///
    /// # Errors
    /// Returns an error if the text cannot be tokenized.
    ///
    /// # Panics
    /// Panics if the prompt is a text and `tokenizer` is `None`.
    pub(crate) fn tokens(&self, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>, Failure> {
        match self {
            PromptSource::Ids(ids) => Ok(ids.clone()),
            PromptSource::Text(text) => {
                let tokenizer = tokenizer.expect("the caller makes a tokenizer for a text");
                Ok(tokenizer.encode(text)?)
            }
        }
    }
}

/// Returns the tokenizer of a model, after it prints the tokenizer's warnings.
///
/// # Errors
/// Returns an error if the model has no tokenizer or an unsupported one.
pub(crate) fn tokenizer(model: &Model) -> Result<Tokenizer, Failure> {
    let tokenizer = model.tokenizer()?;
    for warning in tokenizer.warnings() {
        say(format!("warning: {warning}"));
    }
    Ok(tokenizer)
}

/// Opens the tokenizer of a model without its weights, and prints the tokenizer's warnings.
///
/// # Errors
/// Returns an error if the model has no tokenizer or an unsupported one.
pub(crate) fn open_tokenizer(model: &Path) -> Result<Tokenizer, Failure> {
    let tokenizer = Tokenizer::open(model)?;
    for warning in tokenizer.warnings() {
        say(format!("warning: {warning}"));
    }
    Ok(tokenizer)
}

/// The name of a prompt in error messages.
const PROMPT: &str = "the prompt";

/// Returns the text of a file without its last line break. `what` names the text in error messages.
pub(crate) fn file(what: &str, path: &Path) -> Result<String, Failure> {
    whole(what, &path.display().to_string(), fs::read(path))
}

/// Returns the text of standard input without its last line break. `what` names the text in error
/// messages.
pub(crate) fn standard_input(what: &str) -> Result<String, Failure> {
    let mut bytes = vec![];
    let read = io::stdin().lock().read_to_end(&mut bytes);
    whole(what, "standard input", read.map(|_| bytes))
}

/// Parses token ids that are separated by commas or white space.
pub(crate) fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let numbers = text
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|number| !number.is_empty());
    numbers.map(id).collect()
}

/// Returns the text of the bytes that were read, without its last line break.
fn whole(what: &str, name: &str, bytes: io::Result<Vec<u8>>) -> Result<String, Failure> {
    let wrong =
        |problem: String| Failure::Input(format!("cannot read {what} from {name}: {problem}"));
    let text =
        String::from_utf8(bytes.map_err(|error| wrong(error.to_string()))?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            wrong(format!("it is not valid UTF-8 at byte {at}"))
        })?;
    let line = text
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(line.unwrap_or(&text).to_owned())
}

/// Parses a token id. White space around it is ignored, so that `1, 5` works as a list.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("\"{text}\" is not a token id: expected a whole number, as in 1,5,9"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_loses_one_line_break() {
        for (bytes, text) in [
            ("a", "a"),
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("\n", ""),
            ("a\r", "a\r"),
        ] {
            let read = whole(PROMPT, "x", Ok(bytes.into()));
            assert_eq!(read.unwrap(), text, "{bytes:?}");
        }
        let Err(Failure::Input(sentence)) = whole(PROMPT, "x", Ok(vec![b'a', 0xff])) else {
            panic!()
        };
        assert_eq!(
            sentence,
            "cannot read the prompt from x: it is not valid UTF-8 at byte 1"
        );
    }

    #[test]
    fn a_prompt_follows_the_piped_text() {
        assert_eq!(after("", "Why?"), "Why?");
        assert_eq!(after("a\nb", "Why?"), "a\nb\n\nWhy?");
    }

    #[test]
    fn numbers_of_tokens() {
        assert_eq!([id("1"), id(" 2"), id("3 ")], [Ok(1), Ok(2), Ok(3)]);
        for text in ["", "-1", "1 2", "x", "4294967296"] {
            assert!(id(text).is_err(), "{text}");
        }
    }
}
