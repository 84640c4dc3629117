//! The repository's own commands: `cargo xtask help` lists them. One file a command.

mod bless;
mod book;
mod chart;
mod ci;
mod cli;
mod codegen;
mod cubin;
mod cuda_tools;
mod dependencies;
mod diff;
mod dist;
mod figures;
mod forms;
mod gpu_round;
mod isa;
mod meters;
mod names;
mod outside;
mod paths;
mod ptx;
mod ptxas;
mod revision;
mod tools;
mod tsv;

use std::io;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The repository's own commands",
    disable_version_flag = true
)]
enum XtaskCommand {
    /// Check everything that a change must pass
    Ci(ci::Args),
    /// Print the PTX of kernels, write all of it to a folder, or compare it with another revision's
    Ptx(ptx::Args),
    /// Assemble every kernel for every target with ptxas
    Ptxas(ptxas::Args),
    /// Compare the forms of instructions that ptxas takes with those of the emulator
    Forms(forms::Args),
    /// Write the generated files and tables
    Codegen(codegen::Args),
    /// Build the book under docs/, and check its links and code
    Book(book::Args),
    /// Accept what the snapshot tests print now, and say what changed
    Bless(bless::Args),
    /// Build the archive of a release for this machine
    Dist,
    /// Count the patterns that make docs and pages hard to read
    Prose(meters::prose::Args),
    /// List the largest functions, files and folders, in tokens
    Sizes(meters::sizes::Args),
    /// Run everything that needs a GPU; the binary alone suffices, on a machine without Rust
    GpuRound(gpu_round::Args),
}

fn main() -> ExitCode {
    let result = match XtaskCommand::parse() {
        XtaskCommand::Ci(args) => ci::run(&args),
        XtaskCommand::Ptx(args) => ptx::run(&args),
        XtaskCommand::Ptxas(args) => ptxas::run(&args),
        XtaskCommand::Forms(args) => forms::run(&args),
        XtaskCommand::Codegen(args) => codegen::run(&args),
        XtaskCommand::Book(args) => book::run(&args),
        XtaskCommand::Bless(args) => bless::run(&args),
        XtaskCommand::Dist => dist::run(),
        XtaskCommand::Prose(args) => meters::prose::run(&args),
        XtaskCommand::Sizes(args) => meters::sizes::run(&args),
        XtaskCommand::GpuRound(args) => gpu_round::run(&args),
    };
    // Not through `main`'s result: there anyhow prints a backtrace where one is asked for.
    match result {
        Err(error) if !is_broken_pipe(&error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Whether the reader of the output has read enough: `cargo xtask ptx | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
