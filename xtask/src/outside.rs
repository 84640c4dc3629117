//! Programs that know nothing of this project, run unchanged on the emulator's shared library.
//!
//! One uses the crate cudarc, the other NVIDIA's bindings for Python. A third one compares what calls of cudarc and of
//! this project cost, on a driver of its own. What cannot be installed here is named and not run; what can be must pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::paths;

/// The packages of cudarc's programs, outside the workspace: the one on the emulator, and the one that compares.
const CUDARC: &str = "tests/outside/cudarc/Cargo.toml";
const COMPARE: &str = "tests/outside/compare/Cargo.toml";

/// The program in Python, and the packages it needs, each at its version.
const PYTHON: &str = "tests/outside/cuda_bindings.py";
const PACKAGES: [&str; 2] = ["cuda-bindings==13.5.0", "numpy==2.4.6"];

/// Runs both on the library at `emulator`.
pub(crate) fn check(emulator: &Path) -> Result<()> {
    let library = folder(emulator)?;
    let mut left_out = Vec::new();
    for (package, arguments) in [
        (CUDARC, &["run", "--locked"][..]),
        (COMPARE, &["run", "--locked", "--release"]),
    ] {
        match quietly(&mut cargo(package, &["fetch", "--locked"])) {
            Ok(()) => run(cargo(package, arguments), &library)?,
            Err(error) => left_out.push(format!("{package}: {error:#}")),
        }
    }
    match install_packages() {
        Ok(python) => run(Command::new(python).arg(PYTHON), &library)?,
        Err(error) => left_out.push(format!("{PYTHON}: {error:#}")),
    }
    for what in left_out {
        println!("not run: {what}");
    }
    Ok(())
}

/// A folder in which the library has the driver's name.
fn folder(emulator: &Path) -> Result<PathBuf> {
    let folder = paths::target().join("outside/lib");
    std::fs::create_dir_all(&folder)?;
    let name = if cfg!(windows) {
        "nvcuda.dll"
    } else {
        "libcuda.so.1"
    };
    std::fs::copy(emulator, folder.join(name))
        .with_context(|| format!("{}", emulator.display()))?;
    Ok(folder)
}

fn cargo(package: &str, arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).args(["--manifest-path", package]);
    if arguments[0] == "run" {
        cargo
            .arg("--target-dir")
            .arg(paths::target().join("outside/cudarc"));
    }
    cargo
}

/// Makes a virtual environment with the packages; its Python.
fn install_packages() -> Result<PathBuf> {
    let folder = paths::target().join("outside/python");
    let python = folder.join(if cfg!(windows) {
        "Scripts/python.exe"
    } else {
        "bin/python"
    });
    if !python.exists() {
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ];
    quietly(Command::new(&python).args(pip).args(PACKAGES))?;
    Ok(python)
}

/// Runs a command whose words matter only if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .current_dir(paths::root())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no text");
    ensure!(
        output.status.success(),
        "{program} ended with {}: {last}",
        output.status
    );
    Ok(())
}

fn run(mut command: impl std::borrow::BorrowMut<Command>, library: &Path) -> Result<()> {
    let command = command.borrow_mut();
    let search = if cfg!(windows) {
        "PATH"
    } else {
        "LD_LIBRARY_PATH"
    };
    let status = command
        .current_dir(paths::root())
        .env(search, library)
        .status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
