//! `xtask gpu-round`: runs all checks that need a GPU, on a machine without Rust.
//!
//! The binary does not need the repository. Copy it to the machine together with the program and
//! the models. All steps run, even after a failure, and each writes its output to a separate file.
//! A table at the end has the results. A step whose tool is missing fails the round too, because a
//! check that did not run must not pass.

mod steps;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};

use crate::cuda_tools;
use steps::{On, RoundStep, STEPS};
use work::{Round, RoundJob, StepLog, StepProblem};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to test: target/release/warpwright
    #[arg(long, value_name = "FILE")]
    warpwright: PathBuf,
    /// target/release/examples/rows, which compares every instruction with the emulator
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
    /// target/release/examples/gates, which compares training steps with their reference
    #[arg(long, value_name = "FILE")]
    gates: Option<PathBuf>,
    /// The GPU, as warpwright names it
    #[arg(long, default_value = "cuda:0", value_name = "DEVICE")]
    device: String,
    /// Folder for the output of each step
    #[arg(long, default_value = "gpu-round", value_name = "DIR")]
    logs: PathBuf,
    /// Run only the steps whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Model files; the sanitizers run the first
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
}

/// The outcome of a step.
struct RoundOutcome {
    name: String,
    result: Result<(), StepProblem>,
    seconds: u64,
}

/// The number of lines of a step's output that are printed.
const SHOWN: usize = 12;

/// Runs the round and prints the table.
pub(crate) fn run(args: &Args) -> Result<()> {
    let outcomes = Round::new(args)?.run(args.only.as_deref().unwrap_or_default())?;
    println!("\n{}", table(&outcomes).trim_fmt());
    verdict(&outcomes)
}

impl Round {
    /// Finds the programs and the models.
    fn new(args: &Args) -> Result<Round> {
        fs::create_dir_all(&args.logs)
            .with_context(|| format!("cannot make {}", args.logs.display()))?;
        Ok(Round {
            program: file(&args.warpwright)?,
            rows: args.rows.as_deref().map(file).transpose()?,
            gates: args.gates.as_deref().map(file).transpose()?,
            sanitizer: sanitizer(),
            device: args.device.clone(),
            logs: args.logs.clone(),
            models: args
                .models
                .iter()
                .map(|model| file(model))
                .collect::<Result<_>>()?,
        })
    }

    /// Runs the steps whose name contains `only`.
    fn run(&self, only: &str) -> Result<Vec<RoundOutcome>> {
        let jobs = STEPS
            .iter()
            .flat_map(|step| self.jobs(step))
            .filter(|(name, _, _)| name.contains(only));
        let outcomes = jobs.map(|(name, step, model)| self.step(name, step, model));
        let outcomes = outcomes.collect::<Result<Vec<_>>>()?;
        let names = || {
            STEPS
                .iter()
                .map(|step| step.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        ensure!(
            !outcomes.is_empty(),
            "no step's name contains {only:?}; there are {}",
            names()
        );
        Ok(outcomes)
    }

    /// Returns the step with each model on which it runs, and its name with that model.
    fn jobs<'a>(&'a self, step: &'a RoundStep) -> Vec<(String, &'a RoundStep, &'a Path)> {
        let name = |model: &Path| match step.on {
            On::Once => step.name.to_owned(),
            On::EachModel => format!(
                "{} {}",
                step.name,
                model.file_stem().unwrap_or_default().display()
            ),
        };
        let models = match step.on {
            On::Once => &self.models[..1],
            On::EachModel => &self.models[..],
        };
        models
            .iter()
            .map(|model| (name(model), step, model.as_path()))
            .collect()
    }

    /// Runs a step, and prints the end of its output.
    fn step(&self, name: String, step: &RoundStep, model: &Path) -> Result<RoundOutcome> {
        println!("== {name}");
        let log = StepLog::new(&self.logs, &name)?;
        let start = Instant::now();
        let result = RoundJob {
            round: self,
            model,
            log: &log,
        }
        .run(&step.work);
        let seconds = start.elapsed().as_secs();
        for line in log.tail(SHOWN)? {
            println!("{line}");
        }

        Ok(RoundOutcome {
            name,
            result,
            seconds,
        })
    }
}

/// Finds compute-sanitizer in `CUDA_PATH`, `CUDA_HOME` or `PATH`, or in the newest toolkit under
/// `/usr/local`.
fn sanitizer() -> Option<PathBuf> {
    const NAME: &str = "compute-sanitizer";
    let toolkits = fs::read_dir("/usr/local")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let cuda = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
    };
    let usual = || {
        toolkits
            .filter(cuda)
            .map(|path| path.join("bin").join(NAME))
            .filter(|path| path.is_file())
            .max()
    };
    cuda_tools::installed(NAME).or_else(usual)
}

