//! The steps of `cargo xtask ci`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::commands::{cargo, must, succeeds};
use crate::{book, codegen, dependencies, git, meters, outside, paths, ptxas};

/// A check, and the command that fixes its failure.
pub(super) struct CiStep {
    pub(super) name: &'static str,
    pub(super) tier: Tier,
    /// The measured time on two cores, after the steps before it. The first run of a step that
    /// compiles takes longer.
    pub(super) minutes: &'static str,
    /// The property that the step checks, for `cargo xtask ci list`.
    pub(super) checks: &'static str,
    pub(super) work: CiAction,
    /// The command that fixes a failure, or that shows its cause.
    pub(super) fix: &'static str,
}

/// The runs that contain a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// `cargo xtask ci` and `cargo xtask ci full`
    Normal,
    /// `cargo xtask ci full` only
    Full,
}

pub(super) enum CiAction {
    Cargo(&'static [&'static str]),
    Function(fn() -> Result<()>),
    /// A check that needs a component which not every machine has.
    IfAvailable {
        probe: fn() -> bool,
        function: fn() -> Result<()>,
    },
}

pub(super) const STEPS: [CiStep; 27] = [
    CiStep {
        name: "format",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "default rustfmt",
        work: CiAction::Cargo(&["fmt", "--all", "--check"]),
        fix: "cargo fmt --all",
    },
    CiStep {
        name: "dependencies",
        tier: Tier::Normal,
        minutes: "first run not measured, then 0.1",
        checks: "licenses, sources and advisories of dependencies",
        work: CiAction::Function(dependencies::check),
        fix: "cargo deny check",
    },
    CiStep {
        name: "clippy",
        tier: Tier::Normal,
        minutes: "not measured from a clean clone",
        checks: "lints, with every optional feature",
        work: CiAction::Cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]),
        fix: "cargo clippy --workspace --all-targets --all-features --fix",
    },
    CiStep {
        name: "tests",
        tier: Tier::Normal,
        minutes: "16",
        checks: "all tests of the workspace, with doc tests",
        work: CiAction::Function(tests),
        fix: "cargo test --workspace (snapshots: cargo xtask bless)",
    },
    CiStep {
        name: "miri",
        tier: Tier::Normal,
        minutes: "not measured",
        checks: "no undefined behavior in the driver's soundness suite",
        work: CiAction::IfAvailable {
            probe: has_miri,
            function: miri,
        },
        fix: "cargo +nightly miri test -p warpwright-driver --test sound",
    },
    CiStep {
        name: "documentation",
        tier: Tier::Normal,
        minutes: "not measured from a clean clone",
        checks: "rustdoc builds without a warning",
        work: CiAction::Function(documentation),
        fix: "cargo doc --workspace --no-deps",
    },
    CiStep {
        name: "book pages",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "links, headings and the index of the book; its code runs with the tests",
        work: CiAction::Function(book::check),
        fix: "cargo xtask book --check",
    },
    CiStep {
        name: "book",
        tier: Tier::Full,
        minutes: "not measured",
        checks: "mdBook renders the book",
        work: CiAction::Function(book::build),
        fix: "cargo xtask book",
    },
    CiStep {
        name: "prose",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "patterns that make docs and pages hard to read",
        work: CiAction::Function(meters::prose::check),
        fix: "cargo xtask prose",
    },
    CiStep {
        name: "generated files",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "generated files match their sources",
        work: CiAction::Function(codegen::check),
        fix: "cargo xtask codegen",
    },
    CiStep {
        name: "ptxas",
        tier: Tier::Normal,
        minutes: "1",
        checks: "ptxas has accepted every kernel for every target as it is, and accepts every instruction",
        work: CiAction::Function(ptxas::check),
        fix: "cargo xtask ptxas --update",
    },
    CiStep {
        name: "packages",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "the published crates can be packaged",
        work: CiAction::Function(packages),
        fix: "cargo xtask ci packages",
    },
    CiStep {
        name: "example",
        tier: Tier::Normal,
        minutes: "0.5",
        checks: "projects outside the workspace build and run on the emulated driver",
        work: CiAction::Function(example),
        fix: "cargo xtask ci example",
    },
    CiStep {
        name: "outside programs",
        tier: Tier::Normal,
        minutes: "0.4",
        checks: "programs written for the CUDA driver run on the emulated driver",
        work: CiAction::Function(outside_programs),
        fix: "cargo xtask ci 'outside programs'",
    },
    CiStep {
        name: "readme",
        tier: Tier::Normal,
        minutes: "0.1",
        checks: "the command at the top of README.md prints the right text",
        work: CiAction::Function(readme),
        fix: README,
    },
    CiStep {
        name: "clients",
        tier: Tier::Normal,
        minutes: "0.5",
        checks: "SDKs and a browser use the server, on the emulator",
        work: CiAction::Function(outside::check_clients),
        fix: "cargo xtask ci clients",
    },
    CiStep {
        name: "openapi",
        tier: Tier::Full,
        minutes: "2",
        checks: "responses of the server are as /openapi.json describes them",
        work: CiAction::IfAvailable {
            probe: outside::has_schemathesis,
            function: outside::check_openapi,
        },
        fix: "cargo xtask ci openapi",
    },
    CiStep {
        name: "llama-server tests",
        tier: Tier::Full,
        minutes: "40",
        checks: "the outcomes of llama.cpp's server tests against our server are the expected ones",
        work: CiAction::IfAvailable {
            probe: outside::has_llama_server_tests,
            function: outside::run_llama_server_tests,
        },
        fix: "cargo xtask ci 'llama-server tests'",
    },
    CiStep {
        name: "tool calls",
        tier: Tier::Full,
        minutes: "6",
        checks: "tool calls are read as the crate dynamo-parsers reads them",
        work: CiAction::IfAvailable {
            probe: outside::has_dynamo,
            function: outside::compare_with_dynamo,
        },
        fix: "cargo xtask ci 'tool calls'",
    },
    CiStep {
        name: "features",
        tier: Tier::Full,
        minutes: "0.5",
        checks: "each optional feature compiles alone",
        work: CiAction::Function(features),
        fix: "cargo xtask ci features",
    },
    CiStep {
        name: "minimum version",
        tier: Tier::Full,
        minutes: "1.6",
        checks: "the workspace compiles with the oldest supported Rust",
        work: CiAction::IfAvailable {
            probe: has_minimum_version,
            function: minimum_version,
        },
        fix: "rustup toolchain install 1.89 && cargo +1.89 check --workspace --all-targets",
    },
    CiStep {
        name: "windows",
        tier: Tier::Full,
        minutes: "1.2",
        checks: "the libraries compile for Windows",
        work: CiAction::IfAvailable {
            probe: has_windows,
            function: windows,
        },
        fix: "rustup target add x86_64-pc-windows-msvc && cargo xtask ci windows",
    },
    CiStep {
        name: "macos",
        tier: Tier::Full,
        minutes: "0.8",
        checks: "the libraries compile for macOS",
        work: CiAction::IfAvailable {
            probe: has_macos,
            function: macos,
        },
        fix: "rustup target add aarch64-apple-darwin && cargo xtask ci macos",
    },
    CiStep {
        name: "aarch64",
        tier: Tier::Full,
        minutes: "0.9",
        checks: "the libraries compile for Linux on aarch64",
        work: CiAction::IfAvailable {
            probe: has_aarch64,
            function: aarch64,
        },
        fix: "rustup target add aarch64-unknown-linux-gnu && cargo xtask ci aarch64",
    },
    CiStep {
        name: "fuzz",
        tier: Tier::Full,
        minutes: "not measured",
        checks: "half a minute of fuzzing for each entry point of the emulator, the replies and the requests",
        work: CiAction::IfAvailable {
            probe: has_fuzz,
            function: fuzz,
        },
        fix: "cargo install cargo-fuzz --locked && cargo xtask ci fuzz",
    },
    CiStep {
        name: "publish",
        tier: Tier::Full,
        minutes: "not measured",
        checks: "the published crates compile from their packages",
        work: CiAction::Cargo(&[
            "publish",
            "--dry-run",
            "--workspace",
            "--locked",
            "--allow-dirty",
        ]),
        fix: "cargo publish --dry-run --workspace",
    },
    CiStep {
        name: "semver",
        tier: Tier::Full,
        minutes: "not measured",
        checks: "public interfaces are compatible with the tag 0.1.0",
        work: CiAction::IfAvailable {
            probe: has_semver_checks,
            function: semver,
        },
        fix: "cargo install cargo-semver-checks --locked && git fetch --tags && cargo xtask ci semver",
    },
];

