//! The words with which a user calls the command.

use clap::Command;

use super::help::HELP;

/// The program that contains the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// `warpwright emu`
    Subcommand,
    /// `warpwright-emu`
    Program,
}

impl Invocation {
    /// Returns the name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Invocation::Subcommand => "warpwright",
            Invocation::Program => "warpwright-emu",
        }
    }

    /// Returns the words before the options: the program, and the subcommand if there is one.
    pub fn words(self) -> &'static str {
        match self {
            Invocation::Subcommand => SUBCOMMAND,
            Invocation::Program => "warpwright-emu",
        }
    }

    /// Returns the command with examples that begin with these words.
    pub fn explain(self, command: Command) -> Command {
        command.after_help(HELP.replace(SUBCOMMAND, self.words()))
    }
}

const SUBCOMMAND: &str = "warpwright emu";
