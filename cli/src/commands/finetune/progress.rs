//! The progress of a training run: a bar at a terminal, or a line now and then.

use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use warpwright_train::reference::Record;
use warpwright_train::step::Evaluation;

use super::metrics::StepMetrics;
use crate::failure::Failure;
use crate::terminal::progress::Bar;
use warpwright_emu::terminal::{print, say};

/// The largest number of steps in the mean loss of the last line. At most a tenth of all steps
/// count.
const MEAN: usize = 100;

/// The shortest time between two lines, if there is no bar.
const REPORT: Duration = Duration::from_secs(10);

/// The progress of a training run.
pub(super) struct TrainingProgress {
    bar: Bar,
    steps: u32,
    /// The number of steps of earlier runs.
    from: u32,
    start: Instant,
    /// The end of the last step or evaluation.
    last: Instant,
    /// The time of the last line.
    reported: Instant,
    /// The number of tokens trained on by this run.
    tokens: usize,
    /// The total time of evaluations.
    evaluating: Duration,
    /// The losses of all steps that were not skipped.
    losses: Vec<f64>,
}

impl TrainingProgress {
    /// Starts the progress of a run with `steps` steps, of which earlier runs have done `from`.
    pub(super) fn new(steps: u32, from: u32) -> TrainingProgress {
        let bar = Bar::new("step {pos}/{len} {wide_bar} {msg}", steps.into());
        bar.set_position(from.into());
        bar.set_message("the first step is running");
        let now = Instant::now();
        TrainingProgress {
            bar,
            steps,
            from,
            start: now,
            last: now,
            reported: now,
            tokens: 0,
            evaluating: Duration::ZERO,
            losses: vec![],
        }
    }

    /// Records that a step has ended, and returns its metrics.
    pub(super) fn step(
        &mut self,
        step: u32,
        epoch: usize,
        tokens: usize,
        record: &Record,
    ) -> StepMetrics {
        let took = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.tokens += tokens;
        let about = StepMetrics {
            step,
            epoch,
            tokens,
            tokens_per_second: tokens as f64 / took,
        };
        if !record.skipped {
            self.losses.push(record.loss);
        }

        let skipped = if record.skipped {
            ", skipped: not finite"
        } else {
            ""
        };
        let text = format!(
            "loss {:.4}, {:.0} tokens/s{skipped}",
            record.loss, about.tokens_per_second
        );
        self.bar
            .set_message(format!("{text}, {} left", HumanDuration(self.left(step))));
        self.bar.set_position(step.into());

        // In a log, the first step is reported at once, to show that the training has started.
        if self.bar.is_hidden() && (self.reported.elapsed() >= REPORT || step == 1) {
            self.reported = Instant::now();
            say(format!(
                "step {step} of {}: {text}, learning rate {:.3e}",
                self.steps, record.lr
            ));
        }

        about
    }

    /// Estimates the time of the steps after `step`, from the mean time of the steps in this run.
    fn left(&self, step: u32) -> Duration {
        let training = self.start.elapsed().saturating_sub(self.evaluating);
        training / (step - self.from).max(1) * self.steps.saturating_sub(step)
    }

    /// Records that an evaluation has ended, and prints its loss.
    pub(super) fn evaluation(&mut self, step: u32, found: &Evaluation) {
        self.evaluating += self.last.elapsed();
        self.last = Instant::now();
        self.say(format!(
            "step {step} of {}: evaluation loss {:.4} over {} tokens",
            self.steps,
            found.mean(),
            found.tokens
        ));
    }

    /// Prints a line above the bar.
    pub(super) fn say(&self, line: String) {
        self.bar.suspend(|| say(line));
    }

    /// Prints the summary of the run.
    pub(super) fn end(self) -> Result<(), Failure> {
        drop(self.bar);
        let Some(first) = self.losses.first() else {
            return Ok(print(&"no step was left to train")?);
        };

        let count = self.losses.len().div_ceil(10).min(MEAN);
        let last = &self.losses[self.losses.len() - count..];
        let mean = last.iter().sum::<f64>() / count as f64;
        let time = self.start.elapsed();
        Ok(print(&format_args!(
            "{} steps in {}, {:.0} tokens/s; loss {first:.4} in the first step, {mean:.4} in the last {count}",
            self.steps - self.from,
            humantime::format_duration(Duration::from_secs(time.as_secs())),
            self.tokens as f64 / (time - self.evaluating).as_secs_f64()
        ))?)
    }
}
