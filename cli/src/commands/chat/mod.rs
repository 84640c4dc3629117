//! `warpwright chat`: a conversation with a model, at a terminal or through pipes.
//!
//! At a terminal, the user edits lines, and Ctrl-C ends an answer. From a pipe, each line is a
//! message, and an error ends the program. A message of several lines begins and ends with `"""`.

mod args;
mod command;
mod complete;
mod history;
mod input;
mod parameter;
mod session;

use std::ops::ControlFlow;
use std::sync::Arc;

use warpwright_engine::Sampling;

use crate::device;
use crate::failure::Failure;
use crate::generation::options::{ContextSize, DefaultSampling, EXPECTED_TOKENS, UNLIMITED_CTX};
use crate::model::adapter;
use crate::prompt::source;
use crate::prompt::template::ConfiguredTemplate;
pub(crate) use args::Args;
use command::ChatCommand;
use input::{ChatInput, InputLine};
use parameter::ChatParameters;
use session::{ContextLimits, ReloadableModel, Session, TextTools};
use warpwright_emu::interrupt::{self, PendingInterrupt};
use warpwright_emu::terminal::say;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stops = args.generate.stops()?;
    let model = args.generate.open()?;
    let sampling = args.generate.sampling(&model, DefaultSampling::Sampled)?;
    let template = ConfiguredTemplate::open(&args.template, &model)?;
    let tokenizer = Arc::new(source::tokenizer(&model)?);
    let grammar = args.generate.grammar.compile(&model, &tokenizer)?;
    let context = device::open(args.generate.target.device)?;
    let ctx = args.generate.target.context_length(&model, UNLIMITED_CTX);
    let size = ContextSize {
        ctx,
        // Any message may be as long as the context.
        prompt: ctx as usize,
        expected_tokens: EXPECTED_TOKENS.into(),
    };
    let load = |sampling: &Sampling| {
        args.generate
            .writer(&context, &model, sampling, &size, Some(&tokenizer))
    };
    let writer = load(&sampling)?;
    if let Some(line) = adapter::line(&model.outline) {
        say(line);
    }

    let limits = ContextLimits {
        ctx,
        when_full: args.when_full,
    };
    let tools = TextTools {
        tokenizer: &tokenizer,
        template: &template,
        end_tokens: &model.outline.stop,
        stops: &stops,
        grammar: grammar.as_ref(),
    };
    let parameters = ChatParameters {
        sampling: sampling.clone(),
        tokens: args.n.limit(),
    };
    let reloadable = ReloadableModel {
        load: &load,
        writer: Some(writer),
        vocab: model.outline.config.vocab,
    };
    let mut session = Session::new(reloadable, tools, limits, parameters);
    if let Some(text) = args.template.system() {
        session.set_system(text);
    }

    let input = ChatInput::open(args)?;
    if sampling.temperature > 0.0 {
        say(format!(
            "temperature {}, --seed {}",
            sampling.temperature, sampling.seed
        ));
    }

    talk(&mut session, input)
}

/// Reads lines and executes them, until the user leaves or the input ends.
fn talk(session: &mut Session<'_>, mut input: ChatInput) -> Result<(), Failure> {
    if input.is_terminal() {
        say(format!(
            "/help lists the commands, Ctrl-D leaves ({} positions)",
            session.limits.ctx
        ));
    }
    loop {
        let line = match input.read()? {
            InputLine::Text(line) | InputLine::Message(line) if line.trim().is_empty() => continue,
            line @ (InputLine::Text(_) | InputLine::Message(_)) => line,
            InputLine::Interrupted => {
                say("Ctrl-D or /exit leaves");
                continue;
            }
            InputLine::NoText => {
                say("error: the line is not valid UTF-8 and is ignored");
                continue;
            }
            InputLine::End => return Ok(()),
        };

        // While a line is executed, Ctrl-C ends the answer and not the program.
        let pending = PendingInterrupt::short();
        let done = execute(session, &line);
        drop(pending);
        if input.is_terminal() {
            interrupt::go_on()?
        } else {
            interrupt::check()?
        }

        match done {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            // The user at a terminal can correct the line. A script cannot.
            Err(Failure::Input(sentence)) if input.is_terminal() => {
                say(format!("error: {sentence}"))
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Executes a command or sends a message. Returns `Break` if the line ends the conversation.
fn execute(session: &mut Session<'_>, line: &InputLine) -> Result<ControlFlow<()>, Failure> {
    let line = match line {
        InputLine::Text(line) => line,
        InputLine::Message(message) => {
            session.say(message)?;
            return Ok(ControlFlow::Continue(()));
        }
        InputLine::Interrupted | InputLine::NoText | InputLine::End => {
            return Ok(ControlFlow::Continue(()));
        }
    };
    match command::parse(line).map_err(Failure::Input)? {
        None => session.say(line)?,
        Some(ChatCommand::Exit) => return Ok(ControlFlow::Break(())),
        Some(command) => command.run(session)?,
    }
    Ok(ControlFlow::Continue(()))
}
