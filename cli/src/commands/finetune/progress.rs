//! What a user sees meanwhile.

use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use warpwright_train::reference::Record;
use warpwright_train::step::Evaluation;

use super::metrics::About;
use crate::failure::Failure;
use crate::progress::Bar;
use crate::terminal::{print, say};

/// Steps whose losses the last line has the mean of, at most: a tenth of all.
const MEAN: usize = 100;

/// The least time between two lines where there is no bar.
const REPORT: Duration = Duration::from_secs(10);

/// A bar at a terminal, else a line now and then.
pub(super) struct Progress {
    bar: Bar,
    steps: u32,
    /// Steps of an earlier run.
    from: u32,
    start: Instant,
    last: Instant,
    reported: Instant,
    tokens: usize,
    /// What evaluations took.
    evaluating: Duration,
    /// Of the steps that were taken.
    losses: Vec<f64>,
}

impl Progress {
    pub(super) fn new(steps: u32, from: u32) -> Progress {
        let bar = Bar::new("step {pos}/{len} {wide_bar} {msg}", steps.into());
        bar.set_position(from.into());
        bar.set_message("the first step is under way");
        let now = Instant::now();
        let [start, last, reported] = [now; 3];
        let evaluating = Duration::ZERO;
        Progress {
            bar,
            steps,
            from,
            start,
            last,
            reported,
            tokens: 0,
            evaluating,
            losses: vec![],
        }
    }

    pub(super) fn step(
        &mut self,
        step: u32,
        epoch: usize,
        tokens: usize,
        record: &Record,
    ) -> About {
        let took = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.tokens += tokens;
        let about = About {
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
        if self.bar.is_hidden() && (self.reported.elapsed() >= REPORT || step == 1) {
            self.reported = Instant::now();
            say(format!(
                "step {step} of {}: {text}, learning rate {:.3e}",
                self.steps, record.lr
            ));
        }
        about
    }

    /// Estimates the time of the steps after `step` from the mean of those that this run has taken.
    fn left(&self, step: u32) -> Duration {
        let training = self.start.elapsed().saturating_sub(self.evaluating);
        training / (step - self.from).max(1) * self.steps.saturating_sub(step)
    }

    pub(super) fn evaluation(&mut self, step: u32, found: &Evaluation) {
        self.evaluating += self.last.elapsed();
        self.last = Instant::now();
        let (steps, Evaluation { tokens, .. }) = (self.steps, found);
        self.say(format!(
            "step {step} of {steps}: evaluation loss {:.4} over {tokens} tokens",
            found.mean()
        ));
    }

    /// Writes a line above the bar.
    pub(super) fn say(&self, line: String) {
        self.bar.suspend(|| say(line));
    }

    pub(super) fn end(self) -> Result<(), Failure> {
        drop(self.bar);
        let last = &self.losses[self.losses.len() - self.losses.len().div_ceil(10).min(MEAN)..];
        let Some(first) = self.losses.first() else {
            return print(&"no step was left to be trained");
        };
        let (time, mean) = (
            self.start.elapsed(),
            last.iter().sum::<f64>() / last.len() as f64,
        );
        print(&format_args!(
            "{} steps in {}, {:.0} tokens/s; loss {first:.4} at first, {mean:.4} over the last {}",
            self.steps - self.from,
            humantime::format_duration(Duration::from_secs(time.as_secs())),
            self.tokens as f64 / (time - self.evaluating).as_secs_f64(),
            last.len()
        ))
    }
}
