//! The commands with which this repository is checked, generated and released. `cargo xtask help`
//! lists them. Each command has a file or a folder.

mod bless;
mod book;
mod cargo;
mod chart;
mod ci;
mod cli;
mod codegen;
mod cubin;
mod cuda_tools;
mod dependencies;
mod diff;
mod dist;
mod families;
mod figures;
mod forms;
mod git;
mod gpu_round;
mod isa;
mod map;
mod meters;
mod names;
mod outside;
mod paths;
mod ptx;
mod ptxas;
mod revision;
mod soak;
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
    /// Compare the forms of instructions that ptxas and the emulator accept
    Forms(forms::Args),
    /// Write the generated files and tables
    Codegen(codegen::Args),
    /// Build the book under docs/, and check its links and code
    Book(book::Args),
    /// Accept the current output of the snapshot tests, and report the changes
    Bless(bless::Args),
    /// Print which crates and folders use which others
    Map(map::Args),
    /// Build the archive of a release for this machine
    Dist,
    /// Count the patterns that make docs and pages hard to read
    Prose(meters::prose::Args),
    /// List the largest functions, files and folders, in tokens
    Sizes(meters::sizes::Args),
    /// Run everything that needs a GPU; the binary alone suffices, on a machine without Rust
    GpuRound(gpu_round::Args),
    /// Abuse a running server for some minutes, and check its texts, memory and log
    Soak(soak::Args),
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
        XtaskCommand::Map(args) => map::run(&args),
        XtaskCommand::Dist => dist::run(),
        XtaskCommand::Prose(args) => meters::prose::run(&args),
        XtaskCommand::Sizes(args) => meters::sizes::run(&args),
        XtaskCommand::GpuRound(args) => gpu_round::run(&args),
        XtaskCommand::Soak(args) => soak::run(&args),
    };
    // Returned from `main`, the error would be printed with a backtrace if `RUST_BACKTRACE` is set.
    match result {
        Err(error) if !is_broken_pipe(&error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns true if the reader of the output has closed the pipe, as in `cargo xtask ptx | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
