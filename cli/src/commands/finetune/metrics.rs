//! `metrics.jsonl`: an object for each step, and one for each evaluation.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_train::reference::Record;
use warpwright_train::step::Evaluation;

use crate::failure::Failure;
use crate::plot::{self, Curve};

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
    /// Goes on after the lines of step `last`.
    pub(super) fn open(folder: &Path, last: u32) -> Result<Metrics, Failure> {
        let path = folder.join("metrics.jsonl");
        let fault = |error| Failure::Runtime(format!("cannot go on with {}: {error}", path.display()));
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            old => old.map_err(fault)?,
        };
        let kept = old.lines().filter(|line| step(&row(line)).is_some_and(|step| step <= last.into()));
        let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
        let mut file = File::create(&path).map_err(fault)?;
        file.write_all(kept.as_bytes()).map_err(fault)?;
        let evaluations = kept.lines().map(row).filter(|row| row.get(EVALUATION).is_some());
        let evaluated = evaluations.filter_map(|row| step(&row)).max();
        Ok(Metrics { file, path, evaluated })
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
        self.write(&json!({ "step": step, EVALUATION: found.mean(), "eval_tokens": found.tokens }))?;
        self.evaluated = Some(step.into());
        Ok(())
    }

    fn write(&mut self, row: &Value) -> Result<(), Failure> {
        let fault = |error| Failure::Runtime(format!("cannot write {}: {error}", self.path.display()));
        writeln!(self.file, "{row}").map_err(fault)
    }

    /// The losses of the whole run against its steps, as a picture. A loss that was not finite has no point.
    pub(super) fn draw(&self) -> Result<String, Failure> {
        let fault = |error| Failure::Runtime(format!("cannot read {}: {error}", self.path.display()));
        let rows: Vec<Value> = fs::read_to_string(&self.path).map_err(fault)?.lines().map(row).collect();
        let curve = |name, color, field: &str| {
            let point = |row: &Value| Some((row["step"].as_f64()?, row[field].as_f64()?));
            Curve { name, color, points: rows.iter().filter_map(point).collect() }
        };
        let curves = [curve("loss", plot::BLUE, LOSS), curve("evaluation loss", plot::RED, EVALUATION)];
        plot::curves("steps", "nats a token", &curves).map_err(|problem| {
            Failure::Runtime(format!("cannot draw the losses of {}: {problem}", self.path.display()))
        })
    }
}

/// A line; null if it is no JSON.
fn row(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

fn step(row: &Value) -> Option<u64> {
    row["step"].as_u64()
}
