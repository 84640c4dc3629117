//! `warpwright run`: continues a prompt, or answers it with the chat template.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;
use warpwright_driver::Context;
use warpwright_engine::{Decoder, Sampling};
use warpwright_model::{Grammar, Matcher, Model, StopStrings, TextEnding, TextStream, Tokenizer};

use crate::device;
use crate::failure::Failure;
use crate::generation::grammar;
use crate::generation::grammar::GrammarTimes;
use crate::generation::options::{
    ContextSize, DefaultSampling, EXPECTED_TOKENS, GenerateArgs, TokenLimit, UNLIMITED_CTX,
};
use crate::generation::reply::{Reply, ReplyFormat, ReplyPrinter, end_json, why};
use crate::generation::sampling;
use crate::generation::speculative::TextGenerator;
use crate::generation::times::ArrivalTimes;
use crate::hub;
use crate::model::adapter;
use crate::prompt::message::{Message, SYSTEM, USER, calls_json};
use crate::prompt::source::{PromptArgs, PromptSource};
use crate::prompt::template::{ConfiguredTemplate, TemplateArgs};
use crate::terminal::progress::PromptBar;
use warpwright_emu::interrupt;
use warpwright_emu::terminal::say;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generate: GenerateArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Answer the prompt as the message of a user, with the model's chat template
    #[arg(long, conflicts_with = "prompt_ids")]
    chat: bool,
    #[command(flatten)]
    template: TemplateArgs,
    /// Largest number of tokens to write; -1 writes until the text ends or the context is full
    #[arg(help_heading = None::<&'static str>)]
    #[arg(
        short,
        long = "n-predict",
        alias = "predict",
        value_name = "TOKENS",
        default_value = "64"
    )]
    #[arg(allow_negative_numbers = true)]
    n: TokenLimit,
    /// Form in which each token is printed
    #[arg(help_heading = "Output", long, value_enum, default_value_t = PrintMode::Text)]
    print: PrintMode,
    /// Print a JSON object with text, tokens and times; with =lines, also a line per token before
    /// it
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(
        help_heading = "Output",
        default_missing_value = "object",
        conflicts_with = "print"
    )]
    json: Option<JsonFormat>,
    /// Print only the generated text, without the prompt and the statistics
    #[arg(help_heading = "Output", long)]
    quiet: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum PrintMode {
    /// The text of the token
    Text,
    /// The id of the token
    Ids,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum JsonFormat {
    /// One object at the end
    Object,
    /// A line for each token, then the object in one line
    Lines,
}

impl Args {
    /// Returns the form in which tokens are printed.
    fn format(&self) -> ReplyFormat {
        match (self.json, self.print) {
            (Some(JsonFormat::Object), _) => ReplyFormat::Nothing,
            (Some(JsonFormat::Lines), _) => ReplyFormat::JsonLines,
            (None, PrintMode::Text) => ReplyFormat::Text,
            (None, PrintMode::Ids) => ReplyFormat::Ids,
        }
    }

    /// Returns an error if an option contradicts another one.
    fn check(&self) -> Result<(), Failure> {
        if let Some(option) = self.template.given()
            && !self.chat
        {
            return Err(Failure::Input(format!(
                "{option} needs a conversation: add --chat"
            )));
        }

        // After -m, the positional argument is the prompt. A user who writes a model there expects
        // two models, and would otherwise get a continuation of the file name.
        if let Some(first) = self.prompt.positional()
            && looks_like_a_model(Path::new(first))
        {
            // A text in place of the model names no file.
            let model = self
                .generate
                .target
                .model
                .given()
                .filter(|path| !path.exists());
            if let Some(text) = model.and_then(Path::to_str)
                && !text.starts_with(hub::PREFIX)
            {
                return Err(Failure::Input(format!(
                    "the model comes first: warpwright run {first} \"{text}\""
                )));
            }
            return Err(Failure::Input(format!(
                "there are two models: {first} would be the prompt; leave one model out, or use --prompt {first}"
            )));
        }

        if self.format() == ReplyFormat::Ids && !self.generate.stops()?.is_empty() {
            return Err(Failure::Input(
                "--stop compares text, and --print ids makes none: leave one of them out"
                    .to_owned(),
            ));
        }

        Ok(())
    }
}

/// Returns true if the path is a GGUF file or the folder of a model.
fn looks_like_a_model(path: &Path) -> bool {
    let is_gguf = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    is_gguf && path.is_file() || path.join("config.json").is_file()
}

/// The tokenizer, if the command needs one.
type OptionalTokenizer = Option<Arc<Tokenizer>>;

/// A prompt, as text and as tokens.
struct TokenizedPrompt {
    source: PromptSource,
    tokens: Vec<u32>,
    tokenizer: OptionalTokenizer,
    /// The conversation that ends with the prompt, with `--chat`.
    chat: Option<RenderedChat>,
}

/// A conversation and the text that its template rendered.
struct RenderedChat {
    template: ConfiguredTemplate,
    messages: Vec<Message>,
    text: String,
}

/// A finished reply with everything that the statistics report.
struct FinishedRun<'a> {
    prompt: &'a TokenizedPrompt,
    reply: Reply,
    ending: TextEnding,
    times: ArrivalTimes,
    writer: TextGenerator,
    matcher: Option<Matcher>,
    sampling: Sampling,
    /// Sampling options that had no effect.
    unused_options: Vec<&'static str>,
}

