//! Splits the words of a command into options, their values and positionals, as clap does.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use crate::options::ModelArg;

/// What a word of a command line is, with the words that belong to it.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Word<'a> {
    /// An option, alone or with its value in the same word. The id is that of the clap argument.
    Option { word: &'a OsStr, id: &'a str },
    /// An option whose value is the next word.
    OptionAndValue { word: &'a OsStr, id: &'a str, value: &'a OsStr },
    /// A word with a leading dash that is not an option of the command.
    Unknown { word: &'a OsStr },
    /// A positional, or the word `--` and everything after it.
    Positional { word: &'a OsStr },
}

/// Returns the name of the command that `words` call, if they have the option `-m`.
pub(super) fn command_with_model_option(program: &Command, words: &[OsString]) -> Option<String> {
    let (command, rest) = called(program, words)?;
    let model = command.get_arguments().any(|arg| arg.get_id() == ModelArg::OPTION);
    let has_option = |word| match word {
        Word::Option { id, .. } | Word::OptionAndValue { id, .. } => id == ModelArg::OPTION,
        Word::Unknown { .. } | Word::Positional { .. } => false,
    };
    (model && split(command, rest).into_iter().any(has_option)).then(|| command.get_name().to_owned())
}

/// Returns the command that `words` call and the words after its name.
pub(super) fn called<'c, 'w>(
    program: &'c Command,
    words: &'w [OsString],
) -> Option<(&'c Command, &'w [OsString])> {
    let name = words.get(1)?;
    let command = program.find_subcommand(name)?;
    Some((command, &words[2..]))
}

/// Splits the words of a command.
pub(super) fn split<'a>(command: &'a Command, words: &'a [OsString]) -> Vec<Word<'a>> {
    let mut split = vec![];
    let mut rest = words.iter().map(OsString::as_os_str);
    while let Some(word) = rest.next() {
        if word == "--" {
            split.push(Word::Positional { word });
            split.extend(rest.by_ref().map(|word| Word::Positional { word }));
            break;
        }
        let (arg, has_value) = match option(command, word) {
            Found::Option { arg, has_value } => (arg, has_value),
            Found::Unknown => {
                split.push(Word::Unknown { word });
                continue;
            }
            Found::Positional => {
                split.push(Word::Positional { word });
                continue;
            }
        };
        let id = arg.get_id().as_str();
        // A value that must follow `=` is never a word by itself.
        let wants_value = takes_value(arg) && !has_value && !arg.is_require_equals_set();
        split.push(match wants_value.then(|| rest.next()).flatten() {
            Some(value) => Word::OptionAndValue { word, id, value },
            None => Word::Option { word, id },
        });
    }
    split
}

enum Found<'a> {
    Option { arg: &'a Arg, has_value: bool },
    Unknown,
    Positional,
}

/// Finds the option that a word names. Of a cluster of short options, such as `-qm`, it is the last one.
fn option<'a>(command: &'a Command, word: &OsStr) -> Found<'a> {
    let bytes = word.as_encoded_bytes();
    if !bytes.starts_with(b"-") || bytes == b"-" {
        return Found::Positional;
    }
    let text = word.to_string_lossy();
    if let Some(long) = text.strip_prefix("--") {
        let (name, has_value) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let arg = command.get_arguments().find(|arg| has_long(arg, name));
        return arg.map_or(Found::Unknown, |arg| Found::Option { arg, has_value });
    }
    let mut shorts = text[1..].chars();
    let mut last = Found::Unknown;
    while let Some(short) = shorts.next() {
        let Some(arg) = command.get_arguments().find(|arg| has_short(arg, short)) else {
            return Found::Unknown;
        };
        // The rest of the word is the value.
        if takes_value(arg) {
            return Found::Option { arg, has_value: !shorts.as_str().is_empty() };
        }
        last = Found::Option { arg, has_value: false };
    }
    last
}

fn has_long(arg: &Arg, name: &str) -> bool {
    arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn has_short(arg: &Arg, name: char) -> bool {
    arg.get_short() == Some(name)
        || arg.get_all_short_aliases().is_some_and(|aliases| aliases.contains(&name))
}

fn takes_value(arg: &Arg) -> bool {
    !arg.is_positional() && arg.get_action().takes_values()
}