/// The crates that are published, in the order of their dependencies.
const PUBLISHED: [&str; 7] = [
    "ptx-gen",
    "ptx-emu",
    "warpwright-emu",
    "warpwright-driver-sys",
    "warpwright-driver-derive",
    "warpwright-driver",
    "warpwright-cuda-emu",
];

/// The command at the top of README.md.
const README: &str = "cargo run --release -- run assets/rustdoc-7m-Q4_K_M.gguf --prompt \"The borrow checker\" -n 14";

/// The text that the bundled model generates after the prompt of that command.
const README_OUTPUT: &str = "uses a low-level write-limit to print new warnings";

const LINKED: &str = "examples/linked/Cargo.toml";
const GEMM: &str = "examples/gemm/Cargo.toml";

fn has_miri() -> bool {
    succeeds(&["+nightly", "miri", "--version"])
}

fn has_minimum_version() -> bool {
    succeeds(&["+1.89", "--version"])
}

fn has_windows() -> bool {
    has_target("x86_64-pc-windows-msvc")
}

fn has_macos() -> bool {
    has_target("aarch64-apple-darwin")
}

fn has_aarch64() -> bool {
    has_target("aarch64-unknown-linux-gnu")
}

/// Returns true if the standard library of the target is installed.
fn has_target(target: &str) -> bool {
    let Ok(output) = Command::new("rustc").args(["--print", "sysroot"]).output() else {
        return false;
    };
    let sysroot = String::from_utf8_lossy(&output.stdout);
    Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(target)
        .join("lib")
        .is_dir()
}