/// The time that it took to open the file and the device.
struct OpenTimes {
    file: Duration,
    device: Duration,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    let stops = args.generate.stops()?;
    let source = args.prompt.read()?;
    let start = Instant::now();
    let model = args.generate.open()?;
    let sampling = args.generate.sampling(&model, DefaultSampling::Greedy)?;
    let file_time = start.elapsed();
    let (tokenizer, context) = open(args, &source, &model);

    // An error of the tokenizer comes first: the model is wrong on every device.
    let tokenizer = tokenizer?;
    let context = context?;
    let open_times = OpenTimes {
        file: file_time,
        device: start.elapsed() - file_time,
    };
    let prompt = TokenizedPrompt::new(args, &model, source, tokenizer)?;
    let mut matcher = prompt.grammar(args, &model)?.as_ref().map(Grammar::matcher);
    let size = prompt.context_size(args, &model);
    size.check()?;
    let tokenizer = prompt.tokenizer.as_deref();
    let mut writer = args
        .generate
        .writer(&context, &model, &sampling, &size, tokenizer)?;
    let mut times = ArrivalTimes::from(start.elapsed());

    // The prompt is prefilled before anything is printed, because its bar would be drawn over the
    // text.
    prefill(&mut writer.decoder, &prompt.tokens)?;
    let stream = prompt.stream(&model.outline.stop, &stops);
    let (reply, ending) = print(
        args,
        &prompt,
        &mut writer,
        stream,
        matcher.as_mut(),
        |made| times.token(start.elapsed(), made),
    )?;
    let mut finished = FinishedRun {
        prompt: &prompt,
        reply,
        ending,
        times,
        writer,
        matcher,
        unused_options: args.generate.unused(&sampling),
        sampling,
    };
    if let Some(format) = args.json {
        finished.print_json(format)?;
    } else if !args.quiet {
        if let Some(line) = adapter::line(&model.outline) {
            say(line);
        }
        finished.print_statistics(&open_times, &context);
    }

    Ok(interrupt::check()?)
}

impl TokenizedPrompt {
    /// Turns a prompt into tokens, with `--chat` by the chat template.
    fn new(
        args: &Args,
        model: &Model,
        source: PromptSource,
        tokenizer: OptionalTokenizer,
    ) -> Result<TokenizedPrompt, Failure> {
        let mut chat = None;
        let tokens = match (&source, &tokenizer) {
            (PromptSource::Text(text), Some(tokenizer)) if args.chat => {
                let mut messages = vec![];
                if let Some(system) = args.template.system() {
                    messages.push(Message::new(SYSTEM, system));
                }

                messages.push(Message::new(USER, text));
                let template = ConfiguredTemplate::open(&args.template, model)?;

                // The template writes BOS where the model expects it, so `encode_rendered` does not
                // add it.
                let text = template.text(&messages)?;
                let tokens = tokenizer.encode_rendered(&text)?;
                chat = Some(RenderedChat {
                    template,
                    messages,
                    text,
                });
                tokens
            }
            (source, tokenizer) => source.tokens(tokenizer.as_deref())?,
        };
        Ok(TokenizedPrompt {
            source,
            tokens,
            tokenizer,
            chat,
        })
    }

