//! `cargo xtask dist`: the archive of a release for the machine on which it runs.
//!
//! The archive holds the stripped program, the licenses, the README and the completions of four shells. Its SHA-256
//! stands next to it, in the form that `sha256sum --check` reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::ci::must;
use crate::paths;

const SHELLS: [&str; 4] = ["bash", "zsh", "fish", "powershell"];
const PAGES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn run() -> Result<()> {
    must(Command::new("cargo").args([
        "build",
        "--release",
        "--locked",
        "--package",
        "warpwright",
    ]))?;
    let file_name = format!("warpwright{}", std::env::consts::EXE_SUFFIX);
    let program = paths::target().join("release").join(&file_name);

    let name = format!("warpwright-{}-{}", env!("CARGO_PKG_VERSION"), host()?);
    let dist = paths::target().join("dist");
    let folder = dist.join(&name);
    // A file of an earlier run must not slip into the archive.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("completions"))?;
    fs::copy(&program, folder.join(&file_name))
        .with_context(|| format!("cannot copy {}", program.display()))?;
    for page in PAGES {
        fs::copy(paths::root().join(page), folder.join(page))?;
    }
    for shell in SHELLS {
        write_completions(&program, shell, &folder)?;
    }

    let archive = format!("{name}.tar.gz");
    must(
        Command::new("tar")
            .arg("-C")
            .arg(&dist)
            .args(["-czf"])
            .arg(dist.join(&archive))
            .arg(&name),
    )?;
    let sum = format!("{:x}", Sha256::digest(fs::read(dist.join(&archive))?));
    fs::write(
        dist.join(format!("{archive}.sha256")),
        format!("{sum}  {archive}\n"),
    )?;
    println!("{}\n{sum}", dist.join(&archive).display());
    Ok(())
}

fn write_completions(program: &Path, shell: &str, folder: &Path) -> Result<()> {
    let output = Command::new(program)
        .args(["completions", shell])
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "`warpwright completions {shell}` ended with {}",
        output.status
    );
    fs::write(
        folder
            .join("completions")
            .join(format!("warpwright.{shell}")),
        output.stdout,
    )?;
    Ok(())
}

/// Returns the target triple for which rustc compiles by default.
fn host() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("`rustc -vV` does not name the host")
}
