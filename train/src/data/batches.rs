//! Batches: which samples each optimizer step learns.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::order::{packed, shuffled};
use super::sample::{Data, Sample};
use crate::Error;
use crate::reference::MicroBatch;

/// What shapes batches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Tokens of a row.
    pub len: usize,
    /// Rows of a micro-batch.
    pub rows: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Whether a row may have several documents.
    pub packing: bool,
    /// The key of the order.
    pub seed: u64,
    /// How long training is.
    pub length: Length,
}

/// How long training is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// Times that every sample is learned.
    Epochs(u32),
    /// Optimizer steps.
    Steps(u32),
}

/// No part of a shape is longer, so that the products of two fit in a `usize` and each in 32 bits.
const MOST: usize = 1 << 24;

/// Samples of all epochs that are packed before the first step, unless the epochs are few.
const PLANNED: u64 = 1 << 26;
const FEW: u32 = 16;

/// The batches of a training, in order. A step's are a function of its number.
#[derive(Clone, Debug)]
pub struct Batches {
    data: Data,
    shape: Shape,
    /// Tokens of each sample.
    lens: Vec<usize>,
    /// Clones share it: the plan is that of the samples and the shape.
    epochs: Arc<Mutex<Epochs>>,
    steps: u32,
}

/// What is known of the epochs so far.
#[derive(Clone, Debug)]
struct Epochs {
    /// Of the first, and of each behind one that was packed.
    starts: Vec<Start>,
    /// The rows of samples of the epoch that was asked for last, and its number.
    packed: (usize, Arc<Vec<Vec<usize>>>),
}

/// The first step of an epoch, and its first micro-batch, from 0.
#[derive(Clone, Copy, Debug)]
struct Start {
    step: u64,
    micro: u64,
}

/// Where a step's samples are.
struct Place {
    /// The rows of its epoch.
    rows: Arc<Vec<Vec<usize>>>,
    /// The epoch's first micro-batch.
    first: u64,
    /// Its micro-batches, counted from that.
    micros: Range<u32>,
}

impl Batches {
    /// Plans the first epoch, and where all of them end if they say how long training is. Others are planned when they come.
    ///
    /// # Errors
    ///
    /// A shape of which a number is 0; a training of more micro-batches than can be counted, or of so many epochs that
    /// planning takes long.
    pub fn new(data: Data, shape: Shape) -> Result<Batches, Error> {
        let sizes = [
            ("seq", shape.len),
            ("batch", shape.rows),
            ("the number of micro-batches", shape.accumulate),
        ];
        let right = |n| (1..=MOST).contains(&n);
        sizes
            .into_iter()
            .try_for_each(|(what, n)| Error::unless(right(n), what, n, "from 1 to 2^24"))?;
        let samples = data.samples.len();
        Error::unless(samples > 0, "the number of samples", samples, "at least 1")?;
        let lens: Vec<usize> = data.samples.iter().map(|sample| sample.ids.len()).collect();
        let none = Epochs {
            starts: vec![Start { step: 0, micro: 0 }],
            packed: (usize::MAX, Arc::default()),
        };
        let mut batches = Batches {
            data,
            shape,
            lens,
            epochs: Arc::new(Mutex::new(none)),
            steps: 0,
        };
        batches.known().extend(&batches);
        batches.steps = match shape.length {
            Length::Steps(steps) => batches.check_steps(steps)?,
            Length::Epochs(epochs) => batches.steps_of(epochs)?,
        };
        Ok(batches)
    }

    /// So many steps, if their micro-batches can be counted. Dropout and slots count them in 32 bits.
    fn check_steps(&self, steps: u32) -> Result<u32, Error> {
        Error::unless(steps > 0, "the number of steps", steps, "at least 1")?;
        let most = self
            .data
            .samples
            .len()
            .div_ceil(self.shape.rows)
            .min(self.shape.accumulate);
        let micros = u64::from(steps) * most as u64;
        let (what, wanted) = (
            "the number of micro-batches of all steps",
            "below 2^32: take fewer steps",
        );
        Error::unless(micros < 1 << 32, what, micros, wanted).map(|()| steps)
    }

