//! `cargo xtask dist`: the archive of a release for the machine on which it runs.
//!
//! The archive holds the two stripped programs, the licenses, the README and the completions of four shells. Its SHA-256
//! stands next to it, in the form that `sha256sum --check` reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::ci::must;
use crate::paths;

const SHELLS: [&str; 4] = ["bash", "zsh", "fish", "powershell"];

/// A program of the archive.
struct DistProgram {
    /// The name of the program and of its package.
    name: &'static str,
    /// The argument before the name of a shell that prints a completion script.
    completions: &'static str,
}

const PROGRAMS: [DistProgram; 2] = [
    DistProgram {
        name: "warpwright",
        completions: "completions",
    },
    DistProgram {
        name: "warpwright-emu",
        completions: "--completions",
    },
];

const PAGES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

pub(crate) fn run() -> Result<()> {
    let mut build = crate::cargo::command();
    build.args(["build", "--release", "--locked"]);
    for program in &PROGRAMS {
        build.args(["--package", program.name]);
    }

    must(&mut build)?;

    let name = format!("warpwright-{}-{}", env!("CARGO_PKG_VERSION"), host()?);
    let dist = paths::target().join("dist");
    let folder = dist.join(&name);

    // A file of an earlier run must not slip into the archive.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }

    fs::create_dir_all(folder.join("completions"))?;
    for page in PAGES {
        fs::copy(paths::root().join(page), folder.join(page))?;
    }
    for program in &PROGRAMS {
        program.copy_to(&folder)?;
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

impl DistProgram {
    /// Copies the program and its completion scripts into the folder of the archive.
    fn copy_to(&self, folder: &Path) -> Result<()> {
        let file_name = format!("{}{}", self.name, std::env::consts::EXE_SUFFIX);
        let file = paths::target().join("release").join(&file_name);
        fs::copy(&file, folder.join(&file_name))
            .with_context(|| format!("cannot copy {}", file.display()))?;
        for shell in SHELLS {
            let path = folder
                .join("completions")
                .join(format!("{}.{shell}", self.name));
            fs::write(path, self.completions(&file, shell)?)?;
        }

        Ok(())
    }

    fn completions(&self, file: &Path, shell: &str) -> Result<Vec<u8>> {
        let output = Command::new(file)
            .args([self.completions, shell])
            .output()
            .with_context(|| format!("cannot run {}", file.display()))?;
        ensure!(
            output.status.success() && !output.stdout.is_empty(),
            "`{} {} {shell}` ended with {}",
            self.name,
            self.completions,
            output.status
        );
        Ok(output.stdout)
    }
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
