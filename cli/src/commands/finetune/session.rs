//! The training loop: run steps, evaluate, record metrics and write checkpoints.

use std::collections::BTreeSet;
use std::path::PathBuf;

use warpwright_driver::Context;
use warpwright_train::base::Base;
use warpwright_train::checkpoint::{self, Fingerprint};
use warpwright_train::peft::{self, AdapterShapes};
use warpwright_train::reference::Adapters;
use warpwright_train::step::{Evaluation, Trainer};

use super::args::Args;
use super::metrics::Metrics;
use super::plan::TrainingPlan;
use super::progress::TrainingProgress;
use super::samples::Samples;
use crate::failure::Failure;
use warpwright_emu::interrupt::{self, PendingInterrupt};
use warpwright_emu::output::{Output, OutputContent};
use warpwright_emu::terminal::{print, say};

/// The number of steps in a row after which skipped steps end the training.
const PATIENCE: u32 = 5;

/// A training run.
pub(super) struct TrainingSession<'a> {
    args: &'a Args,
    shapes: &'a AdapterShapes<'a>,
    fingerprint: &'a Fingerprint,
    base: &'a Base,
    trainer: Trainer,
    metrics: Metrics,
    /// The number of steps of earlier runs, including skipped ones.
    from: u32,
    /// The number of steps of all runs so far, including skipped ones.
    done: u32,
    /// The number of steps in a row that were skipped last.
    skipped: u32,
    /// The latest complete checkpoint.
    saved: Option<PathBuf>,
}