    /// Returns a stream that turns the tokens of the reply into text.
    fn stream<'a>(&'a self, end_tokens: &'a [u32], stops: &'a StopStrings) -> TextStream<'a> {
        let mut stream = TextStream::new(self.tokenizer.as_deref(), end_tokens, stops);
        if let Some(chat) = &self.chat {
            stream.spell(|token| chat.template.shows_token(token));
        }
        stream
    }

    /// Returns the printer of the reply.
    fn printer(&self, args: &Args) -> ReplyPrinter<'_> {
        let calls = self
            .chat
            .as_ref()
            .and_then(|chat| chat.template.calls(&chat.messages, &chat.text));
        ReplyPrinter::new(args.format()).with_calls(calls)
    }

    /// Compiles the grammar of the reply, if the options have one.
    fn grammar(&self, args: &Args, model: &Model) -> Result<Option<Grammar>, Failure> {
        match &self.tokenizer {
            Some(tokenizer) => args.generate.grammar.compile(model, tokenizer),
            None => Ok(None),
        }
    }

    /// Returns the sizes that the prompt and the reply need.
    fn context_size(&self, args: &Args, model: &Model) -> ContextSize {
        let prompt = self.tokens.len();
        let (needed, expected) = match args.n {
            TokenLimit::Most(tokens) => (tokens as usize, tokens),
            TokenLimit::Unlimited => (UNLIMITED_CTX, EXPECTED_TOKENS),
        };
        let ctx = args
            .generate
            .target
            .context_length(model, prompt.saturating_add(needed));
        ContextSize {
            ctx,
            prompt,
            expected_tokens: prompt as u64 + u64::from(expected.min(ctx)),
        }
    }

    /// Returns the text to print before the reply: the prompt, which the reply continues.
    fn echo(&self, args: &Args) -> &str {
        let continues = args.format() == ReplyFormat::Text && !args.quiet && !args.chat;
        match &self.source {
            PromptSource::Text(text) if continues => text,
            PromptSource::Text(_) | PromptSource::Ids(_) => "",
        }
    }
}

