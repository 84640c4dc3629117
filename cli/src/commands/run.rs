//! `warpwright run`: continues a prompt, or answers it.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use serde_json::{Value, json};
use warpwright_driver::Context;
use warpwright_engine::{
    Decoder, Grammar, Matcher, Model, Sampling, StopStrings, TextEnding, TextStream, Tokenizer,
};

use crate::failure::Failure;
use crate::generate::{EXPECTED_TOKENS, GenerateArgs, Room, TokenLimit, UNLIMITED_CTX, Unsaid};
use crate::message::{Message, SYSTEM, USER, calls_json};
use crate::progress::PromptBar;
use crate::prompt::{Prompt, Source};
use crate::reply::{Form, Printer, Reply, end, why};
use crate::speculative::Writer;
use crate::template::{Template, TemplateArgs};
use crate::terminal::say;
use crate::times::Times;
use crate::{adapter, device, grammar, interrupt, sampling};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generate: GenerateArgs,
    #[command(flatten)]
    prompt: Prompt,
    /// Answer the prompt as a message of a user, with the model's chat template
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
    /// Print each token as text or as a number
    #[arg(help_heading = "Output", long, value_enum, default_value_t = Print::Text)]
    print: Print,
    /// Print one JSON object with text, tokens and times; with =lines, a line for each token first
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true)]
    #[arg(
        help_heading = "Output",
        default_missing_value = "object",
        conflicts_with = "print"
    )]
    json: Option<Json>,
    /// Print only the text of the model, without the prompt and statistics
    #[arg(help_heading = "Output", long)]
    quiet: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Print {
    /// Its text
    Text,
    /// Its number
    Ids,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Json {
    /// The object alone
    Object,
    /// A line for each token, then the object as a line
    Lines,
}

impl Args {
    fn form(&self) -> Form {
        match (self.json, self.print) {
            (Some(Json::Object), _) => Form::Nothing,
            (Some(Json::Lines), _) => Form::JsonLines,
            (None, Print::Text) => Form::Text,
            (None, Print::Ids) => Form::Ids,
        }
    }

    /// Refuses options that mean nothing without others.
    fn check(&self) -> Result<(), Failure> {
        if let (false, Some(option)) = (self.chat, self.template.given()) {
            return Err(Failure::Input(format!(
                "{option} is for conversations: add --chat"
            )));
        }
        // After -m, the first argument is the prompt. A model there is a mistake.
        let first = self
            .prompt
            .positional()
            .map(Path::new)
            .filter(|first| looks_like_a_model(first));
        if let Some(first) = first {
            let first = first.display();
            return Err(Failure::Input(format!(
                "{first} is in the place of the prompt, and is a model; give one model, or --prompt {first}"
            )));
        }
        if self.form() == Form::Ids && !self.generate.stops()?.is_empty() {
            return Err(Failure::Input(
                "--stop looks at the text, which --print ids does not make".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Returns true if there is a GGUF file or a folder of a model at this path.
fn looks_like_a_model(path: &Path) -> bool {
    let gguf = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    gguf && path.is_file() || path.join("config.json").is_file()
}

/// The tokenizer, if it is needed.
type Words = Option<Arc<Tokenizer>>;

/// A prompt, as it is and as tokens.
struct Asked {
    source: Source,
    tokens: Vec<u32>,
    words: Words,
    /// The conversation, for a prompt to a chat model.
    chat: Option<AskedChat>,
}

/// A conversation that ends with the prompt.
struct AskedChat {
    template: Template,
    messages: Vec<Message>,
    /// The text that the template makes of the messages.
    text: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    let (stops, source) = (args.generate.stops()?, args.prompt.read()?);
    let start = Instant::now();
    let model = args.generate.open()?;
    let sampling = args.generate.sampling(&model, Unsaid::Greedy)?;
    let file = start.elapsed();
    let (words, context) = open(args, &source, &model);
    let (words, context) = (words?, context?);
    let device = start.elapsed() - file;
    let asked = Asked::new(args, &model, source, words)?;
    let mut matcher = asked.grammar(args, &model)?.as_ref().map(Grammar::matcher);
    let (room, words) = (asked.room(args, &model), asked.words.as_deref());
    room.check()?;
    let mut writer = args
        .generate
        .writer(&context, &model, &sampling, &room, words)?;
    let mut times = Times::from(start.elapsed());
    // Before anything is printed, as the bar would be drawn over it.
    prefill(&mut writer.decoder, &asked.tokens)?;
    let stream = asked.stream(&model.outline.stop, &stops);
    let matched = matcher.as_mut();
    let reply = print(args, &asked, &mut writer, (stream, matched), |made| {
        times.token(start.elapsed(), made)
    })?;
    if let Some(form) = args.json {
        object(
            form,
            &asked,
            &reply,
            (&times, &sampling),
            (writer.figures(), matcher.as_mut()),
        )?;
    } else if !args.quiet {
        adapter::line(&model.outline).into_iter().for_each(say);
        let why = whole_why(&reply.1, &asked, matcher.as_mut());
        let (times, guesses) = (times.summary(), writer.summary());
        say(format!(
            "{times}{guesses}, {why}, {}",
            context.device().name()
        ));
        let [file, device] = [file, device].map(|time| time.as_secs_f64());
        let loading = writer.decoder.loading();
        // A GGUF file and a folder of the same model may differ in this.
        let bos = words
            .and_then(Tokenizer::bos)
            .filter(|bos| asked.tokens.first() == Some(bos));
        let bos = bos
            .map(|bos| format!("; the prompt begins with BOS ({bos}), as the model's file says"));
        let bos = bos.unwrap_or_default();
        say(format!(
            "opened the file in {file:.3} s and the device in {device:.3} s; {loading}{bos}"
        ));
        matcher
            .iter()
            .for_each(|matcher| say(grammar::line(matcher.costs())));
        sampling::seed_line(&sampling).into_iter().for_each(say);
    }
    interrupt::check()
}

impl Asked {
    fn new(args: &Args, model: &Model, source: Source, words: Words) -> Result<Asked, Failure> {
        let (tokens, chat) = match (&source, &words) {
            (Source::Text(text), Some(words)) if args.chat => {
                let system = args
                    .template
                    .system()
                    .map(|text| Message::new(SYSTEM, text));
                let messages: Vec<Message> = system
                    .into_iter()
                    .chain([Message::new(USER, text)])
                    .collect();
                let template = Template::open(&args.template, model)?;
                let text = template.text(&messages)?;
                let chat = AskedChat {
                    template,
                    messages,
                    text,
                };
                (words.encode_rendered(&chat.text)?, Some(chat))
            }
            (source, words) => (source.tokens(words.as_deref())?, None),
        };
        Ok(Asked {
            source,
            tokens,
            words,
            chat,
        })
    }

    /// Turns the reply's tokens into text.
    fn stream<'a>(&'a self, end_tokens: &'a [u32], stops: &'a StopStrings) -> TextStream<'a> {
        let mut stream = TextStream::new(self.words.as_deref(), end_tokens, stops);
        if let Some(chat) = &self.chat {
            stream.spell(|token| chat.template.shows_token(token));
        }
        stream
    }

    /// Prints the reply.
    fn printer(&self, args: &Args) -> Printer<'_> {
        let calls = self
            .chat
            .as_ref()
            .and_then(|chat| chat.template.calls(&chat.messages, &chat.text));
        Printer::new(args.form()).with_calls(calls)
    }

    /// What the reply is to be within.
    fn grammar(&self, args: &Args, model: &Model) -> Result<Option<Grammar>, Failure> {
        self.words.as_ref().map_or(Ok(None), |words| {
            args.generate.grammar.compile(model, words)
        })
    }

    fn room(&self, args: &Args, model: &Model) -> Room {
        let prompt = self.tokens.len();
        let (needed, expected) = match args.n {
            TokenLimit::Most(tokens) => (tokens as usize, tokens),
            TokenLimit::Unlimited => (UNLIMITED_CTX, EXPECTED_TOKENS),
        };
        let ctx = args
            .generate
            .place
            .context_length(model, prompt.saturating_add(needed));
        Room {
            ctx,
            prompt,
            tokens: prompt as u64 + u64::from(expected.min(ctx)),
        }
    }

    /// What is printed before the reply.
    fn echo(&self, args: &Args) -> &str {
        match &self.source {
            Source::Text(text) if args.form() == Form::Text && !args.quiet && !args.chat => text,
            _ => "",
        }
    }
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

/// Prints the reply; `printed` hears of each token how many the launches have made so far.
fn print(
    args: &Args,
    asked: &Asked,
    writer: &mut Writer,
    (mut stream, matcher): (TextStream<'_>, Option<&mut Matcher>),
    mut printed: impl FnMut(u32),
) -> Result<(Reply, TextEnding), Failure> {
    let (mut printer, mut reply) = (asked.printer(args), Reply::default());
    printer.text(asked.echo(args))?;
    // Not before the first token, which waits for the whole prompt.
    let mut printing = None;
    let tokens = writer.tokens(&asked.tokens, args.n.most(), matcher)?;
    let ending = reply.print(tokens, &mut stream, &mut printer, |piece| {
        printing.get_or_insert_with(|| interrupt::Pending::begin("this token"));
        printed(piece.made);
    });
    let ending = match ending {
        Ok(ending) => reply.finish(stream, &mut printer, ending)?,
        Err(failure) => {
            // The text so far ends before the sentence begins.
            reply.finish(stream, &mut printer, TextEnding::Interrupted)?;
            return Err(failure);
        }
    };
    Ok((reply, ending))
}

/// Why a reply ended, and whether it is whole within its grammar.
fn whole_why(ending: &TextEnding, asked: &Asked, matcher: Option<&mut Matcher>) -> String {
    let why = why(ending, asked.words.as_deref());
    let whole = matcher.is_none_or(|matcher| grammar::is_complete(matcher, ending));
    if whole {
        why
    } else {
        format!("{why}; {}", grammar::INCOMPLETE)
    }
}

/// Prints all that is known of the reply as an object.
fn object(
    form: Json,
    asked: &Asked,
    reply: &(Reply, TextEnding),
    (times, sampling): (&Times, &Sampling),
    (speculative, matcher): (Option<Value>, Option<&mut Matcher>),
) -> Result<(), Failure> {
    let (
        Reply {
            tokens,
            text,
            called,
        },
        ending,
    ) = reply;
    let costs = matcher
        .as_ref()
        .and_then(|matcher| grammar::Figures::of(matcher.costs()));
    let mut object = json!({
        "prompt_tokens": asked.tokens,
        "tokens": tokens,
        "text": text,
        "end": end(ending, asked.words.as_deref()),
        "times": times.figures(costs),
    });
    if sampling.temperature > 0.0 {
        object["seed"] = json!(sampling.seed);
    }
    if let Some(called) = called {
        object["content"] = json!(called.said);
        object["tool_calls"] = calls_json(&called.calls);
        if !called.problems.is_empty() {
            object["tool_call_problems"] = json!(called.problems);
        }
    }
    if let Some(figures) = speculative {
        object["speculative"] = figures;
    }
    if let Some(matcher) = matcher {
        let complete = grammar::is_complete(matcher, ending);
        object["grammar"] =
            json!({ "complete": complete, "forced_tokens": matcher.costs().forced });
    }
    let text = match form {
        Json::Object => format!("{object:#}\n"),
        Json::Lines => format!("{object}\n"),
    };
    Printer::new(Form::Text).text(&text)
}

/// Makes the tokenizer of a large vocabulary while the driver starts: both take their time.
fn open(
    args: &Args,
    source: &Source,
    model: &Model,
) -> (Result<Words, Failure>, Result<Context, Failure>) {
    std::thread::scope(|scope| {
        let words = scope.spawn(|| words(args, source, model));
        let context = device::open(args.generate.place.device);
        (
            words.join().unwrap_or_else(|panic| resume_unwind(panic)),
            context,
        )
    })
}

/// The tokenizer, unless the user wants to see numbers only.
fn words(args: &Args, source: &Source, model: &Model) -> Result<Words, Failure> {
    let grammar = args.generate.grammar.given();
    let needed = matches!(source, Source::Text(_)) || args.form() != Form::Ids || grammar.is_some();
    let words = needed.then(|| model.tokenizer()).transpose();
    let words = words.map_err(|error| without_words(error, grammar))?;
    words
        .iter()
        .flat_map(Tokenizer::warnings)
        .for_each(|warning| say(format!("warning: {warning}")));
    Ok(words.map(Arc::new))
}

/// What a tokenizer that cannot be made leaves to do.
fn without_words(error: warpwright_engine::Error, grammar: Option<&str>) -> Failure {
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