/// Returns the absolute path of a file.
fn file(path: &Path) -> Result<PathBuf> {
    ensure!(path.is_file(), "not a file: {}", path.display());
    path.canonicalize()
        .with_context(|| path.display().to_string())
}

/// Returns the table of results.
fn table(outcomes: &[RoundOutcome]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["step", "result", "seconds"]);
    for RoundOutcome {
        name,
        result,
        seconds,
    } in outcomes
    {
        let result = result
            .as_ref()
            .map_or_else(StepProblem::to_string, |()| "ok".into());
        table.add_row([name.clone(), result, seconds.to_string()]);
    }

    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    table
}

/// Returns an error that names the steps that failed or could not run, if there are any.
fn verdict(outcomes: &[RoundOutcome]) -> Result<()> {
    let named = |of: fn(&StepProblem) -> bool| {
        let with = outcomes
            .iter()
            .filter(|outcome| outcome.result.as_ref().is_err_and(of));
        with.map(|outcome| &*outcome.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let lists = [
        (
            "failed: ",
            named(|problem| matches!(problem, StepProblem::Failed(_))),
        ),
        (
            "could not run: ",
            named(|problem| matches!(problem, StepProblem::Absent(_))),
        ),
    ];
    let lists = lists.iter().filter(|(_, names)| !names.is_empty());
    let text = lists
        .map(|(what, names)| format!("{what}{names}"))
        .collect::<Vec<_>>()
        .join("; ");
    ensure!(text.is_empty(), "{text}");
    Ok(())
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that does nothing with success, but for these cases of its arguments.
    fn script(folder: &Path, name: &str, cases: &str) -> PathBuf {
        let path = folder.join(name);
        let text =
            format!("#!/bin/sh\nfor last; do :; done\ncase \"$*\" in\n{cases}\n*) ;;\nesac\n");
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        path
    }

    const GOOD: &str = "*'--print ids'*) echo 1 2 3;;\nlogits*) printf 'abcd' >\"$last\";;\n\
                        graph*) echo '  n0 [label=\"a\"]';;";

    fn round(folder: &Path, program: &str) -> Round {
        Round {
            program: script(folder, "warpwright", program),
            rows: Some(script(folder, "rows", "")),
            gates: Some(script(folder, "gates", "")),
            sanitizer: Some(script(
                folder,
                "sanitizer",
                "*racecheck*) echo RACECHECK SUMMARY: 0 hazards;;",
            )),
            device: "cuda:0".into(),
            logs: folder.to_owned(),
            models: vec!["m.gguf".into()],
        }
    }

    fn outcome(round: &Round) -> String {
        verdict(&round.run("").expect("steps"))
            .map_or_else(|error| error.to_string(), |()| "passed".into())
    }

    #[test]
    fn a_step_passes_fails_or_cannot_run_and_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let with = |program: &str| round(folder.path(), program);
        assert_eq!(outcome(&with(GOOD)), "passed");
        assert_eq!(
            outcome(&with(&format!("check*) exit 1;;\n{GOOD}"))),
            "failed: check"
        );
        let differ = "*'emu --launch graph'*'--print ids'*) echo 1 2 4;;";
        assert_eq!(
            outcome(&with(&format!("{differ}\n{GOOD}"))),
            "failed: tokens equal m"
        );
        let far = "logits*emu*) printf 'abcc' >\"$last\";;";
        assert_eq!(
            outcome(&with(&format!("{far}\n{GOOD}"))),
            "failed: logits equal m"
        );
        let silent = Round {
            sanitizer: Some(script(folder.path(), "silent", "")),
            ..with(GOOD)
        };
        assert_eq!(
            outcome(&silent),
            "failed: racecheck run eager, 16 tokens in parts"
        );
        let bare = Round {
            rows: None,
            ..with(GOOD)
        };
        assert_eq!(outcome(&bare), "could not run: rows against the emulator");
        let missed = Round {
            gates: Some(script(folder.path(), "missed", "*faults) exit 1;;")),
            ..with(GOOD)
        };
        assert_eq!(outcome(&missed), "failed: faults of training");
        let bare = Round {
            gates: None,
            ..with(GOOD)
        };
        assert_eq!(
            outcome(&bare),
            "could not run: gates of training, gates of training in bf16, losses of 100 steps in bf16, faults of training"
        );
        let absent = Round {
            sanitizer: None,
            ..with("devices) exit 3;;")
        };
        let found = outcome(&absent);
        assert!(found.starts_with(
            "failed: devices, tokens equal m, logits equal m; could not run: memcheck check, "
        ));
        let unknown = with(GOOD)
            .run("no such")
            .err()
            .map(|error| error.to_string());
        assert!(unknown.is_some_and(|error| {
            error.starts_with("no step's name contains \"no such\"; there are devices, ")
        }));
    }
}
