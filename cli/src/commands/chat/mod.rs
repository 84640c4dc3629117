//! `warpwright chat`: a conversation with a model, at a terminal or through pipes.
//!
//! At a terminal, lines are edited and Ctrl-C ends an answer. Through pipes, each line is a message, and an error ends the
//! program. A message of several lines is between two `"""`.

mod command;
mod complete;
mod history;
mod input;
mod parameter;
mod session;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use warpwright_engine::Sampling;

use crate::failure::Failure;
use crate::generate::{EXPECTED_TOKENS, GenerateArgs, Room, TokenLimit, UNLIMITED_CTX, Unsaid};
use crate::interrupt::{self, Pending};
use crate::template::{Template, TemplateArgs};
use crate::terminal::say;
use crate::{adapter, device};
use command::Command;
use input::{Input, Line};
use parameter::Parameters;
use session::{Engine, Limits, Session, Voice};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    generate: GenerateArgs,
    /// Largest number of tokens in an answer; -1 means without a limit
    #[arg(
        short,
        long = "n-predict",
        alias = "predict",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    #[arg(help_heading = None::<&'static str>, default_value = "-1", hide_default_value = true)]
    n: TokenLimit,
    /// Drop the oldest turns or refuse the message when the context is full
    #[arg(help_heading = "Conversations", long, value_enum, default_value_t = WhenFull::Drop)]
    when_full: WhenFull,
    #[command(flatten)]
    template: TemplateArgs,
    /// File with the typed lines of all conversations [default: in the user's folder for state]
    #[arg(
        help_heading = "Conversations",
        long,
        value_name = "FILE",
        conflicts_with = "no_history"
    )]
    history: Option<PathBuf>,
    /// Do not read or write the file of typed lines
    #[arg(help_heading = "Conversations", long)]
    no_history: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum WhenFull {
    /// Leave out the oldest turns
    Drop,
    /// Refuse what does not fit
    Refuse,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stops = args.generate.stops()?;
    let model = args.generate.open()?;
    let sampling = args.generate.sampling(&model, Unsaid::Sampled)?;
    let template = Template::open(&args.template, &model)?;
    let words = Arc::new(model.tokenizer()?);
    words
        .warnings()
        .iter()
        .for_each(|warning| say(format!("warning: {warning}")));
    let grammar = args.generate.grammar.compile(&model, &words)?;
    let context = device::open(args.generate.place.device)?;
    let ctx = args.generate.place.context_length(&model, UNLIMITED_CTX);
    let room = Room {
        ctx,
        prompt: ctx as usize,
        tokens: EXPECTED_TOKENS.into(),
    };
    let make = |sampling: &Sampling| {
        args.generate
            .writer(&context, &model, sampling, &room, Some(&words))
    };
    let writer = make(&sampling)?;
    adapter::line(&model.outline).into_iter().for_each(say);
    let limits = Limits {
        ctx,
        when_full: args.when_full,
    };
    let end_tokens = &model.outline.stop;
    let voice = Voice {
        words: &words,
        template: &template,
        end_tokens,
        stops: &stops,
        grammar: grammar.as_ref(),
    };
    let parameters = Parameters {
        sampling: sampling.clone(),
        tokens: args.n.limit(),
    };
    let engine = Engine {
        make: &make,
        writer: Some(writer),
        vocab: model.outline.config.vocab,
    };
    let mut session = Session::new(engine, voice, limits, parameters);
    args.template
        .system()
        .into_iter()
        .for_each(|text| session.set_system(text));
    let input = Input::open(args)?;
    if sampling.temperature > 0.0 {
        say(format!(
            "temperature {}, --seed {}",
            sampling.temperature, sampling.seed
        ));
    }
    talk(&mut session, input)
}

/// Reads lines until there are no more.
fn talk(session: &mut Session<'_>, mut input: Input) -> Result<(), Failure> {
    if input.is_terminal() {
        say(format!(
            "/help lists the commands, Ctrl-D leaves ({} positions)",
            session.limits.ctx
        ));
    }
    loop {
        let line = match input.read()? {
            Line::Text(line) | Line::Message(line) if line.trim().is_empty() => continue,
            line @ (Line::Text(_) | Line::Message(_)) => line,
            Line::Interrupted => {
                say("Ctrl-D or /exit leaves");
                continue;
            }
            Line::NoText => {
                say("error: what was typed is not UTF-8, and is left out");
                continue;
            }
            Line::End => return Ok(()),
        };
        let pending = Pending::short();
        let done = heed(session, &line);
        drop(pending);
        if input.is_terminal() {
            interrupt::go_on()?
        } else {
            interrupt::check()?
        }
        match done {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            // Who sits at a terminal reads the sentence and goes on.
            Err(Failure::Input(sentence)) if input.is_terminal() => {
                say(format!("error: {sentence}"))
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Does what a line asks for; breaks if it is to leave.
fn heed(session: &mut Session<'_>, line: &Line) -> Result<ControlFlow<()>, Failure> {
    let line = match line {
        Line::Text(line) => line,
        Line::Message(message) => {
            session.say(message)?;
            return Ok(ControlFlow::Continue(()));
        }
        Line::Interrupted | Line::NoText | Line::End => return Ok(ControlFlow::Continue(())),
    };
    match command::parse(line).map_err(Failure::Input)? {
        None => session.say(line)?,
        Some(Command::Exit) => return Ok(ControlFlow::Break(())),
        Some(command) => command.run(session)?,
    }
    Ok(ControlFlow::Continue(()))
}
