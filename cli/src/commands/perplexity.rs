//! `warpwright perplexity`: measures how well a model predicts a text.
//!
//! This is the score of llama.cpp's `llama-perplexity` (`tools/perplexity/perplexity.cpp`). The
//! tokens of the text are split into windows of `--ctx` tokens, and an incomplete last window is
//! dropped. The model reads each window separately. If its texts begin with BOS, BOS replaces the
//! first token of each window. The tokens of the second half are scored, except its first one, so
//! each has half a window of context. That is `ctx - ctx / 2 - 1` tokens per window. The perplexity
//! is `exp(-mean(l))`, where `l` are their log-likelihoods.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use warpwright_driver::Context;
use warpwright_engine::{Decoder, Launch, Options};
use warpwright_model::Model;

use crate::device;
use crate::failure::Failure;
use crate::model::adapter::AdapterArgs;
use crate::model::options::{ModelDeviceArgs, decoder};
use crate::prompt::source::{self, numbers};
use crate::terminal::progress::Bar;
use warpwright_emu::output::{Output, OutputContent, OutputSink, write_if};
use warpwright_emu::terminal::{counted, say};

#[derive(clap::Args)]
#[command(mut_arg("ctx", |ctx| ctx.help("Number of tokens in a window [default: 512]").value_parser(clap::value_parser!(u32).range(3..))))]
pub(crate) struct Args {
    #[command(flatten)]
    target: ModelDeviceArgs,
    #[command(flatten)]
    adapter: AdapterArgs,
    #[command(flatten)]
    text: PerplexityText,
    /// Number of windows to score, from the beginning of the text [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Keep the first token of each window instead of replacing it by BOS
    #[arg(long)]
    no_bos: bool,
    /// Prefill each window in chunks, like a prompt: faster, and about four times less exact
    #[arg(long)]
    fast: bool,
    /// File for a line per scored token: window, position, token, log-likelihood
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as a JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The ways to pass the text.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct PerplexityText {
    /// File with the text, in UTF-8 without its last line break; - is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// File with the text, given as an option instead of an argument
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// File with token ids instead of a text, separated by commas or white space; - is standard
    /// input
    #[arg(long, value_name = "FILE")]
    ids_file: Option<PathBuf>,
}

/// The default number of tokens in a window, as in llama.cpp.
const WINDOW: u32 = 512;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let output = args.output()?;

    // A wrong path must fail before the text is read and the model is loaded.
    output.as_ref().map_or(Ok(()), Output::check)?;
    let read = args.text.read()?;
    let model = args.adapter.open(args.target.model.path()?)?;
    let windows = TokenWindows::new(args, &model, &read)?;
    let context = device::open(args.target.device)?;
    let options = args.options(windows.ctx as u32);
    let tokens = (windows.count * windows.ctx) as u64;
    let mut decoder = decoder(&args.target, &context, &model, options, tokens)?;
    let scores = write_if(output, |mut sink| {
        header(&mut sink)?;
        windows.score(&mut decoder, |index, scored| {
            lines(&mut sink, &windows, index, scored)
        })
    })?;
    let text = if args.json {
        format!("{:#}\n", scores.json(&windows, &decoder, &context))
    } else {
        scores.text(&windows, &context)
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

impl Args {
    /// Returns the options of the decoder.
    ///
    /// The kernels of chunks round activations to binary16. Then the log-likelihood of one token in
    /// a hundred is off by more than 0.01 where the logits are steep. The kernels of decode steps
    /// are more exact.
    fn options(&self, ctx: u32) -> Options {
        let options = Options::new(ctx, Launch::Graph);
        if self.fast {
            options
        } else {
            Options {
                chunk: 0,
                ..options
            }
        }
    }

    /// Returns the output of `--out`, if there is one.
    fn output(&self) -> Result<Option<Output<'_>>, Failure> {
        let model = [("model", self.target.model.path()?)]
            .into_iter()
            .chain(self.adapter.input());
        let inputs = model
            .chain(self.text.path().map(|path| ("text", path)))
            .collect();
        Ok(self.out.as_deref().map(|path| Output {
            option: "--out",
            path,
            inputs,
            content: OutputContent::Aside,
        }))
    }
}

impl PerplexityText {
    /// Returns the file, or `None` for standard input.
    fn path(&self) -> Option<&Path> {
        let path = [&self.file, &self.text_file, &self.ids_file]
            .into_iter()
            .flatten()
            .next()?;
        if path == Path::new("-") {
            None
        } else {
            Some(path)
        }
    }

