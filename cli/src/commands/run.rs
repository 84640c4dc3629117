//! `warpwright run`: continues a prompt.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use warpwright_driver::Context;
use warpwright_engine::{
    Decoder, End, Generation, Model, Options, Sampling, TokenChoice, Tokenizer, tokenizer,
};

use crate::adapter::{self, AdapterArgs};
use crate::failure::Failure;
use crate::options::{Launch, Place, decoder};
use crate::progress::PromptBar;
use crate::prompt::{Prompt, Source};
use crate::sampling::{self, SamplingArgs};
use crate::terminal::{printable, say};
use crate::{device, interrupt};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// How a step reaches the device
    #[arg(long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    #[command(flatten)]
    prompt: Prompt,
    /// Tokens to make at most
    #[arg(short, value_name = "TOKENS", default_value_t = 64)]
    n: u32,
    /// What to print of each token
    #[arg(long, value_enum, default_value_t = Print::Text)]
    print: Print,
    /// Print only what the model makes: no prompt, no statistics
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Tokens of a prompt from which on it is prefilled several at a time: the kernels for that are compiled too, which
/// takes a driver that has not seen them about a second.
const LONG_PROMPT: usize = 64;

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Print {
    /// Its text
    Text,
    /// Its number
    Ids,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = args.prompt.read()?;
    let start = Instant::now();
    let model = args.adapter.open(&args.place.model)?;
    let sampling = args.sampling.greedy_or(model.generation_config()?.over(Sampling::default()))?;
    sampling.check(model.outline.config.vocab)?;
    let file = start.elapsed();
    let (words, context) = open(args, &source, &model);
    let (words, context) = (words?, context?);
    let device = start.elapsed();
    let prompt = source.tokens(words.as_ref())?;
    let ctx = args.place.context_length(&model, prompt.len().saturating_add(args.n as usize));
    let choice = sampling::choice(&sampling);
    let options = Options { choice, ..Options::new(ctx, args.launch.into()) };
    let (prefill_batch, chunk) =
        if prompt.len() < LONG_PROMPT { (1, 0) } else { (options.prefill_batch, options.chunk) };
    let tokens = prompt.len() as u64 + u64::from(args.n).min(u64::from(ctx));
    let mut decoder =
        decoder(&args.place, &context, &model, Options { prefill_batch, chunk, ..options }, tokens)?;
    if choice != TokenChoice::Greedy {
        decoder.set_sampling(&sampling)?;
    }
    let loading = *decoder.loading();
    let mut times = Times::from(start.elapsed());
    // Before anything is printed, as the bar would be drawn over it.
    prefill(&mut decoder, &prompt)?;
    let printer = Printer::new(args, &source, words.as_ref())?;
    let end = printer.print(decoder.decode(args.n)?, |made| times.token(start.elapsed(), made))?;
    if !args.quiet {
        adapter::line(&model.outline).into_iter().for_each(say);
        let [file, device] = [file, device - file].map(|time| time.as_secs_f64());
        say(format!("{}, {end}, {}", times.summary(), context.device().name()));
        say(format!("opened the file in {file:.3} s and the device in {device:.3} s; {loading}"));
    }
    interrupt::check()
}

/// Takes the prompt in, with a bar if that takes long and stderr is a terminal.
fn prefill(decoder: &mut Decoder, prompt: &[u32]) -> Result<(), Failure> {
    let mut bar = PromptBar::new(prompt.len());
    decoder.prefill_with(prompt, |taken| {
        bar.set(taken as usize);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Makes the tokenizer of a large vocabulary while the driver starts: both take their time.
fn open(
    args: &Args,
    source: &Source,
    model: &Model,
) -> (Result<Option<Tokenizer>, Failure>, Result<Context, Failure>) {
    std::thread::scope(|scope| {
        let words = scope.spawn(|| words(args, source, model));
        let context = device::open(args.place.device);
        (words.join().unwrap_or_else(|panic| resume_unwind(panic)), context)
    })
}

/// The tokenizer, unless the user wants to see numbers only.
fn words(args: &Args, source: &Source, model: &Model) -> Result<Option<Tokenizer>, Failure> {
    let needed = matches!(source, Source::Text(_)) || args.print == Print::Text;
    let words = needed.then(|| model.tokenizer()).transpose().map_err(without_words)?;
    words.iter().flat_map(Tokenizer::warnings).for_each(|warning| say(format!("warning: {warning}")));
    Ok(words)
}

/// What a tokenizer that cannot be made leaves to do.
fn without_words(error: warpwright_engine::Error) -> Failure {
    match Failure::from(error) {
        Failure::Input(sentence) => {
            Failure::Input(format!("{sentence}; token ids need no tokenizer: --prompt-ids 1,2 --print ids"))
        }
        other => other,
    }
}

/// Standard output, and how a token becomes something to read.
struct Printer<'a> {
    out: io::StdoutLock<'static>,
    form: Form<'a>,
}

enum Form<'a> {
    Text(tokenizer::Stream<'a>),
    /// Numbers; what stands before the next one.
    Ids(&'static str),
}

impl<'a> Printer<'a> {
    fn new(args: &Args, source: &Source, words: Option<&'a Tokenizer>) -> Result<Self, Failure> {
        let form = match words {
            Some(words) if args.print == Print::Text => Form::Text(words.stream()),
            _ => Form::Ids(""),
        };
        let mut printer = Printer { out: io::stdout().lock(), form };
        if let (Form::Text(_), Source::Text(prompt), false) = (&printer.form, source, args.quiet) {
            printer.write(prompt)?;
        }
        Ok(printer)
    }

    /// Prints tokens as they come, until there are no more or the user interrupts, and gives why they ended. `printed`
    /// hears of each how many the launches have made so far.
    fn print(
        mut self,
        mut tokens: Generation,
        mut printed: impl FnMut(u32),
    ) -> Result<&'static str, Failure> {
        // Not before the first token, which waits for the whole prompt.
        let mut printing = None;
        while let Some(token) = tokens.next() {
            printing.get_or_insert_with(|| interrupt::Pending::begin("this token"));
            match token {
                Ok(token) => {
                    self.token(token)?;
                    let found = tokens.log_probabilities();
                    found.iter().for_each(|found| say(sampling::line(token, found)));
                }
                Err(error) => {
                    self.end()?;
                    return Err(error.into());
                }
            }
            printed(tokens.made());
            if interrupt::check().is_err() {
                self.end()?;
                return Ok("interrupted");
            }
        }
        self.end()?;
        Ok(why(tokens.end()))
    }

    fn token(&mut self, id: u32) -> Result<(), Failure> {
        let text = match &mut self.form {
            Form::Text(stream) => stream.push(id),
            Form::Ids(separator) => format!("{}{id}", std::mem::replace(separator, " ")),
        };
        self.write(&text)
    }

    /// Writes a text at once; a terminal gets no control characters.
    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let shown = if self.out.is_terminal() { printable(text) } else { text.into() };
        self.out.write_all(shown.as_bytes())?;
        Ok(self.out.flush()?)
    }

    /// The rest of the text, if it ended within a character, and a line break.
    fn end(&mut self) -> Result<(), Failure> {
        let rest = match std::mem::replace(&mut self.form, Form::Ids("")) {
            Form::Text(stream) => stream.finish(),
            Form::Ids(_) => String::new(),
        };
        self.write(&(rest + "\n"))
    }
}

/// As the closing line says it.
fn why(end: End) -> &'static str {
    match end {
        End::Text => "end of text",
        End::ContextFull => "context full",
        End::Limit => "limit of -n",
    }
}

