//! `warpwright completions`: prints a shell script that completes commands and options.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell to print the script for
    shell: Shell,
}

/// Prints the script for the program with the commands of `C`.
pub(crate) fn run<C: CommandFactory>(args: &Args) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut C::command(), "warpwright", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}
