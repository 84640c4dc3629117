//! The subcommand of `bench`, which the user may leave out, and options that became subcommands.
//!
//! `bench MODEL` is short for `bench decode MODEL`. clap cannot express a default subcommand, so
//! this file inserts the word before clap parses the command line.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, Error};

use warpwright_emu::misspelling::is_typo;
use warpwright_emu::shell::quoted;

/// The command whose subcommand may be left out.
const BENCH: &str = "bench";
/// The subcommand that is inserted.
const DEFAULT: &str = "decode";

/// Inserts the default subcommand into the words of a command line that calls `bench` without one.
///
/// # Errors
/// Returns an error that names the new spelling if there is an option that became a subcommand.
pub(super) fn with_subcommand(
    program: &mut Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, Error> {
    let Some(bench) = program.find_subcommand(BENCH) else {
        return Ok(words);
    };
    if words.get(1).is_none_or(|word| word != BENCH) {
        return Ok(words);
    }

    match words.get(2) {
        None => return Ok(words),
        Some(word) if word == DEFAULT => {}
        Some(word) if is_known(bench, word) || is_misspelled(bench, word) => return Ok(words),
        Some(_) => words.insert(2, DEFAULT.into()),
    }

    match MovedOption::find(&words[3..]) {
        None => Ok(words),
        Some(moved) => {
            let message = moved.message(&words[3..]);
            program.build();
            let bench = program
                .find_subcommand_mut(BENCH)
                .expect("the program has this command");
            Err(bench.error(ErrorKind::UnknownArgument, message))
        }
    }
}

/// Returns true if clap knows the word: as a subcommand, or as a request for help.
fn is_known(bench: &Command, word: &OsStr) -> bool {
    word == "help" || word == "-h" || word == "--help" || bench.find_subcommand(word).is_some()
}

/// Returns true if the word is probably a misspelled subcommand and not a model.
fn is_misspelled(bench: &Command, word: &OsStr) -> bool {
    let similar = |text: &str| {
        bench
            .get_subcommands()
            .any(|command| is_typo(text, command.get_name()))
    };
    // `--finetune` differs from `finetune` by two letters, and is an option.
    word.to_str()
        .is_some_and(|text| !text.starts_with('-') && similar(text))
        && !Path::new(word).exists()
}

/// Options that select a measurement, and became a subcommand.
struct MovedOption {
    /// The options, for a message.
    options: &'static str,
    subcommand: &'static str,
    /// The options that the subcommand does not have any more.
    dropped: &'static [&'static str],
    /// The old and the new name of an option.
    renamed: Option<(&'static str, &'static str)>,
}

impl MovedOption {
    /// Returns the measurement that the words select, if one of them is such an option.
    fn find(words: &[OsString]) -> Option<MovedOption> {
        let has = |option: &str| own(words).iter().any(|word| is_option(word, option));
        if has("--finetune") {
            return Some(MovedOption {
                options: "`--finetune`",
                subcommand: "finetune",
                dropped: &["--finetune"],
                renamed: None,
            });
        }

        if has("--prompt") && has("--profile") {
            return Some(MovedOption {
                options: "`--prompt` with `--profile`",
                subcommand: "chunk",
                dropped: &["--profile"],
                renamed: Some(("--prompt", "--tokens")),
            });
        }

        if has("--prompt") {
            return Some(MovedOption {
                options: "`--prompt`",
                subcommand: "prompt",
                dropped: &[],
                renamed: Some(("--prompt", "--tokens")),
            });
        }

        if has("--batch") {
            return Some(MovedOption {
                options: "`--batch`",
                subcommand: "batch",
                dropped: &[],
                renamed: Some(("--batch", "--sequences")),
            });
        }

        if has("--kernels") {
            return Some(MovedOption {
                options: "`--kernels`",
                subcommand: "kernels",
                dropped: &["--kernels"],
                renamed: None,
            });
        }

        if has("--profile") {
            return Some(MovedOption {
                options: "`--profile`",
                subcommand: "profile",
                dropped: &["--profile"],
                renamed: None,
            });
        }

        None
    }

