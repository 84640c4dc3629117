//! What is trained on, and what is evaluated on.

use warpwright_engine::Tokenizer;
use warpwright_engine::chat::ChatTemplate;
use warpwright_train::Error;
use warpwright_train::data::{BatchShape, Batches, Dataset, Preprocess, TrainingLength};

use super::args::{Args, EvaluateOn};

pub(super) struct Samples {
    pub(super) training: Batches,
    pub(super) evaluation: Option<Evaluation>,
}

/// Samples to evaluate on, and how often.
pub(super) struct Evaluation {
    /// Each of its steps is a micro-batch.
    pub(super) batches: Batches,
    every: Option<u32>,
}

impl Samples {
    pub(super) fn read(
        args: &Args,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
    ) -> Result<Samples, Error> {
        let how = Preprocess {
            tokenizer,
            template,
            len: args.seq,
            train_on_prompt: args.train_on_prompt,
        };
        let read = |path| Dataset::read(path, &how);
        let mut data = read(&args.data)?;
        let apart = match &args.eval {
            None => None,
            Some(EvaluateOn::File(path)) => Some(read(path)?),
            Some(EvaluateOn::Share(share)) => Some(data.hold_out(*share, args.seed)?),
        };
        let once = BatchShape {
            accumulate: 1,
            length: TrainingLength::Epochs(1),
            ..args.shape()
        };
        let evaluation = apart.map(|data| {
            Batches::new(data, once).map(|batches| Evaluation {
                batches,
                every: args.eval_every,
            })
        });
        Ok(Samples {
            training: Batches::new(data, args.shape())?,
            evaluation: evaluation.transpose()?,
        })
    }
}

impl Evaluation {
    /// Whether there is one after so many of all steps.
    pub(super) fn is_due(&self, step: u32, steps: u32) -> bool {
        step == 0 || step == steps || self.every.is_some_and(|every| step.is_multiple_of(every))
    }

    /// Micro-batches of all evaluations of a training of so many steps.
    pub(super) fn micro_batches(&self, steps: u32) -> u64 {
        let between = self
            .every
            .map_or(0, |every| steps.saturating_sub(1) / every);
        (u64::from(between) + 2) * self.batches.micro_batches()
    }
}
