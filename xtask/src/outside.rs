//! Runs programs that do not use this project, unchanged: on the emulator's shared library, against
//! the server, and as another reader of tool calls.
//!
//! One program uses the crate cudarc, and one uses NVIDIA's bindings for Python. A third compares the cost
//! of calls through cudarc and through this project, on a driver that does nothing. Programs whose
//! dependencies cannot be installed here are reported and skipped. All others must pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::paths;

/// The manifests of the two programs with cudarc, which are outside the workspace.
const CUDARC: &str = "tests/outside/cudarc/Cargo.toml";
const COMPARE: &str = "tests/outside/compare/Cargo.toml";

/// The manifest of the program that compares tool calls with the crate dynamo-parsers.
const DYNAMO: &str = "tests/outside/dynamo/Cargo.toml";

/// The program in Python, and the pinned packages that it needs.
const PYTHON: &str = "tests/outside/cuda_bindings.py";
const PACKAGES: [&str; 2] = ["cuda-bindings==13.5.0", "numpy==2.4.6"];

/// Runs all programs on the library at `emulator`.
pub(crate) fn check(emulator: &Path) -> Result<()> {
    let library = folder(emulator)?;
    let mut left_out = Vec::new();
    for (package, arguments) in [
        (CUDARC, &["run", "--locked"][..]),
        (COMPARE, &["run", "--locked", "--release"]),
    ] {
        // Only a failure to download is tolerated, so it is a separate step.
        match quietly(&mut cargo(package, &["fetch", "--locked"])) {
            Ok(()) => run(cargo(package, arguments), &library)?,
            Err(error) => left_out.push(format!("{package}: {error:#}")),
        }
    }

    match install_packages("python", &PACKAGES) {
        Ok(python) => run(Command::new(python).arg(PYTHON), &library)?,
        Err(error) => left_out.push(format!("{PYTHON}: {error:#}")),
    }

    for what in left_out {
        println!("not run: {what}");
    }

    Ok(())
}

/// Returns true if the packages of the program with dynamo-parsers are here or can be downloaded.
pub(crate) fn has_dynamo() -> bool {
    match quietly(&mut cargo(DYNAMO, &["fetch", "--locked"])) {
        Ok(()) => true,
        Err(error) => {
            println!("not run: {DYNAMO}: {error:#}");
            false
        }
    }
}

/// Compares the readers of tool calls with dynamo-parsers.
pub(crate) fn compare_with_dynamo() -> Result<()> {
    let mut run = crate::cargo::command();
    run.args(["run", "--locked", "--manifest-path", DYNAMO])
        .arg("--target-dir")
        .arg(paths::target().join("outside/dynamo"))
        .current_dir(paths::root());
    let status = run.status()?;
    ensure!(status.success(), "{run:?} ended with {status}");
    Ok(())
}

/// Copies the library to a folder under the name of the driver, and returns the folder.
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

/// Returns a cargo command for a package outside the workspace.
fn cargo(package: &str, arguments: &[&str]) -> Command {
    let mut cargo = crate::cargo::command();
    cargo.args(arguments).args(["--manifest-path", package]);
    if arguments[0] == "run" {
        cargo
            .arg("--target-dir")
            .arg(paths::target().join("outside/cudarc"));
    }
    cargo
}

/// The bundled model.
const MODEL: &str = "assets/rustdoc-7m-Q4_K_M.gguf";

/// The scripts that use the server through SDKs and a browser, and their packages.
const CLIENTS: &str = "server/tests/clients/run.py";
const CLIENT_PACKAGES: &str = "server/tests/clients/requirements.txt";

/// Runs SDKs and a browser against the server, on the emulator.
///
/// Packages that cannot be installed are reported, and the scripts are skipped.
pub(crate) fn check_clients() -> Result<()> {
    let python = match install_packages("clients", &["--requirement", CLIENT_PACKAGES]) {
        Ok(python) => python,
        Err(error) => {
            println!("not run: {CLIENTS}: {error:#}");
            return Ok(());
        }
    };
    let program = build_program()?;
    run_script(Command::new(python).arg(CLIENTS).arg(program).arg(MODEL))
}

