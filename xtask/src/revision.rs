//! The PTX of the kernels of another revision, printed by the xtask of that revision.
//!
//! It is built once for each commit and cached under `target/revisions/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{git, paths};

/// Returns the PTX of each kernel of a revision, by name.
pub(crate) fn texts(revision: &str) -> Result<BTreeMap<String, String>> {
    let commit = git::commit(revision)?;
    let folder = paths::target().join("revisions").join(&commit);
    if !folder.is_dir() {
        build(&commit, &folder)
            .with_context(|| format!("cannot build the kernels of {revision}"))?;
    }
    read(&folder)
}

/// Builds the kernels of a commit, and writes their PTX to `folder`.
///
/// The folder is created by a rename at the end, so that an interrupted build is not mistaken for a
/// complete one.
fn build(commit: &str, folder: &Path) -> Result<()> {
    let revisions = folder.parent().context("a folder for revisions")?;
    fs::create_dir_all(revisions)?;
    let work = tempfile::tempdir_in(revisions)?;
    eprintln!("building the kernels of {commit}, once");
    let archive = work.path().join("source.tar");
    let source = work.path().join("source");
    let printed = work.path().join("ptx");
    fs::create_dir(&source)?;
    succeed(&mut git::archive(commit, &archive))?;
    succeed(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&source),
    )?;
    let mut cargo = crate::cargo::command();
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

/// Returns the target folder in which all revisions are built.
///
/// The sources of each revision have a different path, so cargo shares only the dependencies.
fn build_folder(revisions: &Path) -> Result<PathBuf> {
    let folder = revisions.join("build");
    fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

/// Runs a command, and returns an error if it fails.
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

/// Reads the PTX files in a folder, by the names of their kernels.
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