/// Returns true if cargo-semver-checks is installed and the baseline is known to git.
fn has_semver_checks() -> bool {
    git::has_tag("0.1.0") && succeeds(&["semver-checks", "--version"])
}

/// Returns true if cargo-fuzz and a nightly toolchain are installed.
fn has_fuzz() -> bool {
    succeeds(&["+nightly", "fuzz", "--version"])
}

fn miri() -> Result<()> {
    must(
        crate::cargo::command()
            .args(["+nightly", "miri", "test", "--locked"])
            .args(["--package", "warpwright-driver", "--test", "sound"])
            // The emulator turns addresses into pointers and keeps its machines alive, and one test reads the sources.
            .env(
                "MIRIFLAGS",
                "-Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation",
            ),
    )
}

fn minimum_version() -> Result<()> {
    cargo(&[
        "+1.89",
        "check",
        "--locked",
        "--workspace",
        "--all-targets",
        "--all-features",
    ])
}

fn windows() -> Result<()> {
    check_libraries("x86_64-pc-windows-msvc")
}

fn macos() -> Result<()> {
    check_libraries("aarch64-apple-darwin")
}

fn aarch64() -> Result<()> {
    check_libraries("aarch64-unknown-linux-gnu")
}

/// Compiles the published crates for another target.
///
/// The program `warpwright` is left out, because its TLS library compiles C code and needs a C compiler for the target.
fn check_libraries(target: &str) -> Result<()> {
    let mut arguments = vec!["check", "--locked", "--all-features", "--target", target];
    for package in PUBLISHED {
        arguments.extend(["--package", package]);
    }
    cargo(&arguments)
}

fn semver() -> Result<()> {
    cargo(&["semver-checks", "--workspace", "--baseline-rev", "0.1.0"])
}