    fn steps_of(&self, epochs: u32) -> Result<u32, Error> {
        let what = "the number of epochs";
        Error::unless(epochs > 0, what, epochs, "at least 1")?;
        let samples = u64::from(epochs) * self.data.samples.len() as u64;
        let wanted = "at most 16, or so many that they have at most 2^26 samples in all; give a number of steps instead";
        Error::unless(epochs <= FEW || samples <= PLANNED, what, epochs, wanted)?;
        let mut known = self.known();
        while known.starts.len() <= epochs as usize {
            known.extend(self);
        }
        let Start { step, micro } = known.starts[epochs as usize];
        let (what, wanted) = (
            "the number of micro-batches of all epochs",
            "below 2^32: take fewer epochs",
        );
        Error::unless(micro < 1 << 32, what, micro, wanted).map(|()| step as u32)
    }

    fn known(&self) -> MutexGuard<'_, Epochs> {
        self.epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of an epoch.
    fn pack(&self, epoch: usize) -> Arc<Vec<Vec<usize>>> {
        let order = shuffled(self.data.samples.len(), self.shape.seed, epoch as u32);
        Arc::new(match self.shape.packing {
            true => packed(&order, &self.lens, self.shape.len),
            false => order.into_iter().map(|sample| vec![sample]).collect(),
        })
    }

    fn micros_of(&self, rows: &[Vec<usize>]) -> u32 {
        rows.len().div_ceil(self.shape.rows) as u32
    }

    /// Optimizer steps of all epochs.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Micro-batches of all steps. Where the number of steps is given and they are more than those of an epoch, all epochs
    /// are taken to be as long as the first.
    pub fn micro_batches(&self) -> u64 {
        let known = self.known();
        let steps = u64::from(self.steps);
        if let Some(end) = known.starts.iter().find(|start| start.step == steps) {
            return end.micro;
        }
        let Start { step, micro } = known.starts[1];
        match steps < step {
            true => (steps * self.shape.accumulate as u64).min(micro),
            false => (u128::from(steps) * u128::from(micro)).div_ceil(step.into()) as u64,
        }
    }

    /// Tokens of a micro-batch, padding among them.
    pub fn tokens(&self) -> usize {
        self.shape.len * self.shape.rows
    }

    /// The samples.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The share of the first epoch's tokens that are no padding.
    pub fn fill(&self) -> f64 {
        let all = self.known().starts[1].micro as usize * self.tokens();
        self.data.tokens() as f64 / all as f64
    }

    /// The epoch of a step, from 0.
    pub fn epoch(&self, step: u32) -> usize {
        self.known().of(step, self)
    }

    /// The micro-batches of a step, from 0.
    pub fn step(&self, step: u32) -> Vec<MicroBatch> {
        let place = self.place(step);
        let mut micros: Vec<_> = place
            .micros
            .clone()
            .map(|micro| self.micro(&place, micro))
            .collect();
        let n = micros.iter().map(MicroBatch::labelled).sum();
        micros.iter_mut().for_each(|micro| micro.n = n);
        micros
    }

    /// The samples of a step.
    pub fn samples(&self, step: u32) -> impl Iterator<Item = &Sample> {
        let place = self.place(step);
        let rows = place
            .micros
            .clone()
            .flat_map(|micro| self.rows(&place, micro))
            .flatten();
        let samples: Vec<usize> = rows.copied().collect();
        samples.into_iter().map(|sample| &self.data.samples[sample])
    }

    fn place(&self, step: u32) -> Place {
        let mut known = self.known();
        let epoch = known.of(step, self);
        if known.packed.0 != epoch {
            known.packed = (epoch, self.pack(epoch));
        }
        let (rows, start) = (known.packed.1.clone(), known.starts[epoch]);
        let accumulate = self.shape.accumulate as u64;
        let first = (u64::from(step) - start.step) * accumulate;
        let end = (first + accumulate).min(self.micros_of(&rows).into());
        Place {
            rows,
            first: start.micro,
            micros: first as u32..end as u32,
        }
    }

