//! Batches: which samples each optimizer step learns.

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

/// The batches of a training, in order. A step's are a function of its number.
#[derive(Clone, Debug)]
pub struct Batches {
    data: Data,
    shape: Shape,
    epochs: Vec<Epoch>,
    steps: u32,
}

/// An epoch: rows of samples.
#[derive(Clone, Debug)]
struct Epoch {
    rows: Vec<Vec<usize>>,
    /// Its first step, from 0.
    first_step: u32,
    /// Its first micro-batch, from 0.
    first_micro: u32,
}

impl Batches {
    /// Plans all epochs.
    ///
    /// # Errors
    ///
    /// A shape of which a number is 0; a training of more steps than can be counted.
    pub fn new(data: Data, shape: Shape) -> Result<Batches, Error> {
        let sizes =
            [("seq", shape.len), ("batch", shape.rows), ("the number of micro-batches", shape.accumulate)];
        let right = |n| (1..=MOST).contains(&n);
        sizes.into_iter().try_for_each(|(what, n)| Error::unless(right(n), what, n, "from 1 to 2^24"))?;
        let (what, length) = match shape.length {
            Length::Epochs(n) => ("the number of epochs", n),
            Length::Steps(n) => ("the number of steps", n),
        };
        Error::unless(length > 0, what, length, "at least 1")?;
        let mut batches = Batches { data, shape, epochs: vec![], steps: 0 };
        while batches.goes_on() {
            batches.add_epoch()?;
        }
        if let Length::Steps(steps) = shape.length {
            batches.steps = steps;
        }
        Ok(batches)
    }

    fn goes_on(&self) -> bool {
        match self.shape.length {
            Length::Epochs(epochs) => self.epochs.len() < epochs as usize,
            Length::Steps(steps) => self.steps < steps,
        }
    }

    fn add_epoch(&mut self) -> Result<(), Error> {
        let number = self.epochs.len() as u32;
        let order = shuffled(self.data.samples.len(), self.shape.seed, number);
        let lens: Vec<usize> = self.data.samples.iter().map(|sample| sample.ids.len()).collect();
        let rows = match self.shape.packing {
            true => packed(&order, &lens, self.shape.len),
            false => order.into_iter().map(|sample| vec![sample]).collect(),
        };
        let first_micro = self.epochs.last().map_or(0, |epoch| epoch.first_micro + self.micros_of(epoch));
        let epoch = Epoch { rows, first_step: self.steps, first_micro };
        let steps = self.micros_of(&epoch).div_ceil(self.shape.accumulate as u32);
        let many = || Error::Setting {
            what: "the number of steps",
            found: format!("above {}", u32::MAX),
            wanted: "below 2^32",
        };
        // Dropout and slots count micro-batches in 32 bits.
        first_micro.checked_add(self.micros_of(&epoch)).ok_or_else(many)?;
        self.steps = self.steps.checked_add(steps).ok_or_else(many)?;
        self.epochs.push(epoch);
        Ok(())
    }

    fn micros_of(&self, epoch: &Epoch) -> u32 {
        epoch.rows.len().div_ceil(self.shape.rows) as u32
    }

    /// Optimizer steps of all epochs.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Micro-batches of all steps.
    pub fn micro_batches(&self) -> u64 {
        let last = self.steps.checked_sub(1).map(|last| self.place(last));
        last.map_or(0, |(epoch, micros)| u64::from(epoch.first_micro) + u64::from(micros.end))
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
        let Some(epoch) = self.epochs.first() else { return 0.0 };
        let all = self.micros_of(epoch) as usize * self.tokens();
        self.data.tokens() as f64 / all as f64
    }

    /// The epoch of a step, from 0.
    pub fn epoch(&self, step: u32) -> usize {
        self.epochs.partition_point(|epoch| epoch.first_step <= step).saturating_sub(1)
    }

    /// The micro-batches of a step, from 0.
    pub fn step(&self, step: u32) -> Vec<MicroBatch> {
        let (epoch, micros) = self.place(step);
        let mut micros: Vec<_> = micros.map(|micro| self.micro(epoch, micro)).collect();
        let n = micros.iter().map(MicroBatch::labelled).sum();
        micros.iter_mut().for_each(|micro| micro.n = n);
        micros
    }

    /// The samples of a step.
    pub fn samples(&self, step: u32) -> impl Iterator<Item = &Sample> {
        let (epoch, micros) = self.place(step);
        let rows = micros.flat_map(|micro| self.rows(epoch, micro)).flatten();
        rows.map(|&sample| &self.data.samples[sample])
    }

    /// The epoch of a step, and its micro-batches, counted from the epoch's first.
    fn place(&self, step: u32) -> (&Epoch, std::ops::Range<u32>) {
        let epoch = &self.epochs[self.epoch(step)];
        let accumulate = self.shape.accumulate as u32;
        let first = (step - epoch.first_step).saturating_mul(accumulate);
        (epoch, first..first.saturating_add(accumulate).min(self.micros_of(epoch)))
    }

    fn rows<'a>(&self, epoch: &'a Epoch, micro: u32) -> &'a [Vec<usize>] {
        let first = micro as usize * self.shape.rows;
        &epoch.rows[first..(first + self.shape.rows).min(epoch.rows.len())]
    }

    fn micro(&self, epoch: &Epoch, micro: u32) -> MicroBatch {
        let number = epoch.first_micro + micro;
        let mut batch =
            MicroBatch { number, ids: vec![], labels: vec![], positions: vec![], starts: vec![], n: 0 };
        for (row, samples) in self.rows(epoch, micro).iter().enumerate() {
            samples.iter().for_each(|&sample| self.add(&mut batch, sample));
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

/// Fills a row: each token of padding is a document of its own without a label.
fn pad(batch: &mut MicroBatch, len: usize) {
    for token in batch.ids.len()..len {
        batch.ids.push(0);
        batch.labels.push(None);
        batch.positions.push(0);
        batch.starts.push(token as u32);
    }
}