    /// Reads the text or the list of token ids.
    fn read(&self) -> Result<String, Failure> {
        let what = if self.ids_file.is_some() {
            "the tokens"
        } else {
            "the text"
        };
        match self.path() {
            Some(path) => source::file(what, path),
            None => source::standard_input(what),
        }
    }
}

/// The tokens of the text, split into windows.
struct TokenWindows {
    ids: Vec<u32>,
    /// The number of tokens in a window.
    ctx: usize,
    count: usize,
    /// The token that replaces the first one of each window.
    bos: Option<u32>,
}

impl TokenWindows {
    /// Tokenizes the text and splits it into windows.
    ///
    /// # Errors
    /// Returns an error if the text is shorter than a window.
    fn new(args: &Args, model: &Model, text: &str) -> Result<TokenWindows, Failure> {
        let (ids, bos) = if args.text.ids_file.is_some() {
            parse_ids(model, text)?
        } else {
            // Names of control tokens in the file are ordinary text, as in llama.cpp.
            let tokenizer = source::tokenizer(model)?.literal();
            (tokenizer.encode(text)?, tokenizer.bos())
        };
        let ctx = args.target.ctx.unwrap_or(WINDOW) as usize;
        let count = (ids.len() / ctx).min(args.windows.map_or(usize::MAX, |most| most as usize));
        if count == 0 {
            let len = counted(ids.len(), "token");
            return Err(Failure::Input(format!(
                "the text has {len}, too few for a window of {ctx}: use a longer text or a smaller --ctx"
            )));
        }

        Ok(TokenWindows {
            ids,
            ctx,
            count,
            bos: bos.filter(|_| !args.no_bos),
        })
    }

    /// Returns the position of the first token in a window that is scored.
    fn first(&self) -> usize {
        self.ctx / 2 + 1
    }

    /// Returns the tokens of a window.
    fn window(&self, index: usize) -> Vec<u32> {
        let mut ids = self.ids[index * self.ctx..(index + 1) * self.ctx].to_vec();
        ids[0] = self.bos.unwrap_or(ids[0]);
        ids
    }

