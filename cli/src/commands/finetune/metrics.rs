//! The file `metrics.jsonl`, with a JSON object for each step and each evaluation.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_train::reference::Record;
use warpwright_train::step::Evaluation;

use crate::commands::finetune::plot::{self, Curve};
use crate::failure::Failure;

const NAME: &str = "metrics.jsonl";
/// The field with the loss of a step.
const LOSS: &str = "loss";
/// The field with the loss of an evaluation.
const EVALUATION: &str = "eval_loss";

/// The open file of metrics. Its lock keeps other runs out of the folder.
pub(super) struct Metrics {
    path: PathBuf,
    file: File,
    /// The number of steps before the last evaluation.
    evaluated: Option<u64>,
}

/// Metrics of a step that the trainer's record does not contain.
#[derive(Clone, Copy)]
pub(super) struct StepMetrics {
    /// The number of the step, from 1. Skipped steps count.
    pub(super) step: u32,
    pub(super) epoch: usize,
    /// The number of tokens without padding.
    pub(super) tokens: usize,
    pub(super) tokens_per_second: f64,
}

impl Metrics {
    /// Opens the file in `folder` and locks it. Lines of steps after `last` are removed.
    ///
    /// `last` is the step of the checkpoint, or `None` for a new run.
    ///
    /// # Errors
    /// Returns an error if another run has the lock, or if the file cannot be read or written.
    pub(super) fn open(folder: &Path, last: Option<u32>) -> Result<Metrics, Failure> {
        let path = folder.join(NAME);
        let fault =
            |error| Failure::Runtime(format!("cannot continue {}: {error}", path.display()));
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fault)?;
        lock(&file, folder)?;
        let mut old = String::new();
        file.read_to_string(&mut old).map_err(fault)?;

        // Another run may have started in this folder after it was checked.
        if last.is_none() && !old.is_empty() {
            return Err(used(folder));
        }

        let last = u64::from(last.unwrap_or(0));
        let kept = old
            .lines()
            .filter(|line| step(&row(line)).is_some_and(|step| step <= last));
        let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
        keep(&mut file, &old, &kept).map_err(fault)?;
        let evaluations = kept
            .lines()
            .map(row)
            .filter(|row| row.get(EVALUATION).is_some());
        let evaluated = evaluations.filter_map(|row| step(&row)).max();
        Ok(Metrics {
            file,
            path,
            evaluated,
        })
    }

    /// Returns true if the last evaluation was after `step` steps.
    pub(super) fn is_evaluated(&self, step: u32) -> bool {
        self.evaluated == Some(step.into())
    }

    /// Appends a step.
    pub(super) fn add(&mut self, about: StepMetrics, record: &Record) -> Result<(), Failure> {
        // JSON has no infinities, so values that are not finite become null.
        let row = json!({
            "step": about.step,
            "epoch": about.epoch,
            LOSS: record.loss,
            "norm": record.norm,
            "clip": record.clip,
            "lr": record.lr,
            "tokens": about.tokens,
            "tokens_per_second": about.tokens_per_second,
            "skipped": record.skipped,
        });
        self.write(&row)
    }

    /// Appends an evaluation after `step` steps.
    pub(super) fn add_evaluation(&mut self, step: u32, found: &Evaluation) -> Result<(), Failure> {
        self.write(
            &json!({ "step": step, EVALUATION: found.mean(), "eval_tokens": found.tokens }),
        )?;
        self.evaluated = Some(step.into());
        Ok(())
    }

    /// Appends a line.
    fn write(&mut self, row: &Value) -> Result<(), Failure> {
        let fault =
            |error| Failure::Runtime(format!("cannot write {}: {error}", self.path.display()));
        writeln!(self.file, "{row}").map_err(fault)
    }

    /// Plots the losses of the whole run as SVG, including earlier runs. A loss that is not finite
    /// has no point.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or the plot cannot be drawn.
    pub(super) fn draw(&self) -> Result<String, Failure> {
        let fault =
            |error| Failure::Runtime(format!("cannot read {}: {error}", self.path.display()));
        let rows: Vec<Value> = fs::read_to_string(&self.path)
            .map_err(fault)?
            .lines()
            .map(row)
            .collect();
        let curve = |name, color, field: &str| {
            let point = |row: &Value| Some((row["step"].as_f64()?, row[field].as_f64()?));
            Curve {
                name,
                color,
                points: rows.iter().filter_map(point).collect(),
            }
        };
        let curves = [
            curve("loss", plot::BLUE, LOSS),
            curve("evaluation loss", plot::RED, EVALUATION),
        ];
        plot::curves("steps", "nats per token", &curves).map_err(|problem| {
            Failure::Runtime(format!(
                "cannot draw the losses of {}: {problem}",
                self.path.display()
            ))
        })
    }
}

/// Returns an error if another run is writing to the folder.
pub(super) fn check(folder: &Path) -> Result<(), Failure> {
    match File::open(folder.join(NAME)) {
        Ok(file) => lock(&file, folder),
        Err(_) => Ok(()),
    }
}

/// Replaces the content `old` of the file by `kept`.
///
/// `kept` is usually the beginning of `old`. Then the file is only truncated, and an interruption
/// loses no line.
fn keep(file: &mut File, old: &str, kept: &str) -> io::Result<()> {
    if old.starts_with(kept) {
        file.set_len(kept.len() as u64)?;
        return file.seek(SeekFrom::End(0)).map(|_| ());
    }
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(kept.as_bytes())
}

/// Locks the file, or returns an error if another process has the lock.
///
/// The system releases the lock when the file is closed or the process ends.
#[cfg(unix)]
fn lock(file: &File, folder: &Path) -> Result<(), Failure> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(used(folder)),
        // Some file systems have no locks.
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn lock(_: &File, _: &Path) -> Result<(), Failure> {
    Ok(())
}

/// Returns the error about a folder that another run is writing to.
fn used(folder: &Path) -> Failure {
    Failure::Input(format!(
        "--out {}: another run is writing to it; wait until it ends, or name another folder",
        folder.display()
    ))
}

/// Parses a line, and returns null if it is not JSON.
fn row(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// Returns the step of a line.
fn step(row: &Value) -> Option<u64> {
    row["step"].as_u64()
}