impl<'a> TrainingSession<'a> {
    /// Prepares a run: loads the model and the checkpoint, and creates the output folder.
    ///
    /// # Errors
    /// Returns an error if the checkpoint does not match the settings, or if a file or the device
    /// fails.
    pub(super) fn new(
        args: &'a Args,
        context: &Context,
        plan: &TrainingPlan,
        base: &'a Base,
        shapes: &'a AdapterShapes<'a>,
        fingerprint: &'a Fingerprint,
    ) -> Result<TrainingSession<'a>, Failure> {
        let fault = |error| {
            Failure::Input(format!(
                "cannot create --out {}: {error}",
                args.out.display()
            ))
        };
        let snapshot = match &args.resume {
            Some(from) => Some(checkpoint::read(from, shapes, fingerprint)?),
            None => None,
        };
        let first = Adapters::random(shapes.config, shapes.lora, args.seed);
        let done = snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.step + snapshot.skipped);
        let steps = plan.settings.training.schedule.total;
        if done > steps {
            let sentence = format!(
                "the checkpoint is of step {done}, and the training has only {steps} steps"
            );
            return Err(Failure::Input(sentence));
        }

        std::fs::create_dir_all(&args.out).map_err(fault)?;

        // The lock on the metrics comes before the trainer, so that a second run in the folder
        // fails before it loads the model.
        let metrics = Metrics::open(&args.out, args.resume.as_ref().map(|_| done))?;
        let mut trainer = Trainer::new(context, plan.settings.clone(), &base.weights, &first)?;
        if let Some(snapshot) = &snapshot {
            trainer.restore(snapshot)?;
        }

        Ok(TrainingSession {
            args,
            shapes,
            fingerprint,
            base,
            trainer,
            metrics,
            from: done,
            done,
            skipped: 0,
            saved: args.resume.clone(),
        })
    }

    /// Trains, and writes the adapter. If the device fails, the latest checkpoint is printed.
    ///
    /// # Errors
    /// Returns an error if the device or the disk fails, or if a signal ended the training.
    pub(super) fn train(mut self, samples: &Samples) -> Result<(), Failure> {
        let ended = self.steps(samples);
        if let (Err(Failure::Runtime(_)), Some(saved)) = (&ended, &self.saved) {
            say(format!(
                "the last checkpoint is complete; continue with --resume {}",
                saved.display()
            ));
        }
        ended
    }

    /// Runs the remaining steps and writes the adapter.
    fn steps(&mut self, samples: &Samples) -> Result<(), Failure> {
        let steps = samples.training.steps();

        // Until the adapter is written, a signal ends the training after the current step.
        let pending = PendingInterrupt::begin("this step, with a checkpoint");
        let mut progress = TrainingProgress::new(steps, self.from);
        self.evaluate(samples, &mut progress)?;
        self.pause(&progress, steps)?;
        while self.done < steps {
            self.step(samples, &mut progress)?;
            self.evaluate(samples, &mut progress)?;
            self.pause(&progress, steps)?;
        }

        progress.end()?;
        let base = self.args.model.path()?.display().to_string();
        peft::write(
            &self.args.out,
            self.shapes,
            &self.trainer.adapters()?,
            &base,
        )?;
        peft::write_base_formats(&self.args.out, &self.base.formats)?;
        self.draw()?;
        drop(pending);
        Ok(print(&format_args!(
            "the adapter is in {}",
            self.args.out.display()
        ))?)
    }

    /// Runs a step. Several skipped steps in a row are an error.
    fn step(&mut self, samples: &Samples, progress: &mut TrainingProgress) -> Result<(), Failure> {
        let batches = &samples.training;
        let step = self.done;
        let record = self.trainer.step(&batches.step(step))?;
        self.done = step + 1;
        let tokens = batches.samples(step).map(|sample| sample.ids.len()).sum();
        let about = progress.step(step + 1, batches.epoch(step), tokens, &record);
        self.metrics.add(about, &record)?;
        self.skipped = if record.skipped { self.skipped + 1 } else { 0 };
        if self.skipped < PATIENCE {
            return Ok(());
        }

        // A single skipped step is harmless. Many of them mean that the weights themselves are
        // broken.
        let lines: BTreeSet<_> = (step + 1 - PATIENCE..=step)
            .flat_map(|step| batches.samples(step))
            .map(|sample| sample.line)
            .collect();
        Err(Failure::Runtime(format!(
            "loss or gradients were not finite in {PATIENCE} steps in a row, so training ends; their samples are on \
             lines {lines:?} of {}; a lower --lr may help",
            self.args.data.display()
        )))
    }

    /// Evaluates the adapters, if an evaluation is due and an earlier run has not done it.
    ///
    /// A signal ends the evaluation without a record, so that a resumed run evaluates again.
    fn evaluate(
        &mut self,
        samples: &Samples,
        progress: &mut TrainingProgress,
    ) -> Result<(), Failure> {
        let Some(evaluation) = &samples.evaluation else {
            return Ok(());
        };

        let due = evaluation.is_due(self.done, samples.training.steps());
        if !due || self.metrics.is_evaluated(self.done) {
            return Ok(());
        }

        let mut all = Evaluation::default();
        for micro in (0..evaluation.batches.steps()).flat_map(|step| evaluation.batches.step(step))
        {
            if interrupt::check().is_err() {
                return Ok(());
            }
            let Evaluation { loss, tokens } = self.trainer.evaluate(&micro)?;
            all.loss += loss;
            all.tokens += tokens;
        }

        self.metrics.add_evaluation(self.done, &all)?;
        progress.evaluation(self.done, &all);
        Ok(())
    }

    /// Writes a checkpoint if one is due. After a signal, also writes one and returns the signal as
    /// an error.
    fn pause(&mut self, progress: &TrainingProgress, steps: u32) -> Result<(), Failure> {
        let stop = interrupt::check();
        let done = self.done;
        let due = self
            .args
            .save_every
            .is_some_and(|every| done > self.from && done.is_multiple_of(every));
        if due || stop.is_err() {
            let folder = match &self.saved {
                // No step was done since the checkpoint that this run resumed from.
                Some(saved) if done == self.from => saved.clone(),
                _ => self.save()?,
            };
            if stop.is_err() {
                let folder = folder.display();
                progress.say(format!(
                    "stopped after step {done} of {steps}; continue with --resume {folder}"
                ));
            }
        }

        Ok(stop?)
    }

    /// Writes a checkpoint and returns its folder.
    fn save(&mut self) -> Result<PathBuf, Failure> {
        let folder = self.args.out.join(format!("checkpoint-{}", self.done));
        let base = self.args.model.path()?.display().to_string();
        let snapshot = self.trainer.snapshot()?;
        checkpoint::write(
            &folder,
            self.shapes,
            &snapshot,
            self.fingerprint,
            &base,
            &self.base.formats,
        )?;
        self.saved = Some(folder.clone());
        self.draw()?;
        Ok(folder)
    }

    /// Writes the plot of the losses to `loss.svg`.
    fn draw(&self) -> Result<(), Failure> {
        let path = self.args.out.join("loss.svg");
        let output = Output {
            option: "--out",
            path: &path,
            inputs: vec![],
            content: OutputContent::Text,
        };
        output.write(|file| Ok(file.write(self.metrics.draw()?.as_bytes())?))
    }
}