/// Fuzzes each target for a short time, which finds panics on the first inputs but no deep bugs.
fn fuzz() -> Result<()> {
    for (folder, target) in [
        ("ptx-emu/fuzz", "parse"),
        ("ptx-emu/fuzz", "decode"),
        ("ptx-emu/fuzz", "program"),
        ("model/fuzz", "calls"),
        ("model/fuzz", "thoughts"),
        ("server/fuzz", "request"),
    ] {
        let fuzz = ["+nightly", "fuzz", "run", "--fuzz-dir", folder, target];
        cargo(&[&fuzz[..], &["--", "-max_total_time=30"]].concat())?;
    }
    Ok(())
}

/// Builds the emulator's shared library first, because tests open it as they would open the driver.
fn tests() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    cargo(&["test", "--locked", "--workspace", "--no-fail-fast"])
}

fn documentation() -> Result<()> {
    must(
        crate::cargo::command()
            .env("RUSTDOCFLAGS", "-D warnings")
            .args([
                "doc",
                "--locked",
                "--workspace",
                "--no-deps",
                "--all-features",
            ]),
    )
}

/// Compiles each optional feature without the others, because a build with all of them hides a missing one.
fn features() -> Result<()> {
    for (package, features) in [
        ("warpwright-driver", ""),
        ("warpwright-driver", "tracing"),
        ("warpwright-driver", "derive"),
        ("ptx-gen", "samples"),
    ] {
        cargo(&[
            "check",
            "--locked",
            "--package",
            package,
            "--features",
            features,
        ])?;
    }
    Ok(())
}

/// Builds and runs the projects outside the workspace on the emulator's shared library.
fn example() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    let target = paths::target().join("linked");
    let mut tests = crate::cargo::command();
    tests
        .args(["test", "--locked", "--lib", "--manifest-path", LINKED])
        .arg("--target-dir")
        .arg(&target);
    must(&mut tests)?;
    for (project, program) in [
        (LINKED, "saxpy"),
        (LINKED, "graph"),
        (LINKED, "threads"),
        (LINKED, "features"),
        (LINKED, "codes"),
        (GEMM, "gemm"),
    ] {
        let mut run = crate::cargo::command();
        run.args([
            "run",
            "--locked",
            "--manifest-path",
            project,
            "--bin",
            program,
        ])
        .arg("--target-dir")
        .arg(&target)
        .env("WARPWRIGHT_LIBCUDA", emulator());
        must(&mut run)?;
    }

    Ok(())
}

/// Packages the crates without compiling the packages.
fn packages() -> Result<()> {
    let mut arguments = vec!["package", "--locked", "--no-verify", "--allow-dirty"];
    for package in PUBLISHED {
        arguments.extend(["--package", package]);
    }
    cargo(&arguments)
}

/// Runs programs of other projects on the emulator's shared library.
fn outside_programs() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    outside::check(&emulator())
}

/// Returns the path of the shared library that has the interface of the CUDA driver.
fn emulator() -> PathBuf {
    paths::target().join("debug").join(format!(
        "{}warpwright_cuda_emu{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ))
}

/// Runs the command of README.md with the program that the tests built.
///
/// A release build prints the same text and would take minutes more. Cargo is not asked for the program, because it
/// would build it again with the features of this package alone.
fn readme() -> Result<()> {
    let page = std::fs::read_to_string(paths::root().join("README.md"))?;
    ensure!(
        page.contains(README),
        "README.md does not contain the command: {README}"
    );
    let program = paths::target().join("debug").join("warpwright");
    if !program.is_file() {
        cargo(&["build", "--locked"])?;
    }

    println!("the program is {}, as it was last built", program.display());
    let (_, arguments) = README
        .split_once(" -- ")
        .context("the README's command has no arguments")?;
    let output = Command::new("sh")
        .current_dir(paths::root())
        .args(["-c", &format!("\"$0\" {arguments}")])
        .arg(&program)
        .stderr(Stdio::inherit())
        .output()
        .context("sh")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    ensure!(
        output.status.success(),
        "the README's command ended with {}",
        output.status
    );
    if !text.contains(README_OUTPUT) {
        bail!("the README's command did not print: {README_OUTPUT}")
    }

    Ok(())
}
