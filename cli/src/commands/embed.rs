//! `warpwright embed`: prints an embedding vector for each text.
//!
//! A vector is pooled from the hidden states after the last layer and the final norm. llama.cpp
//! pools the same tensor (`result_norm` in its graphs). Attention is causal, so only the hidden
//! state of the last token depends on the whole text.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::Model;

use crate::device;
use crate::failure::Failure;
use crate::model::adapter::AdapterArgs;
use crate::model::options::{ModelDeviceArgs, decoder};
use crate::prompt::source;
use crate::terminal::progress::Bar;
use warpwright_emu::terminal::{counted, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: ModelDeviceArgs,
    #[command(flatten)]
    adapter: AdapterArgs,
    #[command(flatten)]
    texts: TextArgs,
    /// Hidden states that are combined into the vector of a text
    #[arg(long, value_enum, default_value_t = Pooling::Mean)]
    pooling: Pooling,
    /// Keep the length of the vectors instead of scaling each to length 1
    #[arg(long)]
    no_normalize: bool,
    /// Print the vectors as one JSON object, with the tokens of each text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Options that select the texts. Without any of them, each line of standard input is a text.
#[derive(clap::Args)]
#[group(multiple = false)]
struct TextArgs {
    /// Text to embed, can be repeated; - reads one from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Vec<String>,
    /// File with one text per line, in UTF-8 [default: standard input]
    ///
    /// Blank lines have no vector. They are skipped, and a note on stderr lists their numbers.
    #[arg(short = 'f', long, alias = "file", value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Token ids to embed instead of a text, such as 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = source::id)]
    prompt_ids: Option<Vec<u32>>,
}

/// The way in which the hidden states of a text become one vector.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Pooling {
    /// The mean over all tokens of the text
    Mean,
    /// The hidden state of the last token
    Last,
}

/// The place of a text in the input, for messages and for the JSON output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextOrigin {
    /// The position of the text among the arguments, from 1.
    Argument(usize),
    /// The line number in the file or in standard input, from 1.
    Line(usize),
}

impl Display for TextOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextOrigin::Argument(number) => write!(f, "text {number}"),
            TextOrigin::Line(number) => write!(f, "line {number}"),
        }
    }
}

/// A text to embed.
#[derive(Debug, PartialEq, Eq)]
struct InputText {
    origin: TextOrigin,
    text: String,
}

/// The tokens of a text to embed.
struct InputTokens {
    origin: TextOrigin,
    ids: Vec<u32>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let texts = args.texts.read()?;
    let model = args.adapter.open(args.target.model.path()?)?;
    let inputs = args.texts.tokens(&model, &texts)?;
    let longest = inputs
        .iter()
        .map(|input| input.ids.len())
        .max()
        .unwrap_or(1);
    let ctx = args.target.context_length(&model, longest);
    check_lengths(&inputs, ctx)?;
    let context = device::open(args.target.device)?;
    let token_count = inputs.iter().map(|input| input.ids.len() as u64).sum();
    let options = Options::new(ctx, Launch::Graph);
    let mut decoder = decoder(&args.target, &context, &model, options, token_count)?;
    let bar = Bar::of_steps(inputs.len());
    let mut vectors = vec![];
    for input in &inputs {
        vectors.push(args.vector(&mut decoder, &input.ids)?);
        bar.set_position(vectors.len() as u64);
    }

