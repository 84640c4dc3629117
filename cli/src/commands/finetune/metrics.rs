//! `metrics.jsonl`: an object for each step, and one for each evaluation.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_train::reference::Record;
use warpwright_train::step::Evaluation;

use crate::failure::Failure;
use crate::plot::{self, Curve};

const NAME: &str = "metrics.jsonl";
/// The fields of the curves.
const LOSS: &str = "loss";
const EVALUATION: &str = "eval_loss";

pub(super) struct Metrics {
    path: PathBuf,
    file: File,
    /// The step after which the last evaluation was.
    evaluated: Option<u64>,
}

/// What is known of a step besides its record.
#[derive(Clone, Copy)]
pub(super) struct About {
    /// From 1, the skipped ones among them.
    pub(super) step: u32,
    pub(super) epoch: usize,
    /// Without padding.
    pub(super) tokens: usize,
    pub(super) tokens_per_second: f64,
}

impl Metrics {
    /// Goes on after the lines of step `last`, or begins if there is none. As long as this lives, no other run writes to
    /// the folder.
    pub(super) fn open(folder: &Path, last: Option<u32>) -> Result<Metrics, Failure> {
        let path = folder.join(NAME);
        let fault =
            |error| Failure::Runtime(format!("cannot go on with {}: {error}", path.display()));
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
        // Another run may have come first since the folder was looked at.
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

    /// Whether there is an evaluation after so many steps.
    pub(super) fn is_evaluated(&self, step: u32) -> bool {
        self.evaluated == Some(step.into())
    }

    pub(super) fn add(&mut self, about: About, record: &Record) -> Result<(), Failure> {
        // JSON has no infinities: what is not finite becomes null.
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

    /// What was found after so many steps.
    pub(super) fn add_evaluation(&mut self, step: u32, found: &Evaluation) -> Result<(), Failure> {
        self.write(
            &json!({ "step": step, EVALUATION: found.mean(), "eval_tokens": found.tokens }),
        )?;
        self.evaluated = Some(step.into());
        Ok(())
    }

    fn write(&mut self, row: &Value) -> Result<(), Failure> {
        let fault =
            |error| Failure::Runtime(format!("cannot write {}: {error}", self.path.display()));
        writeln!(self.file, "{row}").map_err(fault)
    }

    /// The losses of the whole run against its steps, as a picture. A loss that was not finite has no point.
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
        plot::curves("steps", "nats a token", &curves).map_err(|problem| {
            Failure::Runtime(format!(
                "cannot draw the losses of {}: {problem}",
                self.path.display()
            ))
        })
    }
}

/// Refuses a folder to which another run writes.
pub(super) fn check(folder: &Path) -> Result<(), Failure> {
    match File::open(folder.join(NAME)) {
        Ok(file) => lock(&file, folder),
        Err(_) => Ok(()),
    }
}

/// Leaves only what is kept. It is mostly how the file begins: then nothing of it is lost whenever this is interrupted.
fn keep(file: &mut File, old: &str, kept: &str) -> io::Result<()> {
    if old.starts_with(kept) {
        file.set_len(kept.len() as u64)?;
        return file.seek(SeekFrom::End(0)).map(|_| ());
    }
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(kept.as_bytes())
}

/// Locks the file, unless another process has. The system gives it back when the file is closed, however the process ends.
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

fn used(folder: &Path) -> Failure {
    Failure::Input(format!(
        "--out {}: another run writes to it; wait until that has ended, or name another folder",
        folder.display()
    ))
}

/// A line; null if it is no JSON.
fn row(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

fn step(row: &Value) -> Option<u64> {
    row["step"].as_u64()
}
