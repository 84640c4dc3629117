//! `warpwright embed`: a vector for each text.
//!
//! It is made of the model's hidden states: the residual stream after the last layer and the last norm, which is what
//! llama.cpp pools (`result_norm` of its graphs). Attention is causal, so only the last token has seen the whole text.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use warpwright_engine::{Decoder, Launch, Model, Options};

use crate::adapter::AdapterArgs;
use crate::failure::Failure;
use crate::options::{Place, decoder};
use crate::progress::Bar;
use crate::terminal::{counted, say};
use crate::{device, prompt};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    adapter: AdapterArgs,
    #[command(flatten)]
    texts: Texts,
    /// Hidden states that become the vector of a text
    #[arg(long, value_enum, default_value_t = Pooling::Mean)]
    pooling: Pooling,
    /// Do not scale vectors to length 1
    #[arg(long)]
    no_normalize: bool,
    /// Print the vectors as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The texts: by default the lines of standard input.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Texts {
    /// Text, can be repeated; - reads one from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Vec<String>,
    /// File in UTF-8 with a text in each line [default: standard input]
    #[arg(short = 'f', long, alias = "file", value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Token ids instead of a text, such as 1,5,9
    #[arg(long, value_name = "ID,ID,..", value_delimiter = ',', allow_hyphen_values = true, value_parser = prompt::id)]
    prompt_ids: Option<Vec<u32>>,
}

/// What a text's vector is made of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Pooling {
    /// The mean of all its tokens' hidden states
    Mean,
    /// The hidden state of its last token
    Last,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let texts = args.texts.read()?;
    let model = args.adapter.open(args.place.model.path()?)?;
    let texts = args.texts.tokens(&model, &texts)?;
    let ctx = args
        .place
        .context_length(&model, texts.iter().map(Vec::len).max().unwrap_or(1));
    check(&texts, ctx)?;
    let context = device::open(args.place.device)?;
    let tokens = texts.iter().map(|ids| ids.len() as u64).sum();
    let options = Options::new(ctx, Launch::Graph);
    let mut decoder = decoder(&args.place, &context, &model, options, tokens)?;
    let bar = Bar::of_steps(texts.len());
    let vectors = texts.iter().zip(1..).map(|(ids, done)| {
        let vector = args.vector(&mut decoder, ids)?;
        bar.set_position(done);
        Ok(vector)
    });
    let vectors: Vec<Vec<f32>> = vectors.collect::<Result<_, Failure>>()?;
    drop(bar);
    let text = match args.json {
        true => args.object(&texts, &vectors),
        false => vectors.iter().map(|vector| line(vector)).collect(),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

impl Texts {
    /// The texts; none where tokens are given.
    fn read(&self) -> Result<Vec<String>, Failure> {
        let texts: Vec<String> = match self {
            Texts {
                prompt_ids: Some(_),
                ..
            } => return Ok(vec![]),
            Texts {
                prompt_file: Some(file),
                ..
            } if file != Path::new("-") => lines(&prompt::file("the texts", file)?),
            Texts { prompt, .. } if prompt.is_empty() => {
                if io::stdin().is_terminal() {
                    say(
                        "reading texts from the terminal, one per line; end with Ctrl-D, or use -p TEXT",
                    );
                }
                lines(&prompt::standard_input("the texts")?)
            }
            Texts { prompt, .. } => prompt
                .iter()
                .map(|text| one(text))
                .collect::<Result<_, _>>()?,
        };
        match texts.iter().position(String::is_empty) {
            Some(index) => Err(Failure::Input(format!(
                "text {} is empty; leave it out",
                index + 1
            ))),
            None => Ok(texts),
        }
    }

    /// The tokens of each text.
    fn tokens(&self, model: &Model, texts: &[String]) -> Result<Vec<Vec<u32>>, Failure> {
        if let Some(ids) = &self.prompt_ids {
            return Ok(vec![ids.clone()]);
        }
        let words = prompt::tokenizer(model)?;
        Ok(texts
            .iter()
            .map(|text| words.encode(text))
            .collect::<Result<_, _>>()?)
    }
}

/// A text of an argument.
fn one(text: &str) -> Result<String, Failure> {
    if text == "-" {
        prompt::standard_input("the text")
    } else {
        Ok(text.to_owned())
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Refuses what has no room, before anything is loaded.
fn check(texts: &[Vec<u32>], ctx: u32) -> Result<(), Failure> {
    if texts.is_empty() {
        return Err(Failure::Input(
            "there is no text; give -p TEXT, or a line of -f FILE".to_owned(),
        ));
    }
    let long = texts
        .iter()
        .zip(1..)
        .find(|(ids, _)| ids.len() > ctx as usize);
    long.map_or(Ok(()), |(ids, index)| {
        let len = counted(ids.len(), "token");
        Err(Failure::Input(format!(
            "text {index} has {len}, but the context holds {ctx}"
        )))
    })
}

impl Args {
    /// The vector of a text.
    fn vector(&self, decoder: &mut Decoder, ids: &[u32]) -> Result<Vec<f32>, Failure> {
        let (mut sum, mut count) = (vec![], 0.0);
        for row in decoder.hidden_states(ids)? {
            let row = row?;
            if self.pooling == Pooling::Last || sum.is_empty() {
                sum = vec![0.0; row.len()];
                count = 0.0;
            }
            sum.iter_mut()
                .zip(&row)
                .for_each(|(sum, x)| *sum += f64::from(*x));
            count += 1.0;
        }
        let length = if self.no_normalize {
            count
        } else {
            sum.iter().map(|x| x * x).sum::<f64>().sqrt()
        };
        // Zeros stay zeros.
        let length = if length > 0.0 { length } else { 1.0 };
        Ok(sum.into_iter().map(|x| (x / length) as f32).collect())
    }

    fn object(&self, texts: &[Vec<u32>], vectors: &[Vec<f32>]) -> String {
        let rows = texts
            .iter()
            .zip(vectors)
            .map(|(ids, vector)| json!({ "tokens": ids, "embedding": vector }));
        let pooling = self
            .pooling
            .to_possible_value()
            .expect("no value is hidden");
        let object = json!({
            "pooling": pooling.get_name(),
            "normalized": !self.no_normalize,
            "dimensions": vectors.first().map_or(0, Vec::len),
            "embeddings": rows.collect::<Vec<_>>(),
        });
        format!("{object}\n")
    }
}

/// Numbers with spaces between them.
fn line(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("{}\n", numbers.join(" "))
}
