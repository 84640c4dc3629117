//! The command line, from the words that the user typed to the arguments of a command.
//!
//! clap parses it. Four steps around clap do things that clap cannot express:
//! - [`spelling`] replaces spellings of llama.cpp, such as `-ngl 99`, because clap would read it as
//!   `-n gl`.
//! - [`mod@bench`] inserts the subcommand of `bench` that a user may leave out.
//! - With `-m MODEL`, the first argument is the next positional of the command.
//! - [`tip`] replaces clap's suggestions. clap suggests the most similar name, and `tip` a name
//!   with the same meaning.

mod bench;
mod examples;
mod spelling;
mod tip;
mod words;

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::model::options::ModelArg;

/// A parsed command line.
pub(crate) struct ParsedArguments<C> {
    pub(crate) arguments: C,
    /// A note for each option that has no effect.
    pub(crate) notes: Vec<String>,
}

/// Parses the words of the command line. The first word is the name of the program.
///
/// # Errors
/// Returns clap's error, which is also the way to print help and version.
pub(crate) fn parse<C>(words: Vec<OsString>) -> Result<ParsedArguments<C>, clap::Error>
where
    C: CommandFactory + FromArgMatches,
{
    let mut command = examples::add(C::command());
    let words = bench::with_subcommand(&mut command, words)?;

    // This comes before the search for -m, which would otherwise take the value of a foreign option
    // for an option.
    let respelled = spelling::respell(&command, &words)
        .map_err(|word| tip::unexpected(word, &mut command.clone(), &words))?;
    if let Some(names) = words::command_with_model_option(&command, &respelled.words) {
        command = change(command, &names, without_positional_model);
    }

    let parsed = command
        .try_get_matches_from_mut(&respelled.words)
        .and_then(|mut matches| {
            C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
        });
    match parsed {
        Ok(arguments) => Ok(ParsedArguments {
            arguments,
            notes: respelled.notes,
        }),
        Err(error) => Err(tip::explain(error, &mut command, &respelled.words)),
    }
}

/// Changes the command with these names.
fn change(program: Command, names: &[String], edit: fn(Command) -> Command) -> Command {
    match names.split_first() {
        None => edit(program),
        Some((name, rest)) => program.mut_subcommand(name, |command| change(command, rest, edit)),
    }
}

/// Turns the positional MODEL into a hidden, optional option, so that the first argument is the
/// next positional.
///
/// clap has no way to remove an argument.
fn without_positional_model(command: Command) -> Command {
    let command = command.mut_arg(ModelArg::POSITIONAL, |model| {
        model.long("positional-model").hide(true).required(false)
    });
    command.mut_arg(ModelArg::OPTION, |model| model.required(true))
}
