//! Batches: the samples that each optimizer step learns.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::{packed, shuffled};
use super::sample::{Dataset, Sample};
use crate::Error;
use crate::reference::MicroBatch;

/// The parameters of batches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BatchShape {
    /// The number of tokens per row.
    pub len: usize,
    /// The number of rows per micro-batch.
    pub rows: usize,
    /// The number of micro-batches per step.
    pub accumulate: usize,
    /// Whether a row may contain several documents.
    pub packing: bool,
    /// The seed of the order of samples.
    pub seed: u64,
    /// The length of training.
    pub length: TrainingLength,
}

/// The length of training.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrainingLength {
    /// The number of times that every sample is learned.
    Epochs(u32),
    /// The number of optimizer steps.
    Steps(u32),
}

/// The maximum of each dimension. The product of two then fits into a `usize`, and each one into 32
/// bits.
const MOST: usize = 1 << 24;

/// The maximum number of samples, over all epochs, that are packed before the first step, unless
/// there are at most [`FEW`] epochs.
const PLANNED: u64 = 1 << 26;
/// The number of epochs that are always packed before the first step.
const FEW: u32 = 16;

/// The batches of a training run, in order. The batch of a step depends only on the step's number.
#[derive(Clone, Debug)]
pub struct Batches {
    data: Dataset,
    shape: BatchShape,
    /// The number of tokens in each sample.
    lens: Vec<usize>,
    /// The plan of the epochs. Clones share it, because it depends only on the samples and the
    /// shape.
    epochs: Arc<Mutex<Epochs>>,
    steps: u32,
}

/// The plan of the epochs so far.
#[derive(Clone, Debug)]
struct Epochs {
    /// The start of the first epoch, and of each epoch after one that was packed.
    starts: Vec<EpochStart>,
    /// The rows of samples of the epoch that was requested last, and its number.
    packed: (usize, Arc<Vec<Vec<usize>>>),
}

/// The first step of an epoch and its first micro-batch, both counted from 0.
#[derive(Clone, Copy, Debug)]
struct EpochStart {
    step: u64,
    micro: u64,
}

/// The samples of a step.
struct StepSamples {
    /// The rows of the step's epoch.
    rows: Arc<Vec<Vec<usize>>>,
    /// The number of the epoch's first micro-batch.
    first: u64,
    /// The micro-batches of the step, counted from the start of the epoch.
    micros: Range<u32>,
}

impl Batches {
    /// Creates the batches of a training run.
    ///
    /// The first epoch is packed here. If the length is given in epochs, all of them are packed,
    /// because the number of steps depends on the packing. Other epochs are packed when they are
    /// needed.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] if a dimension is 0 or too large, if there are no samples, if the
    /// micro-batches cannot be counted in 32 bits, or if packing all epochs would take too long.
    pub fn new(data: Dataset, shape: BatchShape) -> Result<Batches, Error> {
        let sizes = [
            ("seq", shape.len),
            ("batch", shape.rows),
            ("the number of micro-batches", shape.accumulate),
        ];
        let right = |n| (1..=MOST).contains(&n);
        for (what, n) in sizes {
            Error::unless(right(n), what, n, "from 1 to 2^24")?;
        }

        let samples = data.samples.len();
        Error::unless(samples > 0, "the number of samples", samples, "at least 1")?;
        let lens: Vec<usize> = data.samples.iter().map(|sample| sample.ids.len()).collect();
        let none = Epochs {
            starts: vec![EpochStart { step: 0, micro: 0 }],
            // No epoch has this index, so the first use packs one.
            packed: (usize::MAX, Arc::default()),
        };
        let mut batches = Batches {
            data,
            shape,
            lens,
            epochs: Arc::new(Mutex::new(none)),
            steps: 0,
        };
        batches.lock_epochs().extend(&batches);
        batches.steps = match shape.length {
            TrainingLength::Steps(steps) => batches.check_steps(steps)?,
            TrainingLength::Epochs(epochs) => batches.steps_of(epochs)?,
        };
        Ok(batches)
    }

    /// Returns the number of steps, or an error if their micro-batches cannot be counted in 32
    /// bits, as dropout and the slots of losses do.
    fn check_steps(&self, steps: u32) -> Result<u32, Error> {
        Error::unless(steps > 0, "the number of steps", steps, "at least 1")?;
        let most = self
            .data
            .samples
            .len()
            .div_ceil(self.shape.rows)
            .min(self.shape.accumulate);
        let micros = u64::from(steps) * most as u64;
        let what = "the number of micro-batches of all steps";
        let wanted = "below 2^32: train for fewer steps";
        Error::unless(micros < 1 << 32, what, micros, wanted)?;
        Ok(steps)
    }

