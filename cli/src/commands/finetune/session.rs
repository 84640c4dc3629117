//! The loop over the steps: launch, record, save.

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
use super::plan::Plan;
use super::progress::Progress;
use super::samples::Samples;
use crate::failure::Failure;
use crate::interrupt::{self, Pending};
use crate::output::{Content, Output};
use crate::terminal::{print, say};

/// Steps in a row that may be skipped.
const PATIENCE: u32 = 5;

pub(super) struct Session<'a> {
    args: &'a Args,
    shapes: &'a AdapterShapes<'a>,
    fingerprint: &'a Fingerprint,
    base: &'a Base,
    trainer: Trainer,
    metrics: Metrics,
    /// Steps that were launched in an earlier run, the skipped ones among them.
    from: u32,
    /// Those and the ones that were launched since.
    done: u32,
    /// The last of them that were skipped in a row.
    skipped: u32,
    /// The latest checkpoint, which is whole.
    saved: Option<PathBuf>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        args: &'a Args,
        context: &Context,
        plan: &Plan,
        base: &'a Base,
        shapes: &'a AdapterShapes<'a>,
        fingerprint: &'a Fingerprint,
    ) -> Result<Session<'a>, Failure> {
        let fault =
            |error| Failure::Input(format!("cannot make --out {}: {error}", args.out.display()));
        let snapshot = args
            .resume
            .as_ref()
            .map(|from| checkpoint::read(from, shapes, fingerprint))
            .transpose()?;
        let first = Adapters::random(shapes.config, shapes.lora, args.seed);
        let done = snapshot
            .as_ref()
            .map_or(0, |snapshot| snapshot.step + snapshot.skipped);
        let steps = plan.settings.training.schedule.total;
        if done > steps {
            let sentence =
                format!("the checkpoint is of step {done}, and the training has {steps}");
            return Err(Failure::Input(sentence));
        }
        std::fs::create_dir_all(&args.out).map_err(fault)?;
        let metrics = Metrics::open(&args.out, args.resume.as_ref().map(|_| done))?;
        let mut trainer = Trainer::new(context, plan.settings.clone(), &base.weights, &first)?;
        if let Some(snapshot) = &snapshot {
            trainer.restore(snapshot)?;
        }
        Ok(Session {
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

    /// Trains and writes the adapter. If that fails, it says from where one can go on.
    pub(super) fn train(mut self, samples: &Samples) -> Result<(), Failure> {
        let ended = self.steps(samples);
        if let (Err(Failure::Runtime(_)), Some(saved)) = (&ended, &self.saved) {
            say(format!(
                "the last checkpoint is whole; go on with --resume {}",
                saved.display()
            ));
        }
        ended
    }

    fn steps(&mut self, samples: &Samples) -> Result<(), Failure> {
        let steps = samples.training.steps();
        let pending = Pending::begin("this step, with a checkpoint");
        let mut progress = Progress::new(steps, self.from);
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
        print(&format_args!(
            "the adapter is in {}",
            self.args.out.display()
        ))
    }

    fn step(&mut self, samples: &Samples, progress: &mut Progress) -> Result<(), Failure> {
        let (batches, step) = (&samples.training, self.done);
        let record = self.trainer.step(&batches.step(step))?;
        self.done = step + 1;
        let tokens = batches.samples(step).map(|sample| sample.ids.len()).sum();
        let about = progress.step(step + 1, batches.epoch(step), tokens, &record);
        self.metrics.add(about, &record)?;
        self.skipped = if record.skipped { self.skipped + 1 } else { 0 };
        if self.skipped < PATIENCE {
            return Ok(());
        }
        let lines: BTreeSet<_> = (step + 1 - PATIENCE..=step)
            .flat_map(|step| batches.samples(step))
            .map(|sample| sample.line)
            .collect();
        Err(Failure::Runtime(format!(
            "loss or gradients were not finite in {PATIENCE} steps in a row, so training ends; their samples are on \
             the lines {lines:?} of {}. A lower --lr may help",
            self.args.data.display()
        )))
    }

    /// Evaluates the adapters as they are, if that is due and was not done by an earlier run. A signal ends it without a
    /// record, so that whoever goes on evaluates again.
    fn evaluate(&mut self, samples: &Samples, progress: &mut Progress) -> Result<(), Failure> {
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

    /// Writes a checkpoint where one is due, and ends the training with one if a signal came.
    fn pause(&mut self, progress: &Progress, steps: u32) -> Result<(), Failure> {
        let (stop, done) = (interrupt::check(), self.done);
        let due = self
            .args
            .save_every
            .is_some_and(|every| done > self.from && done.is_multiple_of(every));
        if due || stop.is_err() {
            let folder = match &self.saved {
                // What an earlier run has saved is whole, and is left alone.
                Some(saved) if done == self.from => saved.clone(),
                _ => self.save()?,
            };
            if stop.is_err() {
                let folder = folder.display();
                progress.say(format!(
                    "stopped after step {done} of {steps}; go on with --resume {folder}"
                ));
            }
        }
        stop
    }

    /// Writes a checkpoint, and gives its folder.
    fn save(&mut self) -> Result<PathBuf, Failure> {
        let folder = self.args.out.join(format!("checkpoint-{}", self.done));
        let base = self.args.model.path()?.display().to_string();
        let (snapshot, formats) = (self.trainer.snapshot()?, &self.base.formats);
        checkpoint::write(
            &folder,
            self.shapes,
            &snapshot,
            self.fingerprint,
            &base,
            formats,
        )?;
        self.saved = Some(folder.clone());
        self.draw()?;
        Ok(folder)
    }

    /// Writes `loss.svg`.
    fn draw(&self) -> Result<(), Failure> {
        let path = self.args.out.join("loss.svg");
        let output = Output {
            option: "--out",
            path: &path,
            inputs: vec![],
            content: Content::Text,
        };
        output.write(|file| file.write(self.metrics.draw()?.as_bytes()))
    }
}
