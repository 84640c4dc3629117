//! The repository's own commands: `cargo xtask help` lists them. One file a command.

mod bless;
mod ci;
mod codegen;
mod cubin;
mod cuda_tools;
mod dependencies;
mod isa;
mod markdown;
mod paths;
mod ptx;
mod ptxas;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The repository's own commands", disable_version_flag = true)]
enum Command {
    /// Check everything that a change must pass
    Ci(ci::Args),
    /// Print the PTX of kernels, or write all of it to a folder
    Ptx(ptx::Args),
    /// Assemble every kernel for every target with ptxas
    Ptxas(ptxas::Args),
    /// Write the generated files
    Codegen(codegen::Args),
    /// Accept the snapshots of the last test run
    Bless(bless::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Ci(args) => ci::run(&args),
        Command::Ptx(args) => ptx::run(&args),
        Command::Ptxas(args) => ptxas::run(&args),
        Command::Codegen(args) => codegen::run(&args),
        Command::Bless(args) => bless::run(&args),
    };
    // Not through `main`'s result: there anyhow prints a backtrace where one is asked for.
    result.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