    // Erase the bar before the vectors are printed, because both may share a terminal.
    drop(bar);
    let text = if args.json {
        args.object(&inputs, &vectors)
    } else {
        vectors.iter().map(|vector| line(vector)).collect()
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

impl TextArgs {
    /// Reads the texts. Returns an empty list if token ids were given instead.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, if it contains no text, or if an argument is
    /// empty.
    fn read(&self) -> Result<Vec<InputText>, Failure> {
        if self.prompt_ids.is_some() {
            return Ok(vec![]);
        }
        if !self.prompt.is_empty() {
            return self.arguments();
        }

        let lines = match &self.prompt_file {
            Some(file) if file != Path::new("-") => source::file("the texts", file)?,
            _ => {
                if io::stdin().is_terminal() {
                    say(
                        "reading texts from the terminal, one per line; end with Ctrl-D, or use -p TEXT",
                    );
                }
                source::standard_input("the texts")?
            }
        };
        let (texts, blank) = split_lines(&lines);
        if texts.is_empty() {
            return Err(Failure::Input(
                "there is no text: pass -p TEXT, or one text per line in -f FILE".to_owned(),
            ));
        }

        // A list from another program often has blank lines, so one of them does not reject the
        // list. The note has their numbers, because the vectors no longer match the lines one to
        // one.
        if !blank.is_empty() {
            say(skipped(&blank));
        }

        Ok(texts)
    }

    /// Returns the texts of the `-p` options.
    fn arguments(&self) -> Result<Vec<InputText>, Failure> {
        let mut texts = vec![];
        for (argument, number) in self.prompt.iter().zip(1..) {
            let text = if argument == "-" {
                source::standard_input("the text")?
            } else {
                argument.clone()
            };
            if text.is_empty() {
                return Err(Failure::Input(format!(
                    "text {number} is empty: leave this -p out"
                )));
            }
            texts.push(InputText {
                origin: TextOrigin::Argument(number),
                text,
            });
        }
        Ok(texts)
    }

    /// Returns the tokens of each text, or the ids of `--prompt-ids`.
    fn tokens(&self, model: &Model, texts: &[InputText]) -> Result<Vec<InputTokens>, Failure> {
        if let Some(ids) = &self.prompt_ids {
            return Ok(vec![InputTokens {
                origin: TextOrigin::Argument(1),
                ids: ids.clone(),
            }]);
        }

        let tokenizer = source::tokenizer(model)?;
        let mut inputs = vec![];
        for InputText { origin, text } in texts {
            inputs.push(InputTokens {
                origin: *origin,
                ids: tokenizer.encode(text)?,
            });
        }

        Ok(inputs)
    }
}

/// Returns the lines that have a text, and the numbers of the blank lines.
fn split_lines(lines: &str) -> (Vec<InputText>, Vec<usize>) {
    let mut texts = vec![];
    let mut blank = vec![];
    for (line, number) in lines.lines().zip(1..) {
        if line.trim().is_empty() {
            blank.push(number);
        } else {
            texts.push(InputText {
                origin: TextOrigin::Line(number),
                text: line.to_owned(),
            });
        }
    }

    (texts, blank)
}

/// Returns the note about skipped lines, with the numbers of the first few.
fn skipped(blank: &[usize]) -> String {
    const SHOWN: usize = 8;
    let mut numbers: Vec<String> = blank.iter().take(SHOWN).map(usize::to_string).collect();
    if blank.len() > SHOWN {
        numbers.push("..".to_owned());
    }
    let count = counted(blank.len(), "blank line");
    format!("note: skipped {count}: {}", numbers.join(", "))
}

/// Returns an error if a text is longer than the context. This runs before any weights are loaded.
fn check_lengths(inputs: &[InputTokens], ctx: u32) -> Result<(), Failure> {
    match inputs.iter().find(|input| input.ids.len() > ctx as usize) {
        None => Ok(()),
        Some(InputTokens { origin, ids }) => {
            let tokens = counted(ids.len(), "token");
            Err(Failure::Input(format!(
                "{origin} has {tokens}, and the context has room for {ctx}: shorten it, or use a larger --ctx"
            )))
        }
    }
}

impl Args {
    /// Computes the vector of a text.
    fn vector(&self, decoder: &mut Decoder, ids: &[u32]) -> Result<Vec<f32>, Failure> {
        let mut sum = vec![];
        let mut count = 0.0;
        for row in decoder.hidden_states(ids)? {
            let row = row?;

            // `--pooling last` starts over at each row, so only the last one remains.
            if self.pooling == Pooling::Last || sum.is_empty() {
                sum = vec![0.0; row.len()];
                count = 0.0;
            }

            for (sum, x) in sum.iter_mut().zip(&row) {
                *sum += f64::from(*x);
            }

            count += 1.0;
        }

        let divisor = if self.no_normalize {
            count
        } else {
            sum.iter().map(|x| x * x).sum::<f64>().sqrt()
        };

        // A vector of zeros has no direction and stays as it is.
        let divisor = if divisor > 0.0 { divisor } else { 1.0 };
        Ok(sum.into_iter().map(|x| (x / divisor) as f32).collect())
    }

    /// Returns the output of `--json`.
    fn object(&self, inputs: &[InputTokens], vectors: &[Vec<f32>]) -> String {
        let mut embeddings: Vec<Value> = vec![];
        for (input, vector) in inputs.iter().zip(vectors) {
            let mut embedding = json!({ "tokens": input.ids, "embedding": vector });
            if let TextOrigin::Line(number) = input.origin {
                embedding["line"] = json!(number);
            }
            embeddings.push(embedding);
        }

        let pooling = self
            .pooling
            .to_possible_value()
            .expect("no value is hidden");
        let object = json!({
            "pooling": pooling.get_name(),
            "normalized": !self.no_normalize,
            "dimensions": vectors.first().map_or(0, Vec::len),
            "embeddings": embeddings,
        });
        format!("{object}\n")
    }
}

/// Formats a vector as a line of numbers with spaces between them.
fn line(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("{}\n", numbers.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_skipped_and_lines_keep_their_numbers() {
        let numbers = |lines: &str| {
            let (texts, blank) = split_lines(lines);
            let origins: Vec<TextOrigin> = texts.into_iter().map(|text| text.origin).collect();
            (origins, blank)
        };
        let cases = [
            ("a\n\nb\n", vec![1, 3], vec![2]),
            ("a\r\n\r\nb", vec![1, 3], vec![2]),
            ("\n \n\t\na", vec![4], vec![1, 2, 3]),
            ("a\n\n\n", vec![1], vec![2, 3]),
            ("a", vec![1], vec![]),
            ("", vec![], vec![]),
            ("\n", vec![], vec![1]),
        ];
        for (lines, texts, blank) in cases {
            let texts = texts.into_iter().map(TextOrigin::Line).collect();
            assert_eq!(numbers(lines), (texts, blank), "{lines:?}");
        }

        assert_eq!(skipped(&[2]), "note: skipped 1 blank line: 2");
        let many: Vec<usize> = (1..11).collect();
        let note = "note: skipped 10 blank lines: 1, 2, 3, 4, 5, 6, 7, 8, ..";
        assert_eq!(skipped(&many), note);
    }
}
