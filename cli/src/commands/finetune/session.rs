//! The loop over the steps: launch, record, save.

use std::time::{Duration, Instant};

use warpwright_driver::Context;
use warpwright_train::base::Base;
use warpwright_train::checkpoint::{self, Fingerprint};
use warpwright_train::data::Batches;
use warpwright_train::peft::{self, Shapes};
use warpwright_train::reference::{Adapters, Record};
use warpwright_train::step::Trainer;

use super::args::Args;
use super::metrics::{About, Metrics};
use super::plan::Plan;
use crate::failure::Failure;
use crate::interrupt::{self, Pending};
use crate::progress::Bar;
use crate::terminal::say;

/// Steps in a row that may be skipped.
const PATIENCE: u32 = 5;

/// Steps whose losses the last line has the mean of, at most: a tenth of all.
const MEAN: usize = 100;

/// The least time between two lines where there is no bar.
const REPORT: Duration = Duration::from_secs(10);

pub(super) struct Session<'a> {
    args: &'a Args,
    shapes: &'a Shapes<'a>,
    fingerprint: &'a Fingerprint,
    trainer: Trainer,
    metrics: Metrics,
    /// Steps that were launched before, the skipped ones among them.
    done: u32,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        args: &'a Args,
        context: &Context,
        plan: &Plan,
        base: &Base,
        shapes: &'a Shapes<'a>,
        fingerprint: &'a Fingerprint,
    ) -> Result<Session<'a>, Failure> {
        let snapshot =
            args.resume.as_ref().map(|from| checkpoint::read(from, shapes, fingerprint)).transpose()?;
        let first = Adapters::random(shapes.config, shapes.lora, args.seed);
        let mut trainer = Trainer::new(context, plan.settings.clone(), &base.weights, &first)?;
        let mut done = 0;
        if let Some(snapshot) = &snapshot {
            trainer.restore(snapshot)?;
            done = snapshot.step + snapshot.skipped;
            let steps = plan.settings.training.schedule.total;
            if done > steps {
                let sentence = format!("the checkpoint is of step {done}, and the training has {steps}");
                return Err(Failure::Input(sentence));
            }
        }
        let fault = |error| Failure::Runtime(format!("cannot make {}: {error}", args.out.display()));
        std::fs::create_dir_all(&args.out).map_err(fault)?;
        Ok(Session { args, shapes, fingerprint, trainer, metrics: Metrics::open(&args.out, done)?, done })
    }

    pub(super) fn train(mut self, batches: &Batches) -> Result<(), Failure> {
        let (steps, from) = (batches.steps(), self.done);
        let pending = Pending::begin("this step, with a checkpoint");
        let mut progress = Progress::new(steps, from);
        let mut skipped = 0;
        for step in from..steps {
            let record = self.trainer.step(&batches.step(step))?;
            self.done = step + 1;
            let tokens = batches.samples(step).map(|sample| sample.ids.len()).sum();
            let about = progress.step(step + 1, batches.epoch(step), tokens, &record);
            self.metrics.add(about, &record)?;
            skipped = if record.skipped { skipped + 1 } else { 0 };
            if skipped == PATIENCE {
                let lines: Vec<_> = (step + 1 - PATIENCE..=step)
                    .flat_map(|step| batches.samples(step))
                    .map(|sample| sample.line)
                    .collect();
                return Err(Failure::Runtime(format!(
                    "loss or gradients were not finite in {PATIENCE} steps in a row, so training ends; their samples \
                     are on the lines {lines:?} of {}. A lower --lr may help",
                    self.args.data.display()
                )));
            }
            let stop = interrupt::check();
            let due = self.args.save_every.is_some_and(|every| self.done.is_multiple_of(every));
            if due || stop.is_err() {
                let folder = self.save()?;
                if stop.is_err() {
                    drop(progress);
                    say(format!("stopped after step {} of {steps}; go on with --resume {folder}", self.done));
                    return stop;
                }
            }
        }
        progress.end();
        let base = self.args.model.display().to_string();
        peft::write(&self.args.out, self.shapes, &self.trainer.adapters()?, &base)?;
        drop(pending);
        println!("the adapter is in {}", self.args.out.display());
        Ok(())
    }

    /// Writes a checkpoint, and gives its folder.
    fn save(&self) -> Result<String, Failure> {
        let folder = self.args.out.join(format!("checkpoint-{}", self.done));
        let base = self.args.model.display().to_string();
        checkpoint::write(&folder, self.shapes, &self.trainer.snapshot()?, self.fingerprint, &base)?;
        Ok(folder.display().to_string())
    }
}

/// What a user sees meanwhile: a bar at a terminal, else a line now and then.
struct Progress {
    bar: Bar,
    steps: u32,
    /// Steps of an earlier run.
    from: u32,
    start: Instant,
    last: Instant,
    reported: Instant,
    tokens: usize,
    /// Of the steps that were taken.
    losses: Vec<f64>,
}

impl Progress {
    fn new(steps: u32, from: u32) -> Progress {
        let bar = Bar::new("step {pos}/{len} {wide_bar} {msg}, {eta} left", steps.into());
        bar.set_position(from.into());
        let now = Instant::now();
        Progress { bar, steps, from, start: now, last: now, reported: now, tokens: 0, losses: vec![] }
    }

    fn step(&mut self, step: u32, epoch: usize, tokens: usize, record: &Record) -> About {
        let took = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.tokens += tokens;
        let about = About { step, epoch, tokens, tokens_per_second: tokens as f64 / took };
        if !record.skipped {
            self.losses.push(record.loss);
        }
        let skipped = if record.skipped { ", skipped: not finite" } else { "" };
        let text = format!("loss {:.4}, {:.0} tokens/s{skipped}", record.loss, about.tokens_per_second);
        self.bar.set_message(text.clone());
        self.bar.set_position(step.into());
        if self.bar.is_hidden() && (self.reported.elapsed() >= REPORT || step == 1) {
            self.reported = Instant::now();
            say(format!("step {step} of {}: {text}, learning rate {:.3e}", self.steps, record.lr));
        }
        about
    }

    fn end(self) {
        drop(self.bar);
        let last = &self.losses[self.losses.len() - self.losses.len().div_ceil(10).min(MEAN)..];
        let Some(first) = self.losses.first() else {
            println!("no step was left to be trained");
            return;
        };
        let (time, mean) = (self.start.elapsed(), last.iter().sum::<f64>() / last.len() as f64);
        println!(
            "{} steps in {}, {:.0} tokens/s; loss {first:.4} at first, {mean:.4} over the last {}",
            self.steps - self.from,
            humantime::format_duration(Duration::from_secs(time.as_secs())),
            self.tokens as f64 / time.as_secs_f64(),
            last.len()
        );
    }
}