/// The script that sends requests made from `/openapi.json`, and its package.
const OPENAPI: &str = "server/tests/clients/openapi.py";
const OPENAPI_PACKAGES: &str = "server/tests/clients/openapi.txt";

/// Returns true if schemathesis is here or can be installed.
pub(crate) fn has_schemathesis() -> bool {
    report_error(OPENAPI, install_schemathesis()).is_some()
}

/// Sends requests made from the server's description to the server.
pub(crate) fn check_openapi() -> Result<()> {
    let python = install_schemathesis()?;
    let program = build_program()?;
    run_script(Command::new(python).arg(OPENAPI).arg(program).arg(MODEL))
}

fn install_schemathesis() -> Result<PathBuf> {
    install_packages("openapi", &["--requirement", OPENAPI_PACKAGES])
}

/// The folder of the scripts that run llama.cpp's server tests.
const LLAMA_SERVER: &str = "tests/outside/llama-server";

/// Returns true if llama.cpp's server tests, their packages and their model are here or can be
/// downloaded.
pub(crate) fn has_llama_server_tests() -> bool {
    report_error(LLAMA_SERVER, fetch_llama_server_tests()).is_some()
}

/// Runs llama.cpp's server tests, and compares the outcomes with the expected ones.
pub(crate) fn run_llama_server_tests() -> Result<()> {
    let python = fetch_llama_server_tests()?;
    let program = build_program()?;
    let fetched = llama_server_folder();
    run_script(
        Command::new(python)
            .arg(format!("{LLAMA_SERVER}/run.py"))
            .arg(program)
            .arg(fetched.join("llama.cpp/tools/server/tests"))
            .arg(fetched.join("models")),
    )
}

/// Gets the tests and their model, and returns the Python that has their packages.
fn fetch_llama_server_tests() -> Result<PathBuf> {
    let packages = format!("{LLAMA_SERVER}/requirements.txt");
    let python = install_packages("llama-server-python", &["--requirement", &packages])?;
    let mut fetch = Command::new(&python);
    fetch
        .arg(format!("{LLAMA_SERVER}/fetch.py"))
        .arg(llama_server_folder());
    quietly(&mut fetch)?;
    Ok(python)
}

fn llama_server_folder() -> PathBuf {
    paths::target().join("outside/llama-server")
}

/// Returns the value, or reports why the programs in `name` cannot run here.
fn report_error<T>(name: &str, result: Result<T>) -> Option<T> {
    result
        .inspect_err(|error| println!("not run: {name}: {error:#}"))
        .ok()
}

/// Builds the program `warpwright` and returns its path.
fn build_program() -> Result<PathBuf> {
    // Cargo merges the features of all packages in a build. Building the whole workspace reuses what
    // the step "tests" compiled. Building this package alone would compile most dependencies again.
    let mut build = crate::cargo::command();
    quietly(build.args(["test", "--locked", "--workspace", "--no-run"]))?;
    Ok(paths::target().join(format!("debug/warpwright{}", std::env::consts::EXE_SUFFIX)))
}

/// Runs a script from the root of the repository.
fn run_script(script: &mut Command) -> Result<()> {
    let status = script.current_dir(paths::root()).status()?;
    ensure!(status.success(), "{script:?} ended with {status}");
    Ok(())
}

/// Creates a virtual environment with packages, and returns the path of its Python.
fn install_packages(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = paths::target().join("outside").join(name);
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
    quietly(Command::new(&python).args(pip).args(packages))?;
    Ok(python)
}

/// Runs a command, and reports the last line of its output only if it fails.
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

/// Runs a program with the folder of the library on the search path.
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
