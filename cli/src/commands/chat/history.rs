//! The typed lines of earlier conversations, which the line editor offers again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;

use super::args::Args;
use super::complete::LineEditor;
use warpwright_emu::terminal::say;

/// The file of typed lines, or `None` if lines are not kept.
pub(super) struct LineHistory(Option<PathBuf>);

impl LineHistory {
    /// Loads the file into the editor. If it cannot be read, prints a warning and never writes to
    /// it.
    pub(super) fn load(args: &Args, editor: &mut LineEditor) -> LineHistory {
        let path = args
            .history
            .clone()
            .or_else(usual)
            .filter(|_| !args.no_history);
        let Some(path) = path else {
            return LineHistory(None);
        };
        if !path.exists() {
            return LineHistory(Some(path));
        }

        let loaded = editor.load_history(&path);
        LineHistory(usable(&path, loaded))
    }

    /// Adds a line to the editor and the file. If it cannot be written, prints a warning once and
    /// stops writing.
    pub(super) fn add(&mut self, editor: &mut LineEditor, line: &str) {
        let added = editor.add_history_entry(line).unwrap_or(false);
        if let Some(path) = self.0.take_if(|_| added) {
            if let Some(folder) = path.parent() {
                // An error is ignored here, because then the append fails too and reports its
                // reason.
                let _ = fs::create_dir_all(folder);
            }
            let appended = editor.append_history(&path);
            self.0 = usable(&path, appended);
        }
    }
}

/// Returns the path, or prints a warning and returns `None` if it cannot be used.
fn usable(path: &Path, done: Result<(), ReadlineError>) -> Option<PathBuf> {
    match done {
        Ok(()) => Some(path.to_owned()),
        Err(error) => {
            say(format!(
                "warning: typed lines are not kept in {}: {error}",
                path.display()
            ));
            None
        }
    }
}

/// Returns the default file, in the user's state folder of the XDG base directory specification
/// (<https://specifications.freedesktop.org/basedir-spec/latest/>).
///
/// Returns `None` if the user has no home directory.
fn usual() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    let state = state.or_else(|| Some(env::home_dir()?.join(".local/state")))?;
    Some(state.join("warpwright").join("chat_history"))
}
