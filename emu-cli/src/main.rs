//! The `warpwright-emu` program: the command `warpwright emu` alone.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args as _, Command, FromArgMatches, value_parser};
use clap_complete::Shell;
use warpwright_emu::{Args, Failure, Invocation, VERSION, failure, interrupt, misspelling, output};

/// The option that prints a completion script. No other program of this workspace has it, because
/// `warpwright` has a command for that.
const COMPLETIONS: &str = "completions";

fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return failure::report_usage(&misspelling::correct(error, &mut called())),
    };
    let done = match matches.get_one::<Shell>(COMPLETIONS) {
        Some(shell) => complete(*shell),
        None => match Args::from_arg_matches(&matches) {
            Ok(args) => run(&args),
            Err(error) => return failure::report_usage(&error.format(&mut command())),
        },
    };
    done.map_or_else(Failure::report, |()| ExitCode::SUCCESS)
}

fn run(args: &Args) -> Result<(), Failure> {
    interrupt::install(&[output::forget_all])?;
    warpwright_emu::run(args, Invocation::Program)
}

/// Returns the command line of the program.
fn command() -> Command {
    let completions = clap::Arg::new(COMPLETIONS)
        .long("completions")
        .value_name("SHELL")
        .value_parser(value_parser!(Shell))
        .exclusive(true)
        .help("Print a shell script that completes options, and do nothing else");
    let command = Command::new(Invocation::Program.program()).version(VERSION);

    // The description comes last, because the options bring the text of their own docs.
    let command = Args::augment_args(command)
        .arg(completions)
        .about("Find memory errors and races in the kernels of a PTX file, on the CPU emulator");
    Invocation::Program.explain(command)
}

/// Returns the command whose options the user has typed: the program, or its subcommand.
fn called() -> Command {
    let mut program = command();
    program.build();
    let inner = std::env::args_os().nth(1);
    match inner.and_then(|name| program.find_subcommand(name).cloned()) {
        Some(inner) => inner,
        None => program,
    }
}

/// Prints the completion script of a shell.
fn complete(shell: Shell) -> Result<(), Failure> {
    let mut script = vec![];
    let name = Invocation::Program.program();
    clap_complete::generate(shell, &mut command(), name, &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}
