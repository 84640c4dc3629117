//! The output files of a measurement: `--json` and `--plot`.
//!
//! The files are created before the measurement, so that a wrong path costs no time. They appear
//! only if it succeeds.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Failure;
use warpwright_emu::output::{Output, OutputContent, OutputSink, write_if};

/// The option `--json`.
#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct JsonArg {
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// The result of a benchmark, which is printed and written as JSON.
pub(super) trait BenchReport: Serialize {
    /// Prints the result as a table.
    fn print(&self) -> Result<(), Failure>;

    /// Returns true if all compared tokens or losses were equal.
    fn is_consistent(&self) -> bool {
        true
    }
}

/// The files to write.
pub(super) struct BenchFiles<'a> {
    /// The file or folder that the measurement reads. It must not be overwritten.
    pub(super) model: Option<&'a Path>,
    pub(super) json: &'a JsonArg,
}

impl BenchFiles<'_> {
    /// Measures, prints the result, and writes the file of `--json`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, if the measurement fails, or if compared
    /// results differ.
    pub(super) fn deliver<R: BenchReport>(
        &self,
        measure: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<(), Failure> {
        let report = write_if(self.output("--json", self.json.json.as_deref()), |json| {
            publish(measure()?, json)
        })?;
        verdict(&report)
    }

    /// Measures, prints the result, and writes the files of `--json` and `--plot`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, if the measurement fails, or if compared
    /// results differ.
    pub(super) fn deliver_with_plot<R: BenchReport>(
        &self,
        plot: Option<&Path>,
        draw: impl FnOnce(&R) -> String,
        measure: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<(), Failure> {
        let report = write_if(self.output("--json", self.json.json.as_deref()), |json| {
            write_if(self.output("--plot", plot), |plot| {
                let report = publish(measure()?, json)?;
                if let Some(file) = plot {
                    file.write(draw(&report).as_bytes())?;
                }
                Ok::<_, Failure>(report)
            })
        })?;
        verdict(&report)
    }

    fn output<'p>(&'p self, option: &'static str, path: Option<&'p Path>) -> Option<Output<'p>> {
        Some(Output {
            option,
            path: path?,
            inputs: self
                .model
                .map(|model| ("model", model))
                .into_iter()
                .collect(),
            content: OutputContent::Aside,
        })
    }
}

/// Prints a report, and writes it as JSON.
fn publish<R: BenchReport>(report: R, json: Option<&mut OutputSink<'_>>) -> Result<R, Failure> {
    report.print()?;
    if let Some(file) = json {
        let json = serde_json::to_string_pretty(&report).expect("strings and numbers") + "\n";
        file.write(json.as_bytes())?;
    }
    Ok(report)
}

/// Returns an error if compared results differ.
fn verdict(report: &impl BenchReport) -> Result<(), Failure> {
    if report.is_consistent() {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}
