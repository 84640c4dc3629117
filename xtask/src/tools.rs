//! Programs from the registry that `cargo xtask` needs.
//!
//! A program on the search path is used if there is one. Otherwise a pinned version is built under
//! `target/tools`.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::paths;

/// A program in the registry.
pub(crate) struct Tool {
    /// The name of the package and of its program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// More options for `cargo install`.
    pub(crate) options: &'static [&'static str],
}

impl Tool {
    /// Returns the path of the program, which is built first if it is neither installed nor cached.
    pub(crate) fn find_or_install(&self) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .chain([folder().join("bin")])
            .map(|folder| folder.join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX)))
            .find(|file| file.is_file());
        match found {
            Some(file) => Ok(file),
            None => self.install(),
        }
    }

    /// Builds the pinned version.
    fn install(&self) -> Result<PathBuf> {
        let Tool { name, version, .. } = self;
        println!("building {name} {version} (once, some minutes)");
        let mut cargo = crate::cargo::command();

        // A debug build takes half the time, and the tools run for seconds.
        cargo
            .args(["install", name, "--debug", "--locked", "--version", version])
            .args(self.options)
            .arg("--root")
            .arg(folder());
        ensure!(
            cargo.status()?.success(),
            "cannot build {name} {version}: cargo install {name} --locked"
        );
        Ok(folder().join("bin").join(name))
    }
}

/// Returns the folder in which the programs are installed.
fn folder() -> PathBuf {
    paths::target().join("tools")
}
