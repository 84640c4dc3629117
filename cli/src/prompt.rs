//! The prompt, wherever the user has it: an argument, a file, standard input, or token numbers.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use warpwright_engine::{Model, Tokenizer};

use crate::failure::Failure;
use crate::terminal::say;

// The arguments before these may be under a heading.
#[derive(clap::Args)]
#[command(next_help_heading = None::<&'static str>)]
#[group(multiple = false)]
pub(crate) struct Prompt {
    /// Text to continue, in quotes; piped text goes before it [default: standard input]
    #[arg(value_name = "PROMPT")]
    text: Option<String>,
    /// Text to continue, as an option; - reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// File with the text to continue, in UTF-8 (its last line break is dropped)
    #[arg(short = 'f', long, alias = "file", value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Token ids to continue, such as 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = id)]
    prompt_ids: Option<Vec<u32>>,
}

/// A prompt that has been read.
pub(crate) enum Source {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// Reads the prompt.
    ///
    /// Standard input is read for `-`, and where only the first argument or nothing is given, unless it is a terminal.
    /// The other options ignore it, so that they work in a loop that reads lines of standard input.
    ///
    /// # Errors
    /// Returns an error if there is no prompt, or if it cannot be read.
    pub(crate) fn read(&self) -> Result<Source, Failure> {
        let text = match self {
            Prompt {
                prompt_ids: Some(ids),
                ..
            } => return Ok(Source::Ids(ids.clone())),
            Prompt {
                prompt_file: Some(path),
                ..
            } if path != Path::new("-") => file(PROMPT, path)?,
            Prompt {
                prompt: Some(text), ..
            }
            | Prompt {
                text: Some(text), ..
            } if text == "-" => standard_input(PROMPT)?,
            Prompt {
                prompt: Some(text), ..
            } => text.clone(),
            Prompt {
                prompt_file: Some(_),
                ..
            } => standard_input(PROMPT)?,
            Prompt {
                text: Some(text), ..
            } => after(&piped()?, text),
            Prompt { text: None, .. } => Some(piped()?)
                .filter(|text| !text.is_empty())
                .ok_or_else(none)?,
        };
        Ok(Source::Text(text))
    }

    /// Returns the first argument after the model, if it is the prompt.
    pub(crate) fn positional(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

fn none() -> Failure {
    Failure::Input(
        "there is no prompt: give a text after the model, or --prompt TEXT, --prompt-file FILE or a pipe; to have a \
         conversation, use `warpwright chat`"
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

/// Returns the text of standard input, or nothing if it is a terminal. If its writer is silent for a while, prints what
/// the program waits for.
fn piped() -> Result<String, Failure> {
    if io::stdin().is_terminal() {
        return Ok(String::new());
    }
    let (done, wait) = mpsc::channel::<()>();
    let reminder = thread::Builder::new().spawn(move || {
        if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            say("waiting for the end of standard input, which is part of the prompt; --prompt TEXT does not read it");
        }
    });
    let text = standard_input(PROMPT);
    // The reminder is only for readers who wait.
    drop(done);
    drop(reminder);
    text
}

/// The time that standard input may take without a word.
const PATIENCE: Duration = Duration::from_secs(2);

impl Source {
    pub(crate) fn tokens(&self, words: Option<&Tokenizer>) -> Result<Vec<u32>, Failure> {
        match (self, words) {
            (Source::Ids(ids), _) => Ok(ids.clone()),
            (Source::Text(text), Some(words)) => Ok(words.encode(text)?),
            (Source::Text(_), None) => unreachable!("a text is read with a tokenizer"),
        }
    }
}

/// The tokenizer of a model, with its warnings said.
pub(crate) fn tokenizer(model: &Model) -> Result<Tokenizer, Failure> {
    let words = model.tokenizer()?;
    words
        .warnings()
        .iter()
        .for_each(|warning| say(format!("warning: {warning}")));
    Ok(words)
}

/// What a text is called that is continued.
const PROMPT: &str = "the prompt";

/// The text of a file; `what` it is, for errors.
pub(crate) fn file(what: &str, path: &Path) -> Result<String, Failure> {
    whole(what, &path.display().to_string(), fs::read(path))
}

/// The text of standard input; `what` it is, for errors.
pub(crate) fn standard_input(what: &str) -> Result<String, Failure> {
    let mut bytes = vec![];
    let read = io::stdin().lock().read_to_end(&mut bytes);
    whole(what, "standard input", read.map(|_| bytes))
}

/// Tokens' numbers with commas or white space between them.
pub(crate) fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let numbers = text
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|number| !number.is_empty());
    numbers.map(id).collect()
}

/// The text of what was read, without its last line break.
fn whole(what: &str, name: &str, bytes: io::Result<Vec<u8>>) -> Result<String, Failure> {
    let wrong =
        |problem: String| Failure::Input(format!("cannot read {what} from {name}: {problem}"));
    let text =
        String::from_utf8(bytes.map_err(|error| wrong(error.to_string()))?).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            wrong(format!("it is not UTF-8, byte {at} begins no character"))
        })?;
    let line = text
        .strip_suffix('\n')
        .map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(line.unwrap_or(&text).to_owned())
}

/// A token's number, also after a space.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    let text = text.trim();
    text.parse().map_err(|_| {
        format!("\"{text}\" is no token: tokens are whole numbers from 0 on, such as 1,5,9")
    })
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
            "cannot read the prompt from x: it is not UTF-8, byte 1 begins no character"
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
