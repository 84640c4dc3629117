//! `deny.toml`, held against `Cargo.lock` by cargo-deny: the one installed, or a pinned one built on first use.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::paths;

const VERSION: &str = "0.20.2";

/// Checks licences, sources and duplicates, and the security advisories where their database can be fetched.
pub(crate) fn check() -> Result<()> {
    let deny = find().map_or_else(install, Ok)?;
    let run = |arguments: &[&str]| {
        Command::new(&deny)
            .current_dir(paths::root())
            .args(arguments)
            .status()
    };
    let offline = run(&[
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ])?;
    ensure!(offline.success(), "cargo-deny refuses a dependency");
    let fetched = Command::new(&deny)
        .current_dir(paths::root())
        .args(["fetch", "db"])
        .stderr(Stdio::null())
        .status()?;
    if !fetched.success() {
        println!(
            "note: the advisory database could not be fetched from GitHub, so advisories were not checked"
        );
        return Ok(());
    }
    ensure!(
        run(&["check", "advisories"])?.success(),
        "a dependency has a security advisory"
    );
    Ok(())
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([tools().join("bin")]);
    folders
        .map(|folder| folder.join("cargo-deny"))
        .find(|file| file.is_file())
}

fn tools() -> PathBuf {
    paths::target().join("tools")
}

fn install() -> Result<PathBuf> {
    println!("building cargo-deny {VERSION} (once, some minutes)");
    let mut cargo = Command::new("cargo");
    // It checks in a second either way, and builds in half the time.
    cargo
        .args([
            "install",
            "cargo-deny",
            "--debug",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ])
        .arg(tools());
    ensure!(
        cargo.status()?.success(),
        "cannot build cargo-deny {VERSION}: cargo install cargo-deny --locked"
    );
    Ok(tools().join("bin/cargo-deny"))
}
