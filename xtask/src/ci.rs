//! `cargo xtask ci`: the only list of what a change must pass.
//!
//! Every step runs, also after a failure, so that one run names everything; the table at the end says what fixes it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Table, presets};

use crate::{codegen, dependencies, outside, paths, ptxas};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Steps to run; all of them by default
    #[arg(value_parser = STEPS.map(|step| step.name))]
    steps: Vec<String>,
}

struct Step {
    name: &'static str,
    work: Work,
    /// The command that fixes a failure, or that shows it closer.
    fix: &'static str,
}

enum Work {
    Cargo(&'static [&'static str]),
    Own(fn() -> Result<()>),
    /// A cargo command for machines where another one succeeds, and the variable it takes.
    Where {
        there: &'static [&'static str],
        run: &'static [&'static str],
        variable: (&'static str, &'static str),
    },
}

const STEPS: [Step; 12] = [
    Step {
        name: "format",
        work: Work::Cargo(&["fmt", "--all", "--check"]),
        fix: "cargo fmt --all",
    },
    Step {
        name: "dependencies",
        work: Work::Own(dependencies::check),
        fix: "cargo deny check",
    },
    Step {
        name: "clippy",
        work: Work::Cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
        fix: "cargo clippy --workspace --all-targets --fix",
    },
    Step {
        name: "tests",
        work: Work::Own(tests),
        fix: "cargo test --workspace (snapshots: cargo xtask bless)",
    },
    Step {
        name: "miri",
        work: Work::Where {
            there: &["+nightly", "miri", "--version"],
            run: &[
                "+nightly",
                "miri",
                "test",
                "--locked",
                "--package",
                "warpwright-driver",
                "--test",
                "sound",
            ],
            // The emulator turns addresses into pointers and keeps its machines; a test reads the sources.
            variable: (
                "MIRIFLAGS",
                "-Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation",
            ),
        },
        fix: "cargo +nightly miri test -p warpwright-driver --test sound",
    },
    Step {
        name: "documentation",
        work: Work::Own(documentation),
        fix: "cargo doc --workspace --no-deps",
    },
    Step {
        name: "generated files",
        work: Work::Own(codegen::check),
        fix: "cargo xtask codegen",
    },
    Step {
        name: "ptxas",
        work: Work::Own(ptxas::check),
        fix: "cargo xtask ptxas --update",
    },
    Step {
        name: "packages",
        work: Work::Own(packages),
        fix: "cargo xtask ci packages",
    },
    Step {
        name: "example",
        work: Work::Own(example),
        fix: "cargo xtask ci example",
    },
    Step {
        name: "outside programs",
        work: Work::Own(outside_programs),
        fix: "cargo xtask ci 'outside programs'",
    },
    Step {
        name: "readme",
        work: Work::Own(readme),
        fix: README,
    },
];

/// The first command of README.md, and words that the model writes after this prompt.
const README: &str = "cargo run --release -- run assets/rustdoc-7m-Q4_K_M.gguf --prompt \"The borrow checker\" -n 48";
const WORDS: &str = "uses a low-level write-limit to print new warnings";

const LINKED: &str = "examples/linked/Cargo.toml";
const GEMM: &str = "examples/gemm/Cargo.toml";

/// What no machine without a GPU can check.
const ON_A_GPU: [&str; 3] = [
    "warpwright check --device cuda:0 (every kernel on a real GPU)",
    "compute-sanitizer memcheck, racecheck, initcheck and synccheck",
    "tokens and logits of the models on a real GPU",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen =
        |step: &&Step| args.steps.is_empty() || args.steps.iter().any(|name| name == step.name);
    let results: Vec<_> = STEPS
        .iter()
        .filter(chosen)
        .map(|step| (step, timed(step)))
        .collect();
    println!("\n{}", table(&results));
    for (step, _) in results.iter().filter(|(_, outcome)| outcome.absent) {
        println!(
            "Not run here, because cargo has no part for it: {} ({})",
            step.name, step.fix
        );
    }
    println!("Not run here, because it needs a GPU (xtask gpu-round runs it):");
    ON_A_GPU.iter().for_each(|what| println!("  {what}"));
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, outcome)| outcome.error.is_some())
        .map(|(step, _)| step.name)
        .collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

struct Outcome {
    time: Duration,
    error: Option<anyhow::Error>,
    /// Whether this machine lacks what the step needs.
    absent: bool,
}

