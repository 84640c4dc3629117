//! The prompt, wherever the user has it: an argument, a file, standard input, or token numbers.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use warpwright_engine::{Model, Tokenizer};

use crate::failure::Failure;
use crate::terminal::say;

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Prompt {
    /// Text to continue; - reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// File with the text to continue, UTF-8; its last line break is left out
    #[arg(short = 'f', long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Tokens to continue, as they are: 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = id)]
    prompt_ids: Option<Vec<u32>>,
}

/// A prompt that has been read.
pub(crate) enum Source {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompt {
    /// Reads it, if it is not in the arguments.
    pub(crate) fn read(&self) -> Result<Source, Failure> {
        let text = match self {
            Prompt { prompt_ids: Some(ids), .. } => return Ok(Source::Ids(ids.clone())),
            Prompt { prompt_file: Some(path), .. } if path != Path::new("-") => file(PROMPT, path)?,
            Prompt { prompt: Some(text), .. } if text != "-" => text.clone(),
            _ => standard_input(PROMPT)?,
        };
        Ok(Source::Text(text))
    }
}

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
    words.warnings().iter().for_each(|warning| say(format!("warning: {warning}")));
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
    let numbers = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|number| !number.is_empty());
    numbers.map(id).collect()
}

/// The text of what was read, without its last line break.
fn whole(what: &str, name: &str, bytes: io::Result<Vec<u8>>) -> Result<String, Failure> {
    let wrong = |problem: String| Failure::Input(format!("cannot read {what} from {name}: {problem}"));
    let text = String::from_utf8(bytes.map_err(|error| wrong(error.to_string()))?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(format!("it is not UTF-8, byte {at} begins no character"))
    })?;
    let line = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text));
    Ok(line.unwrap_or(&text).to_owned())
}

/// A token's number, also after a space.
pub(crate) fn id(text: &str) -> Result<u32, String> {
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("\"{text}\" is no token: tokens are whole numbers from 0 on, such as 1,5,9"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_loses_one_line_break() {
        for (bytes, text) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("\n", ""), ("a\r", "a\r")]
        {
            let read = whole(PROMPT, "x", Ok(bytes.into()));
            assert_eq!(read.unwrap(), text, "{bytes:?}");
        }
        let Err(Failure::Input(sentence)) = whole(PROMPT, "x", Ok(vec![b'a', 0xff])) else { panic!() };
        assert_eq!(sentence, "cannot read the prompt from x: it is not UTF-8, byte 1 begins no character");
    }

    #[test]
    fn numbers_of_tokens() {
        assert_eq!([id("1"), id(" 2"), id("3 ")], [Ok(1), Ok(2), Ok(3)]);
        for text in ["", "-1", "1 2", "x", "4294967296"] {
            assert!(id(text).is_err(), "{text}");
        }
    }
}
