//! `cargo xtask ci quick`: format, clippy and tests of the crates that changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::commands::{cargo, succeeds};
use crate::{git, paths};

/// The part of `cargo metadata` that names the crates of the workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

pub(super) fn run(since: Option<&str>) -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    let base = match since {
        Some(revision) => git::commit(revision)?,
        None => git::base()?,
    };
    let changed = git::changed_files(&base)?;
    let packages = changed_packages(&changed, &workspace()?);
    if packages.is_empty() {
        println!("No crate changed since {base}. `cargo xtask ci` checks everything.");
        return Ok(());
    }

    let names: Vec<_> = packages.iter().map(String::as_str).collect();
    println!("changed since {base}: {}", names.join(", "));

    let chosen: Vec<&str> = names.iter().flat_map(|name| ["--package", *name]).collect();
    let clippy = ["clippy", "--locked", "--all-targets", "--all-features"];
    cargo(&[&clippy[..], &chosen, &["--", "-D", "warnings"]].concat())?;

    // Tests of other crates open the emulator's shared library, which `cargo test` builds for its own crate only.
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    if succeeds(&["nextest", "--version"]) {
        let nextest = [
            "nextest",
            "run",
            "--locked",
            "--no-fail-fast",
            "--no-tests=pass",
        ];
        cargo(&[&nextest[..], &chosen].concat())?;
    } else {
        println!(
            "cargo-nextest is not installed, so `cargo test` runs the tests one binary at a time"
        );
        let test = ["test", "--locked", "--no-fail-fast", "--all-targets"];
        cargo(&[&test[..], &chosen].concat())?;
    }

    println!(
        "Not run: doc tests, tests of the other crates, and the other steps of `cargo xtask ci`."
    );
    Ok(())
}

/// Returns the crates of the workspace with their folders, relative to the root of the repository.
fn workspace() -> Result<Vec<(String, PathBuf)>> {
    let output = crate::cargo::command()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(paths::root())
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let root = paths::root().canonicalize()?;
    let mut crates = Vec::new();
    for package in metadata.packages {
        let manifest = package.manifest_path.canonicalize()?;
        if let Some(folder) = manifest.parent()
            && let Ok(relative) = folder.strip_prefix(&root)
        {
            crates.push((package.name, relative.to_owned()));
        }
    }

    Ok(crates)
}

/// Returns the crates that hold one of the files. The workspace's own manifest and lock file belong to all crates.
fn changed_packages(files: &[PathBuf], crates: &[(String, PathBuf)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let concerns_all = file == Path::new("Cargo.toml") || file == Path::new("Cargo.lock");
        for (name, folder) in crates {
            if concerns_all || file.starts_with(folder) {
                found.insert(name.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_crate_of_their_folder() {
        let crates = [
            ("ptx-gen".to_owned(), PathBuf::from("ptx-gen")),
            ("warpwright-driver".to_owned(), PathBuf::from("driver")),
            (
                "warpwright-driver-sys".to_owned(),
                PathBuf::from("driver-sys"),
            ),
        ];
        let packages = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            changed_packages(&files, &crates)
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            packages(&["driver/src/lib.rs", "docs/a.md"]),
            ["warpwright-driver"]
        );
        assert_eq!(packages(&["Cargo.lock"]).len(), 3);
        assert!(packages(&["README.md"]).is_empty());
    }
}