    /// Returns the message, with the command line in the new spelling.
    fn message(&self, words: &[OsString]) -> String {
        let mut line = format!("warpwright {BENCH} {}", self.subcommand);
        let own = own(words).len();
        for (i, word) in words.iter().enumerate() {
            let is_own = i < own;
            if is_own && self.dropped.iter().any(|option| is_option(word, option)) {
                continue;
            }

            let mut text = word.to_string_lossy().into_owned();
            if let Some((old, new)) = self.renamed
                && is_own
                && is_option(word, old)
            {
                text = text.replacen(old, new, 1);
            }

            line.push(' ');
            line.push_str(&quoted(&text));
        }

        format!("{} is now a subcommand. Write `{line}`", self.options)
    }
}

/// Returns the words before `--`, after which there are no options.
fn own(words: &[OsString]) -> &[OsString] {
    let end = words.iter().position(|word| word == "--");
    &words[..end.unwrap_or(words.len())]
}

/// Returns true if the word is an option, with or without a value after `=`.
fn is_option(word: &OsStr, option: &str) -> bool {
    let rest = word.to_str().and_then(|word| word.strip_prefix(option));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn changed(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let words =
            with_subcommand(&mut Cli::command(), words).map_err(|error| error.to_string())?;
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        Ok(words.join(" "))
    }

    #[test]
    fn decode_is_inserted_before_a_model_or_an_option() {
        let cases = [
            ("w bench m.gguf", "w bench decode m.gguf"),
            (
                "w bench -m m.gguf --ctx 1",
                "w bench decode -m m.gguf --ctx 1",
            ),
            (
                "w bench --shape s --quant q",
                "w bench decode --shape s --quant q",
            ),
            ("w bench ./batch", "w bench decode ./batch"),
            ("w bench -- --batch", "w bench decode -- --batch"),
            ("w bench decode decode", "w bench decode decode"),
            ("w bench batch m", "w bench batch m"),
            (
                "w bench profile m --prompt 4",
                "w bench profile m --prompt 4",
            ),
            // clap reports it, with a tip.
            ("w bench kernel m", "w bench kernel m"),
            ("w bench", "w bench"),
            ("w bench --help", "w bench --help"),
            ("w bench help batch", "w bench help batch"),
            ("w run bench --batch", "w run bench --batch"),
        ];
        for (line, wanted) in cases {
            assert_eq!(changed(line).unwrap(), wanted, "{line}");
        }
    }

    #[test]
    fn the_new_spelling_of_an_option_is_stated() {
        let cases = [
            (
                "m --batch 1,8 --join 9 --profile",
                "`--batch` is now a subcommand. Write `warpwright bench batch m --sequences 1,8 --join 9 --profile`",
            ),
            (
                "--finetune --batch=4 --seq 512 -m m",
                "`--finetune` is now a subcommand. Write `warpwright bench finetune --batch=4 --seq 512 -m m`",
            ),
            (
                "m --prompt=20 --profile",
                "`--prompt` with `--profile` is now a subcommand. Write `warpwright bench chunk m --tokens=20`",
            ),
            (
                "decode m --prompt 512 --rounds 2",
                "`--prompt` is now a subcommand. Write `warpwright bench prompt m --tokens 512 --rounds 2`",
            ),
            (
                "m --kernels --ctx 9",
                "`--kernels` is now a subcommand. Write `warpwright bench kernels m --ctx 9`",
            ),
            (
                "m$1 --profile",
                "`--profile` is now a subcommand. Write `warpwright bench profile 'm$1'`",
            ),
        ];
        for (arguments, wanted) in cases {
            let error = changed(&format!("w bench {arguments}")).unwrap_err();
            assert!(error.starts_with(&format!("error: {wanted}\n")), "{error}");
        }
    }
}
