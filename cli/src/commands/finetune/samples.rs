//! The samples for training and for evaluation.

use warpwright_model::Tokenizer;
use warpwright_model::chat::ChatTemplate;
use warpwright_train::Error;
use warpwright_train::data::{BatchShape, Batches, Dataset, Preprocess, TrainingLength};

use super::args::{Args, EvaluateOn};

/// The samples of a training run.
pub(super) struct Samples {
    pub(super) training: Batches,
    pub(super) evaluation: Option<EvaluationSamples>,
}

/// Samples for evaluation.
pub(super) struct EvaluationSamples {
    /// The batches, in which each step is a single micro-batch.
    pub(super) batches: Batches,
    /// The number of steps between evaluations.
    every: Option<u32>,
}

impl Samples {
    /// Reads and tokenizes the samples of `--data` and `--eval`.
    ///
    /// # Errors
    /// Returns an error with file and line if a sample is malformed, or if nothing is to be
    /// learned.
    pub(super) fn read(
        args: &Args,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
    ) -> Result<Samples, Error> {
        let preprocess = Preprocess {
            tokenizer,
            template,
            len: args.seq,
            train_on_prompt: args.train_on_prompt,
        };
        let read = |path| Dataset::read(path, &preprocess);
        let mut data = read(&args.data)?;

        // A share is removed from `data` here, so no sample is both learned and evaluated.
        let held_out = match &args.eval {
            None => None,
            Some(EvaluateOn::File(path)) => Some(read(path)?),
            Some(EvaluateOn::Share(share)) => Some(data.hold_out(*share, args.seed)?),
        };
        let once = BatchShape {
            accumulate: 1,
            length: TrainingLength::Epochs(1),
            ..args.shape()
        };
        let evaluation = match held_out {
            None => None,
            Some(data) => Some(EvaluationSamples {
                batches: Batches::new(data, once)?,
                every: args.eval_every,
            }),
        };
        Ok(Samples {
            training: Batches::new(data, args.shape())?,
            evaluation,
        })
    }
}

impl EvaluationSamples {
    /// Returns true if an evaluation is due after `step` of `steps` steps.
    pub(super) fn is_due(&self, step: u32, steps: u32) -> bool {
        step == 0 || step == steps || self.every.is_some_and(|every| step.is_multiple_of(every))
    }

    /// Returns the number of micro-batches in all evaluations of a run with `steps` steps.
    pub(super) fn micro_batches(&self, steps: u32) -> u64 {
        // The evaluations before the first step and after the last one are added below.
        let between = self
            .every
            .map_or(0, |every| steps.saturating_sub(1) / every);
        (u64::from(between) + 2) * self.batches.micro_batches()
    }
}