    /// Scores each window, and calls `done` with its index and the log-likelihoods of its tokens.
    fn score(
        &self,
        decoder: &mut Decoder,
        mut done: impl FnMut(usize, &[f32]) -> Result<(), Failure>,
    ) -> Result<Scores, Failure> {
        let start = Instant::now();
        let mut all = vec![];
        let bar = Bar::new(
            "window {pos}/{len} {wide_bar} perplexity {msg}",
            self.count as u64,
        );
        for index in 0..self.count {
            let scored = decoder.log_likelihoods(&self.window(index), self.first());
            let scored = scored.map_err(|error| in_window(index, error.into()))?;
            done(index, &scored)?;
            all.extend(scored.into_iter().map(f64::from));
            bar.set_position(index as u64 + 1);
            bar.set_message(format!("{:.4}", (-mean(&all)).exp()));
        }

        Ok(Scores {
            all,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// Parses token ids. Also returns BOS, if the model has a tokenizer that begins texts with it.
fn parse_ids(model: &Model, text: &str) -> Result<(Vec<u32>, Option<u32>), Failure> {
    let ids: Vec<u32> = numbers(text).map_err(Failure::Input)?;
    let vocab = model.outline.config.vocab;
    if let Some(index) = ids.iter().position(|id| *id >= vocab) {
        let id = ids[index];
        return Err(Failure::Input(format!(
            "token {index} is {id}; the vocabulary ends before {vocab}"
        )));
    }

    let bos = match model.tokenizer() {
        Ok(tokenizer) => tokenizer.bos(),
        // Ids can be scored without a tokenizer, but the result may differ.
        Err(error) => {
            say(format!("warning: windows do not begin with BOS: {error}"));
            None
        }
    };
    Ok((ids, bos))
}

/// Adds the number of the window to a failure.
fn in_window(index: usize, failure: Failure) -> Failure {
    match failure {
        Failure::Runtime(sentence) => Failure::Runtime(format!("window {index}: {sentence}")),
        Failure::Input(sentence) => Failure::Input(format!("window {index}: {sentence}")),
        other => other,
    }
}

/// Writes the header of `--out`.
fn header(sink: &mut Option<&mut OutputSink<'_>>) -> Result<(), Failure> {
    match sink {
        Some(sink) => Ok(sink.write(b"# window\tposition\ttoken\tlog-likelihood\n")?),
        None => Ok(()),
    }
}

/// Writes a line of `--out` for each scored token of a window.
fn lines(
    sink: &mut Option<&mut OutputSink<'_>>,
    windows: &TokenWindows,
    index: usize,
    scored: &[f32],
) -> Result<(), Failure> {
    let Some(sink) = sink else { return Ok(()) };
    let mut text = String::new();
    for (position, likelihood) in (windows.first()..).zip(scored) {
        let id = windows.ids[index * windows.ctx + position];
        writeln!(text, "{index}\t{position}\t{id}\t{likelihood}").expect("a String accepts writes");
    }
    Ok(sink.write(text.as_bytes())?)
}

/// The scores of all windows.
struct Scores {
    /// The log-likelihood of each scored token.
    all: Vec<f64>,
    seconds: f64,
}

impl Scores {
    /// Returns the mean log-likelihood and its standard error, which needs at least two tokens.
    fn mean(&self) -> (f64, Option<f64>) {
        let mean = mean(&self.all);
        let count = self.all.len() as f64;
        if count < 2.0 {
            return (mean, None);
        }
        let squares: f64 = self.all.iter().map(|l| (l - mean).powi(2)).sum();
        (mean, Some((squares / count / (count - 1.0)).sqrt()))
    }

    /// Returns the speed, in tokens that went through the model per second.
    fn rate(&self, windows: &TokenWindows) -> f64 {
        (windows.count * windows.ctx) as f64 / self.seconds
    }

    /// Returns the object of `--json`.
    fn json(&self, windows: &TokenWindows, decoder: &Decoder, context: &Context) -> Value {
        let (mean, error) = self.mean();
        let perplexity = (-mean).exp();
        json!({
            "perplexity": perplexity,
            "perplexity_error": error.map(|error| error * perplexity),
            "log_likelihood": mean,
            "log_likelihood_error": error,
            "scored": self.all.len(),
            "tokens": windows.count * windows.ctx,
            "windows": windows.count,
            "ctx": windows.ctx,
            "bos": windows.bos,
            "seconds": self.seconds,
            "tokens_per_second": self.rate(windows),
            "path": decoder.path().to_string(),
            "tokens_at_once": decoder.at_once(windows.ctx as u32 - 1),
            "device": context.device().name(),
        })
    }

    /// Returns the lines that are printed without `--json`.
    fn text(&self, windows: &TokenWindows, context: &Context) -> String {
        let (mean, error) = self.mean();
        let perplexity = (-mean).exp();
        let range = |error: Option<f64>| match error {
            Some(error) => format!(" +/- {error:.6}"),
            None => String::new(),
        };

        // The error propagates through exp(-x), whose derivative has the size of the perplexity
        // itself.
        let perplexity_range = range(error.map(|error| error * perplexity));
        let mean_range = range(error);
        let scored = self.all.len();
        let rate = self.rate(windows);
        let device = context.device().name();
        let count = counted(windows.count, "window");
        let ctx = windows.ctx;
        format!(
            "perplexity {perplexity:.6}{perplexity_range}\nmean log-likelihood {mean:.6}{mean_range}\n{scored} tokens \
             scored in {count} of {ctx}, {rate:.1} tokens/s, {device}\n"
        )
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's `statistics`: the mean, and the deviation of the population over the root of `n
    /// - 1`.
    #[test]
    fn means_have_errors() {
        let of = |all: &[f64]| {
            Scores {
                all: all.to_vec(),
                seconds: 1.0,
            }
            .mean()
        };
        assert_eq!(of(&[-2.0]), (-2.0, None));
        let (mean, error) = of(&[-1.0, -2.0, -4.0, -9.0]);
        assert_eq!(mean, -4.0);
        assert!((error.unwrap() - 1.779_513_042_005_219).abs() < 1e-12);
    }

    #[test]
    fn windows_are_cut() {
        let windows = TokenWindows {
            ids: (10..21).collect(),
            ctx: 5,
            count: 2,
            bos: Some(1),
        };
        assert_eq!(
            [windows.window(0), windows.window(1)],
            [[1, 11, 12, 13, 14], [1, 16, 17, 18, 19]]
        );
        assert_eq!(windows.first(), 3);
        assert_eq!(
            TokenWindows {
                bos: None,
                ..windows
            }
            .window(1)[0],
            15
        );
    }
}
