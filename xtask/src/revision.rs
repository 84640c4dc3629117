//! The kernels of another revision: their PTX as that revision's own xtask prints it.
//!
//! It is built once for each commit and kept under `target/revisions/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::paths;

/// The PTX of the kernels of a revision, by name.
pub(crate) fn texts(revision: &str) -> Result<BTreeMap<String, String>> {
    let commit = commit(revision)?;
    let folder = paths::target().join("revisions").join(&commit);
    if !folder.is_dir() {
        build(&commit, &folder)
            .with_context(|| format!("cannot build the kernels of {revision}"))?;
    }
    read(&folder)
}

/// The commit that a revision names.
fn commit(revision: &str) -> Result<String> {
    let name = format!("{revision}^{{commit}}");
    let output = git(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &name,
    ])
    .output()?;
    ensure!(
        output.status.success(),
        "{revision:?} is no revision of this repository"
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn git(arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.current_dir(paths::root()).args(arguments);
    git
}

/// Prints the kernels of a commit to this folder, which appears when all of them are there.
fn build(commit: &str, folder: &Path) -> Result<()> {
    let revisions = folder.parent().context("a folder for revisions")?;
    fs::create_dir_all(revisions)?;
    let work = tempfile::tempdir_in(revisions)?;
    eprintln!("building the kernels of {commit}, once");
    let (archive, source, printed) = (
        work.path().join("source.tar"),
        work.path().join("source"),
        work.path().join("ptx"),
    );
    fs::create_dir(&source)?;
    succeed(git(&["archive", "--format=tar", "-o"]).arg(&archive).args([
        commit,
        "--",
        ".",
        ":(exclude)assets",
    ]))?;
    succeed(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&source),
    )?;
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", build_folder(revisions)?);
    succeed(
        cargo
            .args([
                "run",
                "--quiet",
                "--locked",
                "--package",
                "xtask",
                "--",
                "ptx",
                "--out",
            ])
            .arg(&printed),
    )?;
    fs::rename(&printed, folder)?;
    Ok(())
}

/// Where revisions are built. Each has its source in a folder of its own, so that they share dependencies alone.
fn build_folder(revisions: &Path) -> Result<PathBuf> {
    let folder = revisions.join("build");
    fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(
        status.success(),
        "{} ended with {status}",
        command.get_program().display()
    );
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            texts.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(texts)
}

/// A file of a revision; `None` if it has none of this path.
pub(crate) fn file(revision: &str, path: &str) -> Result<Option<String>> {
    let output = git(&["show", &format!("{revision}:{path}")]).output()?;
    Ok(output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}
