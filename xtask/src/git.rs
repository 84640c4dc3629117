//! Questions to git about the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::paths;

/// Returns the hash of the commit that a revision names.
pub(crate) fn commit(revision: &str) -> Result<String> {
    let name = format!("{revision}^{{commit}}");
    let output = run(command(paths::root()).args([
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &name,
    ]))?;
    ensure!(
        output.status.success(),
        "not a revision of this repository: {revision:?}"
    );
    Ok(text(&output).trim().to_owned())
}

/// Returns a file of a revision, or `None` if the revision does not have it.
pub(crate) fn file(revision: &str, path: &str) -> Result<Option<String>> {
    let output = run(command(paths::root()).args(["show", &format!("{revision}:{path}")]))?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(Some(text(&output)))
}

/// Returns true if the repository has the tag.
pub(crate) fn has_tag(tag: &str) -> bool {
    let reference = format!("refs/tags/{tag}");
    run(command(paths::root()).args(["rev-parse", "--verify", "--quiet", &reference]))
        .is_ok_and(|output| output.status.success())
}

/// Returns the revision at which this branch left the main branch, or the last commit but one on the main branch.
pub(crate) fn base() -> Result<String> {
    let head = answer(&["rev-parse", "HEAD"])?;
    for main in ["origin/main", "main"] {
        let Ok(revision) = answer(&["merge-base", "HEAD", main]) else {
            continue;
        };
        if revision != head {
            return Ok(revision);
        }
    }
    // On the main branch itself, the last commit counts as the change.
    answer(&["rev-parse", "HEAD~1"])
}

/// Returns the tracked files that differ from `base` and the files that git does not track yet.
pub(crate) fn changed_files(base: &str) -> Result<Vec<PathBuf>> {
    let tracked = answer(&["diff", "--name-only", base])?;
    let untracked = answer(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(tracked
        .lines()
        .chain(untracked.lines())
        .map(PathBuf::from)
        .collect())
}

/// Returns the files that git tracks below `root`, relative to it and sorted.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = run(command(root).args(["ls-files", "-z"]))?;
    ensure!(
        output.status.success(),
        "{} is not in a git checkout: {}",
        root.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let mut files: Vec<PathBuf> = text(&output)
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(PathBuf::from)
        .collect();
    files.sort();
    Ok(files)
}

/// Returns a command that writes the files of a commit, except the assets, to a tar archive.
///
/// An archive, unlike a worktree, leaves no record in the repository.
pub(crate) fn archive(commit: &str, to: &Path) -> Command {
    let mut git = command(paths::root());
    git.args(["archive", "--format=tar", "-o"]).arg(to).args([
        commit,
        "--",
        ".",
        ":(exclude)assets",
    ]);
    git
}

/// Returns a git command that runs in a folder.
fn command(folder: &Path) -> Command {
    let mut git = Command::new("git");
    // `-C` makes git itself report a folder that does not exist.
    git.arg("-C").arg(folder);
    git
}

fn run(git: &mut Command) -> Result<Output> {
    git.output().context("cannot run git")
}

/// Returns the output of a git command without spaces at its ends, or git's message as an error.
fn answer(arguments: &[&str]) -> Result<String> {
    let output = run(command(paths::root()).args(arguments))?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(text(&output).trim().to_owned())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
