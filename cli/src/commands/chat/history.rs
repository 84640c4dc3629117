//! The lines of earlier conversations, in a file that only the user reads.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;

use super::Args;
use super::input::LineEditor;
use crate::terminal::say;

/// Where lines are remembered, if they are.
pub(super) struct History(Option<PathBuf>);

impl History {
    /// Lets the editor have the lines of the file. A file that cannot be read is said to be so, and left alone.
    pub(super) fn load(args: &Args, editor: &mut LineEditor) -> History {
        let path = args
            .history
            .clone()
            .or_else(usual)
            .filter(|_| !args.no_history);
        let Some(path) = path else {
            return History(None);
        };
        if !path.exists() {
            return History(Some(path));
        }
        let loaded = editor.load_history(&path);
        History(heeded(&path, loaded))
    }

    /// Remembers a line. One that cannot be written is the last that is tried.
    pub(super) fn add(&mut self, editor: &mut LineEditor, line: &str) {
        let added = editor.add_history_entry(line).unwrap_or(false);
        if let Some(path) = self.0.take_if(|_| added) {
            // If that fails, so does what follows, with a reason.
            path.parent()
                .into_iter()
                .for_each(|folder| drop(fs::create_dir_all(folder)));
            let appended = editor.append_history(&path);
            self.0 = heeded(&path, appended);
        }
    }
}

/// The path, unless something went wrong with it.
fn heeded(path: &Path, done: Result<(), ReadlineError>) -> Option<PathBuf> {
    match done {
        Ok(()) => Some(path.to_owned()),
        Err(error) => {
            say(format!(
                "warning: lines are not remembered in {}: {error}",
                path.display()
            ));
            None
        }
    }
}

/// The file in the user's folder for state
/// (<https://specifications.freedesktop.org/basedir-spec/latest/>); where there is no such folder, none.
fn usual() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    let state = state.or_else(|| Some(env::home_dir()?.join(".local/state")))?;
    Some(state.join("warpwright").join("chat_history"))
}
