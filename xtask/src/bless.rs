//! `cargo xtask bless`: runs the snapshot tests and accepts what they print now.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package whose snapshots to accept; all of them by default
    packages: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut cargo = Command::new("cargo");
    // With INSTA_UPDATE=always insta writes the new text and the test passes: no tool to install.
    cargo.current_dir(paths::root()).env("INSTA_UPDATE", "always").args(["test", "--no-fail-fast"]);
    if args.packages.is_empty() {
        cargo.arg("--workspace");
    }
    for package in &args.packages {
        cargo.args(["--package", package]);
    }
    ensure!(cargo.status()?.success(), "a test failed for another reason than its snapshot");
    println!("Read the change as you would read code: git diff -- '*.snap'");
    Ok(())
}