fn timed(step: &Step) -> Outcome {
    println!("\n== {}", step.name);
    let start = Instant::now();
    let absent = matches!(step.work, Work::Where { there, .. } if !succeeds(there));
    let error = if absent {
        None
    } else {
        perform(&step.work).err()
    };
    if let Some(error) = &error {
        println!("{} failed: {error:#}\nfix it with: {}", step.name, step.fix);
    }
    let time = start.elapsed();
    println!("== {}: {:.1} s", step.name, time.as_secs_f64());
    Outcome {
        time,
        error,
        absent,
    }
}

fn perform(work: &Work) -> Result<()> {
    match work {
        Work::Cargo(arguments) => cargo(arguments),
        Work::Own(work) => work(),
        Work::Where {
            run,
            variable: (name, value),
            ..
        } => must(Command::new("cargo").args(*run).env(name, value)),
    }
}

/// Whether a cargo command ends well; what it says is not shown.
fn succeeds(arguments: &[&str]) -> bool {
    let quiet =
        |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet(Command::new("cargo").args(arguments)).is_ok_and(|status| status.success())
}

fn table(results: &[(&Step, Outcome)]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["step", "seconds", "result"]);
    for (step, outcome) in results {
        let result = match outcome {
            Outcome { error: Some(_), .. } => format!("FAILED, fix with: {}", step.fix),
            Outcome { absent: true, .. } => "not run".into(),
            _ => "passed".into(),
        };
        table.add_row([
            step.name.to_owned(),
            format!("{:.1}", outcome.time.as_secs_f64()),
            result,
        ]);
    }
    table
}

fn cargo(arguments: &[&str]) -> Result<()> {
    must(Command::new("cargo").args(arguments))
}

fn must(command: &mut Command) -> Result<()> {
    let status = command.current_dir(paths::root()).status()?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// The command as somebody would type it.
fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The emulator's shared library comes first: tests open it as they would the driver.
fn tests() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    cargo(&["test", "--locked", "--workspace", "--no-fail-fast"])
}

fn documentation() -> Result<()> {
    must(
        Command::new("cargo")
            .env("RUSTDOCFLAGS", "-D warnings")
            .args(["doc", "--locked", "--workspace", "--no-deps"]),
    )
}

/// The projects outside the workspace, on the emulator's shared library.
fn example() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    let target = paths::target().join("linked");
    let mut tests = Command::new("cargo");
    tests.args([
        "test",
        "--locked",
        "--lib",
        "--manifest-path",
        LINKED,
        "--target-dir",
    ]);
    must(tests.arg(&target))?;
    let programs =
        ["saxpy", "graph", "threads", "features", "codes"].map(|program| (LINKED, program));
    programs
        .into_iter()
        .chain([(GEMM, "gemm")])
        .try_for_each(|(project, program)| {
            let mut run = Command::new("cargo");
            run.args([
                "run",
                "--locked",
                "--manifest-path",
                project,
                "--bin",
                program,
                "--target-dir",
            ])
            .arg(&target);
            must(run.env("WARPWRIGHT_LIBCUDA", emulator()))
        })
}

/// What is to be published can be packaged.
fn packages() -> Result<()> {
    let mut arguments = vec!["package", "--locked", "--no-verify", "--allow-dirty"];
    for package in [
        "ptx-gen",
        "ptx-emu",
        "warpwright-driver-sys",
        "warpwright-driver-derive",
        "warpwright-driver",
        "warpwright-cuda-emu",
    ] {
        arguments.extend(["--package", package]);
    }
    cargo(&arguments)
}

/// Programs of other projects, on the emulator's shared library.
fn outside_programs() -> Result<()> {
    cargo(&["build", "--locked", "--package", "warpwright-cuda-emu"])?;
    outside::check(&emulator())
}

/// The shared library that poses as the driver.
fn emulator() -> PathBuf {
    paths::target().join("debug").join(format!(
        "{}warpwright_cuda_emu{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ))
}

/// Runs the command as the tests have built the program: to build it once more takes minutes, and prints the same.
fn readme() -> Result<()> {
    let page = std::fs::read_to_string(paths::root().join("README.md"))?;
    ensure!(
        page.contains(README),
        "README.md does not hold the command: {README}"
    );
    // As the tests have built it: cargo would build it again, with the features of this package alone.
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
    if !text.contains(WORDS) {
        bail!("the README's command did not print: {WORDS}")
    }
    Ok(())
}
