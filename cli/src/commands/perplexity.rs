//! `warpwright perplexity`: how likely a model finds a text.
//!
//! The text's tokens are cut into windows of `--ctx`, and what is left over is dropped. Each window is read by itself; in
//! models whose texts begin with BOS, its first token is replaced by that. The tokens of its second half but the first are
//! scored, so that each has half a window before it: `ctx - ctx / 2 - 1` of them. With `l` their log-likelihoods, the
//! perplexity is `exp(-mean(l))`. It is what llama.cpp's `llama-perplexity` computes (`tools/perplexity/perplexity.cpp`).

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use warpwright_driver::Context;
use warpwright_engine::{Decoder, Launch, Model, Options};

use crate::adapter::AdapterArgs;
use crate::device;
use crate::failure::Failure;
use crate::options::{Place, decoder};
use crate::output::{Content, Output, Sink, write_if};
use crate::progress::Bar;
use crate::prompt::{self, numbers};
use crate::terminal::{counted, say};

#[derive(clap::Args)]
#[command(mut_arg("ctx", |ctx| ctx.help("Tokens of a window [default: 512]").value_parser(clap::value_parser!(u32).range(3..))))]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    adapter: AdapterArgs,
    #[command(flatten)]
    text: Text,
    /// Windows to score at most, the first ones [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    windows: Option<u32>,
    /// Do not replace the first token of each window by BOS
    #[arg(long)]
    no_bos: bool,
    /// Prefill each window in chunks, as prompts are: faster, and about four times less exact
    #[arg(long)]
    fast: bool,
    /// File to write a line to for each scored token: window, position, token, log-likelihood
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Text {
    /// File with the text in UTF-8 (its last line break is dropped); - is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// File with the text, as an option
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    text_file: Option<PathBuf>,
    /// File with token ids instead of a text, separated by commas or white space; - is standard input
    #[arg(long, value_name = "FILE")]
    ids_file: Option<PathBuf>,
}

/// Tokens of a window, unless `--ctx` says otherwise; llama.cpp's.
const WINDOW: u32 = 512;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let output = args.output()?;
    output.as_ref().map_or(Ok(()), Output::check)?;
    let read = args.text.read()?;
    let model = args.adapter.open(args.place.model.path()?)?;
    let windows = Windows::new(args, &model, &read)?;
    let context = device::open(args.place.device)?;
    let options = args.options(windows.ctx as u32);
    let tokens = (windows.count * windows.ctx) as u64;
    let mut decoder = decoder(&args.place, &context, &model, options, tokens)?;
    let scores = write_if(output, |mut sink| {
        header(&mut sink)?;
        windows.score(&mut decoder, |index, scored| {
            lines(&mut sink, &windows, index, scored)
        })
    })?;
    let text = match args.json {
        true => format!("{:#}\n", scores.json(&windows, &decoder, &context)),
        false => scores.text(&windows, &context),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

impl Args {
    /// The chunks of prompts have activations in binary16. With them one token in a hundred is off by more than 0.01 where
    /// logits are steep; with the steps of decoding it is not.
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

    fn output(&self) -> Result<Option<Output<'_>>, Failure> {
        let model = [("model", self.place.model.path()?)]
            .into_iter()
            .chain(self.adapter.input());
        let inputs = model
            .chain(self.text.path().map(|path| ("text", path)))
            .collect();
        Ok(self.out.as_deref().map(|path| Output {
            option: "--out",
            path,
            inputs,
            content: Content::Aside,
        }))
    }
}

impl Text {
    /// The file, if it is one.
    fn path(&self) -> Option<&Path> {
        let path = [&self.file, &self.text_file, &self.ids_file]
            .into_iter()
            .flatten()
            .next()?;
        (path != Path::new("-")).then_some(path)
    }

    /// What the file has in it.
    fn read(&self) -> Result<String, Failure> {
        let what = if self.ids_file.is_some() {
            "the tokens"
        } else {
            "the text"
        };
        match self.path() {
            Some(path) => prompt::file(what, path),
            None => prompt::standard_input(what),
        }
    }
}

/// The tokens, and how they are cut.
struct Windows {
    ids: Vec<u32>,
    /// Tokens of a window.
    ctx: usize,
    count: usize,
    /// What each begins with, in place of its first token.
    bos: Option<u32>,
}

impl Windows {
    fn new(args: &Args, model: &Model, read: &str) -> Result<Windows, Failure> {
        let (ids, bos) = match args.text.ids_file {
            Some(_) => given(model, read)?,
            None => {
                // As in llama.cpp, which takes no control token from a file either.
                let words = prompt::tokenizer(model)?.literal();
                (words.encode(read)?, words.bos())
            }
        };
        let ctx = args.place.ctx.unwrap_or(WINDOW) as usize;
        let count = (ids.len() / ctx).min(args.windows.map_or(usize::MAX, |most| most as usize));
        if count == 0 {
            let len = counted(ids.len(), "token");
            return Err(Failure::Input(format!(
                "the text has {len}, too few for a window of {ctx}; give a longer text or a smaller --ctx"
            )));
        }
        Ok(Windows {
            ids,
            ctx,
            count,
            bos: bos.filter(|_| !args.no_bos),
        })
    }