    fn rows<'a>(&self, place: &'a Place, micro: u32) -> &'a [Vec<usize>] {
        let first = micro as usize * self.shape.rows;
        &place.rows[first..(first + self.shape.rows).min(place.rows.len())]
    }

    fn micro(&self, place: &Place, micro: u32) -> MicroBatch {
        let number = place.first as u32 + micro;
        let mut batch = MicroBatch {
            number,
            ids: vec![],
            labels: vec![],
            positions: vec![],
            starts: vec![],
            n: 0,
        };
        for (row, samples) in self.rows(place, micro).iter().enumerate() {
            samples
                .iter()
                .for_each(|&sample| self.add(&mut batch, sample));
            pad(&mut batch, (row + 1) * self.shape.len);
        }
        batch
    }

    fn add(&self, batch: &mut MicroBatch, sample: usize) {
        let (sample, start) = (&self.data.samples[sample], batch.ids.len() as u32);
        for (i, &id) in sample.ids.iter().enumerate() {
            batch.ids.push(id);
            batch.labels.push(sample.label(i));
            batch.positions.push(i as u32);
            batch.starts.push(start);
        }
    }
}

impl Epochs {
    /// Packs the first epoch whose end is not known.
    fn extend(&mut self, batches: &Batches) {
        let epoch = self.starts.len() - 1;
        let (rows, start) = (batches.pack(epoch), self.starts[epoch]);
        let micros = batches.micros_of(&rows);
        let steps = u64::from(micros).div_ceil(batches.shape.accumulate as u64);
        self.starts.push(Start {
            step: start.step + steps,
            micro: start.micro + u64::from(micros),
        });
        self.packed = (epoch, rows);
    }

    /// The epoch of a step.
    fn of(&mut self, step: u32, batches: &Batches) -> usize {
        while self.starts[self.starts.len() - 1].step <= step.into() {
            self.extend(batches);
        }
        self.starts
            .partition_point(|start| start.step <= step.into())
            - 1
    }
}

/// Fills a row: each token of padding is a document of its own without a label.
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

    fn batches(samples: usize, length: Length) -> Result<Batches, Error> {
        let sample = |line: usize| {
            let ids = vec![line as u32; 2 + line % 7];
            Sample {
                line,
                learned: one_range(0..ids.len()),
                ids,
                cut: false,
            }
        };
        let data = Data {
            samples: (1..=samples).map(sample).collect(),
            ..Data::default()
        };
        Batches::new(
            data,
            Shape {
                len: 8,
                rows: 2,
                accumulate: 3,
                packing: true,
                seed: 5,
                length,
            },
        )
    }

    /// Whatever is asked for first, an epoch has its own rows, and micro-batches are counted through all of them.
    #[test]
    fn epochs_are_the_same_whenever_they_are_planned() {
        let all = batches(40, Length::Epochs(4)).unwrap();
        let steps: Vec<_> = (0..all.steps()).map(|step| all.step(step)).collect();
        let numbers = steps.iter().flatten().map(|micro| u64::from(micro.number));
        assert!(numbers.eq(0..all.micro_batches()));
        let by_steps = batches(40, Length::Steps(all.steps())).unwrap();
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

    /// Whoever trains on one thread may look at batches from another.
    #[test]
    fn batches_are_shared_by_threads() {
        let all = batches(40, Length::Epochs(2)).unwrap();
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
        let long = batches(40, Length::Steps(1_400_000_000)).unwrap();
        assert_eq!(
            long.step(0),
            batches(40, Length::Epochs(1)).unwrap().step(0)
        );
        assert!(
            (3_000_000_000..1 << 32).contains(&long.micro_batches()),
            "{}",
            long.micro_batches()
        );
        let error = |samples, length| batches(samples, length).unwrap_err().to_string();
        let wanted = "the number of micro-batches of all steps is 4500000000, must be below 2^32: take fewer steps";
        assert_eq!(error(40, Length::Steps(1_500_000_000)), wanted);
        let found = error(40, Length::Epochs(4_000_000_000));
        assert!(
            found.starts_with("the number of epochs is 4000000000, must be at most 16, or so many"),
            "{found}"
        );
        assert_eq!(
            error(0, Length::Steps(1)),
            "the number of samples is 0, must be at least 1"
        );
    }
}