/// When tokens came, by the program's clock. Those of one launch come together.
struct Times {
    /// When the prompt was given to the decoder.
    begin: Duration,
    count: u32,
    /// The first token, and the first of the latest launch.
    first: Lap,
    last: Lap,
}

#[derive(Clone, Copy)]
struct Lap {
    at: Duration,
    /// Tokens of all launches up to then.
    made: u32,
}

impl Lap {
    /// Tokens a second from an earlier lap to this.
    fn rate(&self, from: Lap) -> f64 {
        f64::from(self.made - from.made) / (self.at - from.at).as_secs_f64()
    }
}

impl Times {
    fn from(begin: Duration) -> Times {
        let lap = Lap { at: begin, made: 0 };
        Times { begin, count: 0, first: lap, last: lap }
    }

    fn token(&mut self, at: Duration, made: u32) {
        if made > self.last.made {
            self.last = Lap { at, made };
        }
        if self.count == 0 {
            self.first = self.last;
        }
        self.count += 1;
    }

    /// The rate leaves out the first launch, which waits for the prompt, unless there was no other. A launch counts
    /// whole, also where the text ends in it: all its steps take their time.
    fn summary(&self) -> String {
        let (count, first) = (self.count, self.first.at.as_secs_f64());
        let rate = match self.first.made {
            made if made == self.last.made => {
                let begin = Lap { at: self.begin, made: 0 };
                format!("{:.1} tokens/s with the time of the prompt", self.last.rate(begin))
            }
            1 => format!("{:.1} tokens/s after the first", self.last.rate(self.first)),
            made => format!("{:.1} tokens/s after the first {made}", self.last.rate(self.first)),
        };
        match count {
            0 => "0 tokens".to_owned(),
            1 => format!("1 token, {first:.2} s after the start"),
            _ => format!("{count} tokens, {rate}, first token {first:.2} s after the start"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Times;

    /// What is said of tokens at these milliseconds, each with what the launches have made by then; the prompt was
    /// given at 400.
    fn summary(tokens: &[(u64, u32)]) -> String {
        let mut times = Times::from(Duration::from_millis(400));
        tokens.iter().for_each(|&(at, made)| times.token(Duration::from_millis(at), made));
        times.summary()
    }

    #[test]
    fn the_rate_is_of_the_tokens_after_the_first_launch() {
        let say = |tokens: &[(u64, u32)], said: &str| assert_eq!(summary(tokens), said);
        say(&[], "0 tokens");
        say(&[(500, 1)], "1 token, 0.50 s after the start");
        let one_by_one = [(500, 1), (600, 2), (700, 3)];
        say(&one_by_one, "3 tokens, 10.0 tokens/s after the first, first token 0.50 s after the start");
        let four_at_once = [500, 501, 502, 503].map(|at| (at, 4));
        say(
            &four_at_once,
            "4 tokens, 40.0 tokens/s with the time of the prompt, first token 0.50 s after the start",
        );
        let next_at_once = [900, 901, 902, 903].map(|at| (at, 8));
        let said = "10.0 tokens/s after the first 4, first token 0.50 s after the start";
        let all = [four_at_once, next_at_once].concat();
        say(&all, &format!("8 tokens, {said}"));
        say(&all[..6], &format!("6 tokens, {said}"));
        let rest = [&all[..], &[(950, 9), (1000, 10)]].concat();
        let said = "12.0 tokens/s after the first 4, first token 0.50 s after the start";
        say(&rest, &format!("10 tokens, {said}"));
    }
}
