//! The command line, from the words that the user typed to the arguments of a command.
//!
//! clap parses it. [`words`] splits the words of a command in advance, because clap cannot express that `-m MODEL` takes
//! the place of the first argument.

mod words;

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::options::ModelArg;

/// Parses the words of the command line, of which the first names the program.
///
/// # Errors
/// Returns clap's error, which is also the way to print help and version.
pub(crate) fn parse<C: CommandFactory + FromArgMatches>(words: Vec<OsString>) -> Result<C, clap::Error> {
    let mut command = C::command();
    if let Some(name) = words::command_with_model_option(&command, &words) {
        command = command.mut_subcommand(name, without_positional_model);
    }
    let mut matches = command.try_get_matches_from_mut(words)?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Turns the positional MODEL into a hidden option that is not required, so that the first argument is the next
/// positional. clap has no way to remove it.
fn without_positional_model(command: Command) -> Command {
    let command = command
        .mut_arg(ModelArg::POSITIONAL, |model| model.long("positional-model").hide(true).required(false));
    command.mut_arg(ModelArg::OPTION, |model| model.required(true))
}