    /// The token of a window that is scored first.
    fn first(&self) -> usize {
        self.ctx / 2 + 1
    }

    /// The tokens of a window.
    fn window(&self, index: usize) -> Vec<u32> {
        let mut ids = self.ids[index * self.ctx..(index + 1) * self.ctx].to_vec();
        ids[0] = self.bos.unwrap_or(ids[0]);
        ids
    }

    /// Scores each window; `done` is given its index and the log-likelihoods.
    fn score(
        &self,
        decoder: &mut Decoder,
        mut done: impl FnMut(usize, &[f32]) -> Result<(), Failure>,
    ) -> Result<Scores, Failure> {
        let (start, mut all) = (Instant::now(), vec![]);
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

/// Tokens that a file gives, and BOS, if the model has a tokenizer that says so.
fn given(model: &Model, read: &str) -> Result<(Vec<u32>, Option<u32>), Failure> {
    let ids: Vec<u32> = numbers(read).map_err(Failure::Input)?;
    let vocab = model.outline.config.vocab;
    if let Some(index) = ids.iter().position(|id| *id >= vocab) {
        let id = ids[index];
        return Err(Failure::Input(format!(
            "token {index} is {id}; the vocabulary ends before {vocab}"
        )));
    }
    let bos = model.tokenizer().map(|words| words.bos());
    let bos = bos.inspect_err(|error| say(format!("warning: windows begin with no BOS: {error}")));
    Ok((ids, bos.ok().flatten()))
}

fn in_window(index: usize, failure: Failure) -> Failure {
    match failure {
        Failure::Runtime(sentence) => Failure::Runtime(format!("window {index}: {sentence}")),
        Failure::Input(sentence) => Failure::Input(format!("window {index}: {sentence}")),
        other => other,
    }
}

fn header(sink: &mut Option<&mut Sink<'_>>) -> Result<(), Failure> {
    sink.as_mut().map_or(Ok(()), |sink| {
        sink.write(b"# window\tposition\ttoken\tlog-likelihood\n")
    })
}

/// A line for each scored token of a window.
fn lines(
    sink: &mut Option<&mut Sink<'_>>,
    windows: &Windows,
    index: usize,
    scored: &[f32],
) -> Result<(), Failure> {
    let Some(sink) = sink else { return Ok(()) };
    let mut text = String::new();
    for (position, likelihood) in (windows.first()..).zip(scored) {
        let id = windows.ids[index * windows.ctx + position];
        writeln!(text, "{index}\t{position}\t{id}\t{likelihood}").expect("a string takes all");
    }
    sink.write(text.as_bytes())
}

/// What was found.
struct Scores {
    /// The log-likelihood of each scored token.
    all: Vec<f64>,
    seconds: f64,
}

impl Scores {
    /// The mean log-likelihood and its standard error, which takes two tokens.
    fn mean(&self) -> (f64, Option<f64>) {
        let (mean, count) = (mean(&self.all), self.all.len() as f64);
        let squares: f64 = self.all.iter().map(|l| (l - mean).powi(2)).sum();
        (
            mean,
            (count > 1.0).then(|| (squares / count / (count - 1.0)).sqrt()),
        )
    }

    /// Tokens that went through the model, a second.
    fn rate(&self, windows: &Windows) -> f64 {
        (windows.count * windows.ctx) as f64 / self.seconds
    }

    fn json(&self, windows: &Windows, decoder: &Decoder, context: &Context) -> Value {
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

    fn text(&self, windows: &Windows, context: &Context) -> String {
        let (mean, error) = self.mean();
        let perplexity = (-mean).exp();
        let [near, around] = [error.map(|error| error * perplexity), error]
            .map(|error| error.map_or(String::new(), |error| format!(" +/- {error:.6}")));
        let (rate, device) = (self.rate(windows), context.device().name());
        let (scored, Windows { count, ctx, .. }) = (self.all.len(), windows);
        let windows = counted(*count, "window");
        format!(
            "perplexity {perplexity:.6}{near}\nmean log-likelihood {mean:.6}{around}\n{scored} tokens scored in \
             {windows} of {ctx}, {rate:.1} tokens/s, {device}\n"
        )
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Python's `statistics`: the mean, and the deviation of the population over the root of `n - 1`.
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
        let windows = Windows {
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
            Windows {
                bos: None,
                ..windows
            }
            .window(1)[0],
            15
        );
    }
}
