//! The `warpwright` program: runs and fine-tunes language models with PTX kernels written in Rust.

mod arguments;
mod commands;
mod device;
mod failure;
mod generation;
mod hub;
mod model;
mod prompt;
mod terminal;
mod training;

use std::env;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpwright_emu::failure::report_usage;
use warpwright_emu::terminal::say;
use warpwright_emu::{Invocation, interrupt, output};

use arguments::ParsedArguments;
use commands::{
    bench, chat, check, completions, detokenize, devices, doctor, embed, finetune, graph, info,
    logits, merge, models, perplexity, pull, run, serve, tokenize,
};
use failure::Failure;
use terminal::{progress, settings};

#[derive(Parser)]
#[command(name = "warpwright", version = warpwright_emu::VERSION, about, after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text, or answer a question with --chat
    Run(Box<run::Args>),
    /// Have a conversation with a model
    Chat(Box<chat::Args>),
    /// Serve models over HTTP, with the protocols of OpenAI and Anthropic
    ///
    /// MODEL can also be a folder of models. Each is loaded when a request names it. A server with
    /// one model accepts every name in requests.
    Serve(Box<serve::Args>),
    /// Write the logits of each position of a list of tokens
    Logits(logits::Args),
    /// Measure how well a model predicts a text (perplexity)
    Perplexity(Box<perplexity::Args>),
    /// Print an embedding vector for each text
    Embed(Box<embed::Args>),
    /// Train a LoRA adapter on a frozen model
    Finetune(Box<finetune::Args>),
    /// Merge a LoRA adapter into the weights of its model
    Merge(merge::Args),
    /// Download a model from the Hugging Face hub
    Pull(pull::Args),
    /// List the downloaded models, or remove one
    Models(models::Args),
    /// Show the tokens of a text
    Tokenize(tokenize::Args),
    /// Show the text of tokens
    Detokenize(detokenize::Args),
    /// Show the contents of a model file without loading it
    Info(info::Args),
    /// Compare every kernel with its CPU reference on this device
    Check(check::Args),
    /// Find memory errors and races in the kernels of a PTX file, on the CPU emulator
    Emu(Box<warpwright_emu::Args>),
    /// Measure the speed of decoding, prompts, batches or fine-tuning
    ///
    /// `bench MODEL` is short for `bench decode MODEL`.
    Bench(Box<bench::Args>),
    /// List the devices that models can run on
    Devices,
    /// Check the driver, the GPUs and the kernel cache, and suggest fixes
    Doctor,
    /// Print a shell script that completes commands and options
    Completions(completions::Args),
    /// Write the decode graph of a model as a Graphviz file
    Graph(graph::Args),
}

fn main() -> ExitCode {
    match arguments::parse::<Cli>(env::args_os().collect()) {
        Ok(ParsedArguments { arguments, notes }) => {
            for note in &notes {
                say(note);
            }
            run(arguments.command).map_or_else(Failure::report, |()| ExitCode::SUCCESS)
        }
        Err(error) => report_usage(&error),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::install(&[output::forget_all, progress::wipe, settings::restore])?;
    match command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Finetune(args) => finetune::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Pull(args) => pull::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Detokenize(args) => detokenize::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Emu(args) => Ok(warpwright_emu::run(&args, Invocation::Subcommand)?),
        Command::Bench(args) => bench::run(&args),
        Command::Devices => devices::run(),
        Command::Doctor => doctor::run(),
        Command::Completions(args) => completions::run::<Cli>(&args),
        Command::Graph(args) => graph::run(&args),
    }
}
