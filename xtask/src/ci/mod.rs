//! `cargo xtask ci`: the only list of checks that a change must pass.
//!
//! Every step runs, even after a failure, so that one run names everything that is wrong. The table at the end shows
//! the time of each step and the command that fixes a failure.

mod commands;
mod quick;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use comfy_table::{Table, presets};

use commands::cargo;
pub(crate) use commands::must;
use steps::{CiAction, CiStep, STEPS, Tier};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Steps to run, or `quick` or `full` [default: all steps of a normal run]
    ///
    /// `quick` checks the format, and runs clippy and the tests of the crates that changed. `full` adds the steps that
    /// a normal run leaves out because they take long or need other toolchains. `list` prints all steps.
    #[arg(verbatim_doc_comment)]
    steps: Vec<String>,

    /// With `quick`: check the crates that changed since this revision [default: where the branch left main]
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
}

/// Checks that no machine without a GPU can run.
const ON_A_GPU: [&str; 3] = [
    "warpwright check --device cuda:0 (every kernel on a real GPU)",
    "compute-sanitizer memcheck, racecheck, initcheck and synccheck",
    "tokens and logits of the models on a real GPU",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let [only] = args.steps.as_slice() {
        match only.as_str() {
            "quick" => return quick::run(args.since.as_deref()),
            "list" => return list(),
            _ => {}
        }
    }

    ensure!(
        args.since.is_none(),
        "--since chooses the crates of `cargo xtask ci quick`; it has no effect on other steps"
    );
    let chosen = choose(&args.steps)?;
    let mut results = Vec::new();
    for step in &chosen {
        results.push((*step, run_timed(step)));
    }

    println!("\n{}", table(&results));
    report_omissions(&chosen, &results);
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, outcome)| matches!(outcome.result, StepResult::Failed))
        .map(|(step, _)| step.name)
        .collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the steps that the words of the command line name, in the order of [`STEPS`].
fn choose(words: &[String]) -> Result<Vec<&'static CiStep>> {
    if let Some(unknown) = words
        .iter()
        .find(|word| *word != "full" && STEPS.iter().all(|step| step.name != word.as_str()))
    {
        let names = STEPS.map(|step| step.name).join(", ");
        bail!("no step {unknown:?}: expected quick, full, list, or some of {names}");
    }

    let full = words.iter().any(|word| word == "full");
    ensure!(
        !full || words.len() == 1,
        "`full` already contains every step: name it alone"
    );
    let is_chosen = |step: &&CiStep| {
        if full {
            true
        } else if words.is_empty() {
            step.tier == Tier::Normal
        } else {
            words.iter().any(|word| word == step.name)
        }
    };
    Ok(STEPS.iter().filter(is_chosen).collect())
}

fn list() -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "step",
        "runs in",
        "minutes on two cores",
        "checks",
    ]);
    for step in &STEPS {
        let tier = match step.tier {
            Tier::Normal => "ci",
            Tier::Full => "ci full",
        };
        table.add_row([step.name, tier, step.minutes, step.checks]);
    }

    println!("{table}");
    Ok(())
}

enum StepResult {
    Passed,
    Failed,
    /// This machine lacks a toolchain that the step needs.
    Unavailable,
}

struct CiOutcome {
    time: Duration,
    result: StepResult,
}

fn run_timed(step: &CiStep) -> CiOutcome {
    println!("\n== {}", step.name);
    let start = Instant::now();
    let result = match step.work {
        CiAction::Cargo(arguments) => finish(step, cargo(arguments)),
        CiAction::Function(function) => finish(step, function()),
        CiAction::IfAvailable { probe, .. } if !probe() => StepResult::Unavailable,
        CiAction::IfAvailable { function, .. } => finish(step, function()),
    };
    let time = start.elapsed();
    println!("== {}: {:.1} s", step.name, time.as_secs_f64());
    CiOutcome { time, result }
}

fn finish(step: &CiStep, result: Result<()>) -> StepResult {
    match result {
        Ok(()) => StepResult::Passed,
        Err(error) => {
            println!("{} failed: {error:#}\nfix it with: {}", step.name, step.fix);
            StepResult::Failed
        }
    }
}

fn table(results: &[(&CiStep, CiOutcome)]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(["step", "seconds", "result"]);
    for (step, outcome) in results {
        let result = match outcome.result {
            StepResult::Passed => "passed".to_owned(),
            StepResult::Failed => format!("FAILED, fix with: {}", step.fix),
            StepResult::Unavailable => "not run".to_owned(),
        };
        table.add_row([
            step.name.to_owned(),
            format!("{:.1}", outcome.time.as_secs_f64()),
            result,
        ]);
    }

    let total: Duration = results.iter().map(|(_, outcome)| outcome.time).sum();
    table.add_row([
        "total".to_owned(),
        format!("{:.1}", total.as_secs_f64()),
        String::new(),
    ]);
    table
}

/// Names everything that did not run, because a table without failures does not show it.
fn report_omissions(chosen: &[&CiStep], results: &[(&CiStep, CiOutcome)]) {
    for (step, outcome) in results {
        if matches!(outcome.result, StepResult::Unavailable) {
            println!(
                "Not run here, because the toolchain lacks a component: {} ({})",
                step.name, step.fix
            );
        }
    }

    let left_out: Vec<_> = STEPS
        .iter()
        .filter(|step| chosen.iter().all(|other| other.name != step.name))
        .map(|step| step.name)
        .collect();
    if !left_out.is_empty() {
        println!(
            "Not chosen (`cargo xtask ci full` runs all): {}",
            left_out.join(", ")
        );
    }

    println!("Not run here, because it needs a GPU (`cargo xtask gpu-round` runs it):");
    for check in ON_A_GPU {
        println!("  {check}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<&'static str>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(choose(&words)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn a_normal_run_leaves_out_the_slow_steps() {
        let normal = names(&[]).expect("no words are fine");
        let full = names(&["full"]).expect("full is a word");
        assert!(normal.contains(&"tests") && !normal.contains(&"minimum version"));
        assert_eq!(full.len(), STEPS.len());
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(
            names(&["tests", "format"]).expect("both exist"),
            ["format", "tests"]
        );
        let error = names(&["test"])
            .expect_err("there is no such step")
            .to_string();
        assert!(
            error.starts_with("no step \"test\": expected quick, full, list, or some of format,")
        );
        assert!(names(&["full", "format"]).is_err());
    }
}
