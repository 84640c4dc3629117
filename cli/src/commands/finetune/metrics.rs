//! `metrics.jsonl`: an object for each step.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use warpwright_train::reference::Record;

use crate::failure::Failure;

pub(super) struct Metrics {
    path: PathBuf,
    file: File,
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
    /// Goes on after the line of step `last`.
    pub(super) fn open(folder: &Path, last: u32) -> Result<Metrics, Failure> {
        let path = folder.join("metrics.jsonl");
        let fault = |error| Failure::Runtime(format!("cannot go on with {}: {error}", path.display()));
        let old = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            old => old.map_err(fault)?,
        };
        let step =
            |line: &&str| serde_json::from_str::<Value>(line).ok().and_then(|row| row["step"].as_u64());
        let kept = old.lines().filter(|line| step(line).is_some_and(|step| step <= last.into()));
        let kept: String = kept.flat_map(|line| [line, "\n"]).collect();
        let mut file = File::create(&path).map_err(fault)?;
        file.write_all(kept.as_bytes()).map_err(fault)?;
        Ok(Metrics { file, path })
    }

    pub(super) fn add(&mut self, about: About, record: &Record) -> Result<(), Failure> {
        // JSON has no infinities: what is not finite becomes null.
        let row = json!({
            "step": about.step,
            "epoch": about.epoch,
            "loss": record.loss,
            "norm": record.norm,
            "clip": record.clip,
            "lr": record.lr,
            "tokens": about.tokens,
            "tokens_per_second": about.tokens_per_second,
            "skipped": record.skipped,
        });
        let fault = |error| Failure::Runtime(format!("cannot write {}: {error}", self.path.display()));
        writeln!(self.file, "{row}").map_err(fault)
    }
}
