//! Checks the dependencies in `Cargo.lock` against the rules in `deny.toml` with cargo-deny.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::paths;
use crate::tools::Tool;

const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    options: &[],
};

/// Checks licenses, sources and duplicates, and also security advisories if their database can be
/// fetched.
pub(crate) fn check() -> Result<()> {
    let deny = CARGO_DENY.find_or_install()?;
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

    // A machine without a network must be able to run the other checks.
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