/// Prefills the prompt, with a progress bar.
fn prefill(decoder: &mut Decoder, prompt: &[u32]) -> Result<(), Failure> {
    let mut bar = PromptBar::new(prompt.len());
    decoder.prefill_with(prompt, |done| {
        bar.set(done as usize);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Prints the reply and returns it with the reason why it ended.
///
/// `on_token` is called for each token with the number of tokens that the launches have made so
/// far.
fn print(
    args: &Args,
    prompt: &TokenizedPrompt,
    writer: &mut TextGenerator,
    mut stream: TextStream<'_>,
    matcher: Option<&mut Matcher>,
    mut on_token: impl FnMut(u32),
) -> Result<(Reply, TextEnding), Failure> {
    let mut printer = prompt.printer(args);
    let mut reply = Reply::default();
    printer.text(prompt.echo(args))?;

    // Ctrl-C waits for the current token only from the first token on. Before that it would wait
    // for the whole prompt.
    let mut pending = None;
    let tokens = writer.tokens(&prompt.tokens, args.n.most(), matcher)?;
    let printed = reply.print(tokens, &mut stream, &mut printer, |piece| {
        pending.get_or_insert_with(|| interrupt::PendingInterrupt::begin("this token"));
        on_token(piece.made);
    });
    match printed {
        Ok(ending) => {
            let ending = reply.finish(stream, &mut printer, ending)?;
            Ok((reply, ending))
        }
        Err(failure) => {
            // The line of text ends before the error message begins.
            reply.finish(stream, &mut printer, TextEnding::Interrupted)?;
            Err(failure)
        }
    }
}

impl FinishedRun<'_> {
    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.prompt.tokenizer.as_deref()
    }

    /// Prints the lines of statistics to stderr.
    fn print_statistics(&mut self, open_times: &OpenTimes, context: &Context) {
        let mut why = why(&self.ending, self.tokenizer());
        if let Some(matcher) = &mut self.matcher
            && !grammar::is_complete(matcher, &self.ending)
        {
            why = format!("{why}; {}", grammar::INCOMPLETE);
        }

        let times = self.times.summary();
        let guesses = self.writer.summary();
        let device = context.device().name();
        say(format!("{times}{guesses}, {why}, {device}"));

        // A GGUF file and a folder of the same model may differ in BOS, and then in their texts.
        let bos = match self.tokenizer().and_then(Tokenizer::bos) {
            Some(bos) if self.prompt.tokens.first() == Some(&bos) => {
                format!("; the prompt begins with BOS ({bos}), as the model's file says")
            }
            _ => String::new(),
        };
        let file = open_times.file.as_secs_f64();
        let device = open_times.device.as_secs_f64();
        let loading = self.writer.decoder.loading();
        say(format!(
            "opened the file in {file:.3} s and the device in {device:.3} s; {loading}{bos}"
        ));
        if let Some(matcher) = &self.matcher {
            say(grammar::line(matcher.costs()));
        }
        if let Some(line) = sampling::seed_line(&self.sampling) {
            say(line);
        }
    }

    /// Prints the object of `--json`.
    fn print_json(&mut self, format: JsonFormat) -> Result<(), Failure> {
        let grammar_times = self
            .matcher
            .as_ref()
            .and_then(|matcher| GrammarTimes::new(matcher.costs()));
        let mut object = json!({
            "prompt_tokens": self.prompt.tokens,
            "tokens": self.reply.tokens,
            "text": self.reply.text,
            "end": end_json(&self.ending, self.tokenizer()),
            "times": self.times.json(grammar_times),
            "sampling": sampling::used(&self.sampling),
        });

        // The seed is also part of `sampling`. Scripts of earlier versions read it here.
        if self.sampling.temperature > 0.0 {
            object["seed"] = json!(self.sampling.seed);
        }
        if !self.unused_options.is_empty() {
            object["unused_options"] = json!(self.unused_options);
        }

        if let Some(parts) = &self.reply.parts {
            object["content"] = json!(parts.content);
            object["tool_calls"] = calls_json(&parts.calls);
            if !parts.problems.is_empty() {
                object["tool_call_problems"] = json!(parts.problems);
            }
        }

        if let Some(counts) = self.writer.counts_json() {
            object["speculative"] = counts;
        }

        if let Some(matcher) = &mut self.matcher {
            let complete = grammar::is_complete(matcher, &self.ending);
            object["grammar"] =
                json!({ "complete": complete, "forced_tokens": matcher.costs().forced });
        }

        let text = match format {
            JsonFormat::Object => format!("{object:#}\n"),
            JsonFormat::Lines => format!("{object}\n"),
        };
        ReplyPrinter::new(ReplyFormat::Text).text(&text)
    }
}

/// Makes the tokenizer and opens the device at the same time, because both can take seconds.
fn open(
    args: &Args,
    source: &PromptSource,
    model: &Model,
) -> (Result<OptionalTokenizer, Failure>, Result<Context, Failure>) {
    std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| tokenizer(args, source, model));
        let context = device::open(args.generate.target.device);
        let tokenizer = tokenizer
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic));
        (tokenizer, context)
    })
}

/// Makes the tokenizer, unless the prompt and the reply are both token ids.
fn tokenizer(
    args: &Args,
    source: &PromptSource,
    model: &Model,
) -> Result<OptionalTokenizer, Failure> {
    let grammar = args.generate.grammar.given();
    let needs_text = matches!(source, PromptSource::Text(_)) || args.format() != ReplyFormat::Ids;
    if !needs_text && grammar.is_none() {
        return Ok(None);
    }

    let tokenizer = model
        .tokenizer()
        .map_err(|error| no_tokenizer(error, grammar))?;
    for warning in tokenizer.warnings() {
        say(format!("warning: {warning}"));
    }

    Ok(Some(Arc::new(tokenizer)))
}

/// Adds to an error of the tokenizer how to go on without one. `grammar` is the option with a
/// grammar.
fn no_tokenizer(error: warpwright_model::Error, grammar: Option<&str>) -> Failure {
    match (Failure::from(error), grammar) {
        (Failure::Input(sentence), None) => Failure::Input(format!(
            "{sentence}; token ids need no tokenizer: --prompt-ids 1,2 --print ids"
        )),
        (Failure::Input(sentence), Some(option)) => {
            Failure::Input(format!("{sentence}; {option} needs the text of each token"))
        }
        (other, _) => other,
    }
}