    /// Packs this many epochs and returns the number of their steps.
    fn steps_of(&self, epochs: u32) -> Result<u32, Error> {
        let what = "the number of epochs";
        Error::unless(epochs > 0, what, epochs, "at least 1")?;
        let samples = u64::from(epochs) * self.data.samples.len() as u64;
        let wanted =
            "at most 16, or have at most 2^26 samples in all: set a number of steps instead";
        Error::unless(epochs <= FEW || samples <= PLANNED, what, epochs, wanted)?;
        let mut known = self.lock_epochs();
        while known.starts.len() <= epochs as usize {
            known.extend(self);
        }

        let EpochStart { step, micro } = known.starts[epochs as usize];
        let what = "the number of micro-batches of all epochs";
        let wanted = "below 2^32: train for fewer epochs";
        Error::unless(micro < 1 << 32, what, micro, wanted)?;

        // Each step has at least one micro-batch, so the steps fit too.
        Ok(step as u32)
    }

    fn lock_epochs(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rows of an epoch.
    fn pack(&self, epoch: usize) -> Arc<Vec<Vec<usize>>> {
        let order = shuffled(self.data.samples.len(), self.shape.seed, epoch as u32);
        let rows = if self.shape.packing {
            packed(&order, &self.lens, self.shape.len)
        } else {
            order.into_iter().map(|sample| vec![sample]).collect()
        };
        Arc::new(rows)
    }

    fn micros_of(&self, rows: &[Vec<usize>]) -> u32 {
        rows.len().div_ceil(self.shape.rows) as u32
    }

    /// Returns the number of optimizer steps.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Returns the number of micro-batches in all steps.
    ///
    /// It is an estimate if the length is given in steps and exceeds one epoch. All epochs are then
    /// assumed to be as long as the first.
    pub fn micro_batches(&self) -> u64 {
        let known = self.lock_epochs();
        let steps = u64::from(self.steps);
        if let Some(end) = known.starts.iter().find(|start| start.step == steps) {
            return end.micro;
        }

        let EpochStart { step, micro } = known.starts[1];
        if steps < step {
            (steps * self.shape.accumulate as u64).min(micro)
        } else {
            (u128::from(steps) * u128::from(micro)).div_ceil(step.into()) as u64
        }
    }

    /// Returns the number of tokens per micro-batch, including padding.
    pub fn tokens(&self) -> usize {
        self.shape.len * self.shape.rows
    }

    /// Returns the samples.
    pub fn data(&self) -> &Dataset {
        &self.data
    }

    /// Returns the fraction of the first epoch's tokens that are not padding.
    pub fn fill(&self) -> f64 {
        let all = self.lock_epochs().starts[1].micro as usize * self.tokens();
        self.data.tokens() as f64 / all as f64
    }

    /// Returns the epoch of a step. Both are counted from 0.
    pub fn epoch(&self, step: u32) -> usize {
        self.lock_epochs().epoch_of(step, self)
    }

    /// Returns the micro-batches of a step, which is counted from 0.
    pub fn step(&self, step: u32) -> Vec<MicroBatch> {
        let samples = self.step_samples(step);
        let mut micros: Vec<_> = samples
            .micros
            .clone()
            .map(|micro| self.micro(&samples, micro))
            .collect();

        // The loss is the mean over the labelled tokens of the whole step.
        let n = micros.iter().map(MicroBatch::labelled).sum();
        for micro in &mut micros {
            micro.n = n;
        }

        micros
    }

    /// Returns the samples of a step.
    pub fn samples(&self, step: u32) -> impl Iterator<Item = &Sample> {
        let samples = self.step_samples(step);
        let rows = samples
            .micros
            .clone()
            .flat_map(|micro| self.rows(&samples, micro))
            .flatten();
        let samples: Vec<usize> = rows.copied().collect();
        samples.into_iter().map(|sample| &self.data.samples[sample])
    }

    /// Returns the samples of a step, and packs its epoch if another one was requested last.
    fn step_samples(&self, step: u32) -> StepSamples {
        let mut known = self.lock_epochs();
        let epoch = known.epoch_of(step, self);
        if known.packed.0 != epoch {
            known.packed = (epoch, self.pack(epoch));
        }

        let rows = known.packed.1.clone();
        let start = known.starts[epoch];
        let accumulate = self.shape.accumulate as u64;
        let first = (u64::from(step) - start.step) * accumulate;
        let end = (first + accumulate).min(self.micros_of(&rows).into());
        StepSamples {
            rows,
            first: start.micro,
            micros: first as u32..end as u32,
        }
    }

    fn rows<'a>(&self, samples: &'a StepSamples, micro: u32) -> &'a [Vec<usize>] {
        let first = micro as usize * self.shape.rows;
        &samples.rows[first..(first + self.shape.rows).min(samples.rows.len())]
    }

    fn micro(&self, step: &StepSamples, micro: u32) -> MicroBatch {
        let number = step.first as u32 + micro;
        let mut batch = MicroBatch {
            number,
            ids: vec![],
            labels: vec![],
            positions: vec![],
            starts: vec![],
            n: 0,
        };
        for (row, samples) in self.rows(step, micro).iter().enumerate() {
            for &sample in samples {
                self.add(&mut batch, sample);
            }
            pad(&mut batch, (row + 1) * self.shape.len);
        }

        batch
    }

    /// Appends a sample to a micro-batch.
    fn add(&self, batch: &mut MicroBatch, sample: usize) {
        let sample = &self.data.samples[sample];
        let start = batch.ids.len() as u32;
        for (i, &id) in sample.ids.iter().enumerate() {
            batch.ids.push(id);
            batch.labels.push(sample.label(i));
            batch.positions.push(i as u32);
            batch.starts.push(start);
        }
    }
}

