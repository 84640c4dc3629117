//! Tab completion of commands, parameters and file names in `chat`.

use std::fs;
use std::path::Path;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::command::{self, CommandOperand};
use super::parameter;

/// The line editor at a terminal.
pub(super) type LineEditor = Editor<ChatHelper, FileHistory>;

/// The callbacks of the line editor. Only completion is implemented.
pub(super) struct ChatHelper;

impl Helper for ChatHelper {}
impl Highlighter for ChatHelper {}
impl Validator for ChatHelper {}

impl Hinter for ChatHelper {
    type Hint = String;
}

impl Completer for ChatHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = candidates(&line[..at]);
        let pair = |word: String| Pair {
            display: word.clone(),
            replacement: word,
        };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

/// Returns the offset of the word before the cursor, and the words that can complete it.
fn candidates(typed: &str) -> (usize, Vec<String>) {
    if !typed.starts_with('/') {
        return (typed.len(), vec![]);
    }

    let Some((name, rest)) = typed.split_once(char::is_whitespace) else {
        let names = command::names()
            .filter(|name| name.starts_with(typed))
            .map(|name| format!("{name} "));
        return (0, names.collect());
    };

    let rest = rest.trim_start();
    let start = typed.len() - rest.len();
    match command::operand(name) {
        Some(CommandOperand::File) => (start, files(rest)),
        Some(CommandOperand::Setting) => {
            let word = rest.strip_prefix("parameter ").unwrap_or(rest).trim_start();
            let names = parameter::names()
                .filter(|name| name.starts_with(word))
                .map(|name| format!("{name} "));
            let start = typed.len() - word.len();

            // A second word is the value of the parameter, which has no completion.
            if word.contains(char::is_whitespace) {
                (typed.len(), vec![])
            } else {
                (start, names.collect())
            }
        }
        Some(CommandOperand::None | CommandOperand::Text | CommandOperand::Tool) | None => {
            (typed.len(), vec![])
        }
    }
}

/// Returns the paths that begin with `typed`, in alphabetical order. Folders end with a slash.
fn files(typed: &str) -> Vec<String> {
    let (folder, name) = match typed.rfind('/') {
        Some(slash) => typed.split_at(slash + 1),
        None => ("", typed),
    };
    let listed = fs::read_dir(if folder.is_empty() {
        Path::new(".")
    } else {
        Path::new(folder)
    });
    let found = listed.into_iter().flatten().flatten().filter_map(|entry| {
        let found = entry.file_name().into_string().ok()?;
        // As in a shell, hidden files are completed only after a dot.
        let hidden = found.starts_with('.') && !name.starts_with('.');
        if hidden || !found.starts_with(name) {
            return None;
        }
        let end = if entry.path().is_dir() { "/" } else { "" };
        Some(format!("{folder}{found}{end}"))
    });
    let mut found: Vec<String> = found.collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_parameters_and_files_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["one.json", "one two", ".hidden"] {
            fs::write(at(name), "").unwrap();
        }

        fs::create_dir(at("old")).unwrap();
        let complete = |typed: &str| candidates(typed);
        assert_eq!(
            complete("/reg"),
            (0, vec!["/regenerate ".to_owned(), "/regen ".to_owned()])
        );
        assert_eq!(
            complete("/sa"),
            (0, vec!["/save ".to_owned(), "/save! ".to_owned()])
        );
        assert_eq!(
            complete("/set top"),
            (5, vec!["top_k ".to_owned(), "top_p ".to_owned()])
        );
        assert_eq!(
            complete("/set parameter see"),
            (15, vec!["seed ".to_owned()])
        );
        for typed in [
            "hello /sa",
            "/nothing x",
            "/reset o",
            "/system a",
            "/set seed 5 6",
        ] {
            assert_eq!(complete(typed), (typed.len(), vec![]), "{typed}");
        }

        let line = format!("/load {}", at("o"));
        assert_eq!(
            complete(&line),
            (
                6,
                vec![format!("{}/", at("old")), at("one two"), at("one.json")]
            )
        );
        let line = format!("/save! {}", at("one t"));
        assert_eq!(complete(&line), (7, vec![at("one two")]));
        assert_eq!(complete(&format!("/load {}", at("."))).1, [at(".hidden")]);
        assert_eq!(complete("/load /no-such-folder/x").1, Vec::<String>::new());
    }
}
