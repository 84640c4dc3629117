//! Running cargo and other commands from the root of the repository.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::paths;

/// Runs cargo and returns an error if it fails.
pub(super) fn cargo(arguments: &[&str]) -> Result<()> {
    must(crate::cargo::command().args(arguments))
}

/// Runs a command from the root of the repository and returns an error if it fails.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let status = command.current_dir(paths::root()).status()?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Returns true if a cargo command succeeds. Its output is discarded.
pub(super) fn succeeds(arguments: &[&str]) -> bool {
    crate::cargo::command()
        .args(arguments)
        .current_dir(paths::root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the command as a user would type it.
fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