impl Epochs {
    /// Packs the next epoch, whose end is not known yet.
    fn extend(&mut self, batches: &Batches) {
        let epoch = self.starts.len() - 1;
        let rows = batches.pack(epoch);
        let start = self.starts[epoch];
        let micros = batches.micros_of(&rows);
        let steps = u64::from(micros).div_ceil(batches.shape.accumulate as u64);
        self.starts.push(EpochStart {
            step: start.step + steps,
            micro: start.micro + u64::from(micros),
        });
        self.packed = (epoch, rows);
    }

    /// Returns the epoch of a step.
    fn epoch_of(&mut self, step: u32, batches: &Batches) -> usize {
        while self.starts[self.starts.len() - 1].step <= step.into() {
            self.extend(batches);
        }
        self.starts
            .partition_point(|start| start.step <= step.into())
            - 1
    }
}

/// Fills a row with padding. Each padding token is a separate document without a label.
fn pad(batch: &mut MicroBatch, len: usize) {
    for token in batch.ids.len()..len {
        batch.ids.push(0);
        batch.labels.push(None);
        batch.positions.push(0);
        batch.starts.push(token as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::one_range;

    fn batches(samples: usize, length: TrainingLength) -> Result<Batches, Error> {
        let sample = |line: usize| {
            let ids = vec![line as u32; 2 + line % 7];
            Sample {
                line,
                learned: one_range(0..ids.len()),
                ids,
                cut: false,
            }
        };
        let data = Dataset {
            samples: (1..=samples).map(sample).collect(),
            ..Dataset::default()
        };
        Batches::new(
            data,
            BatchShape {
                len: 8,
                rows: 2,
                accumulate: 3,
                packing: true,
                seed: 5,
                length,
            },
        )
    }

    /// In whatever order steps are requested, an epoch has the same rows, and micro-batches are
    /// counted across all epochs.
    #[test]
    fn epochs_are_the_same_whenever_they_are_planned() {
        let all = batches(40, TrainingLength::Epochs(4)).unwrap();
        let steps: Vec<_> = (0..all.steps()).map(|step| all.step(step)).collect();
        let numbers = steps.iter().flatten().map(|micro| u64::from(micro.number));
        assert!(numbers.eq(0..all.micro_batches()));
        let by_steps = batches(40, TrainingLength::Steps(all.steps())).unwrap();
        assert_eq!(by_steps.steps(), all.steps());
        for step in (0..all.steps()).rev() {
            assert_eq!(by_steps.epoch(step), all.epoch(step));
            assert_eq!(by_steps.step(step), steps[step as usize], "{step}");
            assert!(
                by_steps
                    .samples(step)
                    .map(|s| s.line)
                    .eq(all.samples(step).map(|s| s.line))
            );
        }

        for epoch in 0..4 {
            let of = (0..all.steps()).filter(|&step| all.epoch(step) == epoch);
            let mut lines: Vec<usize> = of
                .flat_map(|step| all.samples(step))
                .map(|s| s.line)
                .collect();
            lines.sort_unstable();
            assert!(lines.into_iter().eq(1..=40), "epoch {epoch}");
        }
    }

    /// Batches can be read from one thread while another one trains.
    #[test]
    fn batches_are_shared_by_threads() {
        let all = batches(40, TrainingLength::Epochs(2)).unwrap();
        let last = all.steps() - 1;
        let found = std::thread::scope(|scope| {
            let others = [0, last].map(|step| {
                scope.spawn({
                    let all = &all;
                    move || all.step(step)
                })
            });
            others.map(|other| other.join().unwrap())
        });
        assert_eq!(found, [0, last].map(|step| all.clone().step(step)));
    }

    #[test]
    fn long_trainings_begin_at_once_or_are_refused() {
        let long = batches(40, TrainingLength::Steps(1_400_000_000)).unwrap();
        assert_eq!(
            long.step(0),
            batches(40, TrainingLength::Epochs(1)).unwrap().step(0)
        );
        assert!(
            (3_000_000_000..1 << 32).contains(&long.micro_batches()),
            "{}",
            long.micro_batches()
        );
        let error = |samples, length| batches(samples, length).unwrap_err().to_string();
        let wanted = "the number of micro-batches of all steps is 4500000000, but must be below 2^32: train for fewer steps";
        assert_eq!(error(40, TrainingLength::Steps(1_500_000_000)), wanted);
        let found = error(40, TrainingLength::Epochs(4_000_000_000));
        assert!(
            found.starts_with(
                "the number of epochs is 4000000000, but must be at most 16, or have at most"
            ),
            "{found}"
        );
        assert_eq!(
            error(0, TrainingLength::Steps(1)),
            "the number of samples is 0, but must be at least 1"
        );
    }
}
