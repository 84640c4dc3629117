//! Splits the words of a command into options, their values and positionals, as clap does.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use crate::model::options::ModelArg;

/// Finds options that clap does not know.
pub(super) trait Foreign {
    /// Returns the number of words that a foreign option and its value take at the beginning of
    /// `words`, or 0.
    fn length(&self, command: &Command, words: &[OsString]) -> usize;
}

/// A command line without foreign options.
struct NoForeign;

impl Foreign for NoForeign {
    fn length(&self, _: &Command, _: &[OsString]) -> usize {
        0
    }
}

/// A part of a command line: one or more words that belong together.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum CommandPiece<'a> {
    /// An option of the command with this id, together with its value if the value is a separate
    /// word.
    Option { words: &'a [OsString], id: &'a str },
    /// A foreign option, with its value.
    Foreign { words: &'a [OsString] },
    /// A word with a leading dash that is not an option of the command.
    Unknown { word: &'a OsString },
    /// A positional, or the word `--` and everything after it.
    Positional { words: &'a [OsString] },
}

/// Returns the names of the command in `words` if they contain the option `-m`.
pub(super) fn command_with_model_option(
    program: &Command,
    words: &[OsString],
) -> Option<Vec<String>> {
    let CalledCommand {
        names,
        command,
        rest,
    } = called(program, words)?;
    let has_option = |piece: &CommandPiece<'_>| match piece {
        CommandPiece::Option { id, .. } => *id == ModelArg::OPTION,
        _ => false,
    };
    if takes_model(command) && split(command, rest, &NoForeign).iter().any(has_option) {
        Some(names)
    } else {
        None
    }
}

/// Returns true if the command works on a model.
pub(super) fn takes_model(command: &Command) -> bool {
    command
        .get_arguments()
        .any(|arg| arg.get_id() == ModelArg::OPTION)
}

/// The command that the words of a command line call.
pub(super) struct CalledCommand<'c, 'w> {
    /// The names of the command and of its parents, for example `bench` and `batch`.
    pub(super) names: Vec<String>,
    pub(super) command: &'c Command,
    /// The words after the names.
    pub(super) rest: &'w [OsString],
}

/// Returns the command in `words`, or `None` if there is no such command.
pub(super) fn called<'c, 'w>(
    program: &'c Command,
    words: &'w [OsString],
) -> Option<CalledCommand<'c, 'w>> {
    let mut command = program.find_subcommand(words.get(1)?)?;
    let mut names = vec![command.get_name().to_owned()];
    let mut rest = &words[2..];
    while let Some(inner) = rest.first().and_then(|word| command.find_subcommand(word)) {
        command = inner;
        names.push(command.get_name().to_owned());
        rest = &rest[1..];
    }

    Some(CalledCommand {
        names,
        command,
        rest,
    })
}

/// Splits the words of a command.
pub(super) fn split<'a>(
    command: &'a Command,
    words: &'a [OsString],
    foreign: &impl Foreign,
) -> Vec<CommandPiece<'a>> {
    let mut pieces = vec![];
    let mut rest = words;
    while let [word, ..] = rest {
        if word == "--" {
            pieces.push(CommandPiece::Positional { words: rest });
            break;
        }

        let foreign = foreign.length(command, rest);
        let length = if foreign > 0 {
            pieces.push(CommandPiece::Foreign {
                words: &rest[..foreign],
            });
            foreign
        } else {
            let (piece, length) = known(command, rest);
            pieces.push(piece);
            length
        };
        rest = &rest[length..];
    }

    pieces
}

/// Returns the first piece of `words` if it is not foreign, and its number of words.
fn known<'a>(command: &'a Command, words: &'a [OsString]) -> (CommandPiece<'a>, usize) {
    let word = &words[0];
    match option(command, word) {
        OptionMatch::Positional => (CommandPiece::Positional { words: &words[..1] }, 1),
        OptionMatch::Unknown => (CommandPiece::Unknown { word }, 1),
        OptionMatch::Option { arg, has_value } => {
            // A value that must follow `=` is never a separate word.
            let wants_value = takes_value(arg) && !has_value && !arg.is_require_equals_set();
            let length = if wants_value { words.len().min(2) } else { 1 };
            (
                CommandPiece::Option {
                    words: &words[..length],
                    id: arg.get_id().as_str(),
                },
                length,
            )
        }
    }
}

/// The result of [`option`].
enum OptionMatch<'a> {
    Option { arg: &'a Arg, has_value: bool },
    Unknown,
    Positional,
}

/// Finds the option in a word. In a cluster of short options, such as `-qm`, it is the last one.
fn option<'a>(command: &'a Command, word: &OsStr) -> OptionMatch<'a> {
    let text = word.to_string_lossy();
    let Some(text) = text.strip_prefix('-').filter(|text| !text.is_empty()) else {
        return OptionMatch::Positional;
    };

    if let Some(long) = text.strip_prefix('-') {
        let (name, has_value) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let arg = command.get_arguments().find(|arg| has_long(arg, name));
        return arg.map_or(OptionMatch::Unknown, |arg| OptionMatch::Option {
            arg,
            has_value,
        });
    }

    let mut shorts = text.chars();
    let mut last = OptionMatch::Unknown;
    while let Some(short) = shorts.next() {
        let Some(arg) = command.get_arguments().find(|arg| has_short(arg, short)) else {
            return OptionMatch::Unknown;
        };
        // The rest of the word is the value.
        if takes_value(arg) {
            return OptionMatch::Option {
                arg,
                has_value: !shorts.as_str().is_empty(),
            };
        }
        last = OptionMatch::Option {
            arg,
            has_value: false,
        };
    }

    last
}

/// Returns true if the argument is the option `--name`.
pub(super) fn has_long(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name)
        || arg
            .get_all_aliases()
            .is_some_and(|aliases| aliases.contains(&name))
}

/// Returns true if the argument is the option `-name`.
pub(super) fn has_short(arg: &Arg, name: char) -> bool {
    arg.get_short() == Some(name)
        || arg
            .get_all_short_aliases()
            .is_some_and(|aliases| aliases.contains(&name))
}

/// Returns true if the argument is an option with a value.
fn takes_value(arg: &Arg) -> bool {
    !arg.is_positional() && arg.get_action().takes_values()
}
