//! Batches in the host's memory, from which the device copies them.

use warpwright_driver::{Buffer, Context, Event, Pinned, Stream, View};
use warpwright_kernels::train::cross_entropy::NO_LABEL;
use warpwright_kernels::train::micro_batch::{HEADER, LISTS};

use crate::Error;
use crate::reference::MicroBatch;

/// Micro-batches that the host may be ahead.
pub(super) const SLOTS: u32 = 4;

/// Slots in the host's memory, and the batch that the device works on.
pub(super) struct BatchSlots {
    pub(super) ring: Pinned<u32>,
    /// Reached when the device has done with a slot.
    done: Vec<Event>,
    pub(super) words: u32,
    pub(super) batch: DeviceBatch,
}

/// The batch that the device works on: views of one buffer.
pub(super) struct DeviceBatch {
    pub(super) all: View<u32>,
    /// `[1]`: `1 / n`
    pub(super) factor: View<f32>,
    pub(super) ids: View<u32>,
    pub(super) labels: View<i32>,
    pub(super) positions: View<u32>,
    pub(super) starts: View<u32>,
}

impl BatchSlots {
    pub(super) fn new(context: &Context, tokens: u32) -> Result<BatchSlots, Error> {
        let words = HEADER + LISTS * tokens;
        let all = Buffer::<u32>::zeroed(context, words as usize)?.labelled("the micro-batch");
        let list = |i: u32| {
            let first = (HEADER + i * tokens) as usize;
            all.view_range(first..first + tokens as usize)
        };
        let batch = DeviceBatch {
            factor: all.view_range(0..1).cast()?,
            ids: list(0),
            labels: list(1).cast()?,
            positions: list(2),
            starts: list(3),
            all: all.view(),
        };
        let done = (0..SLOTS)
            .map(|_| Event::untimed(context))
            .collect::<Result<_, _>>()?;
        let ring = Pinned::zeroed(context, (SLOTS * words) as usize)?
            .labelled("the slots of micro-batches");
        Ok(BatchSlots {
            ring,
            done,
            words,
            batch,
        })
    }

    /// Writes micro-batch `i` into its slot, when the device has done with what was there. Tokens
    /// that the micro-batch is short of are documents of their own without a label.
    pub(super) fn write(&self, i: u32, micro: &MicroBatch, tokens: u32) -> Result<(), Error> {
        let slot = i % SLOTS;
        self.done[slot as usize].synchronize()?;
        let factor = (1.0 / micro.n as f64) as f32;
        let mut words = vec![0; HEADER as usize];
        words[0] = factor.to_bits();
        let rest = || micro.ids.len() as u32..tokens;
        let labels = micro.labels.iter().map(|label| label.unwrap_or(NONE));
        words.extend(micro.ids.iter().copied().chain(rest().map(|_| 0)));
        words.extend(labels.chain(rest().map(|_| NONE)));
        words.extend(micro.positions.iter().copied().chain(rest().map(|_| 0)));
        words.extend(micro.starts.iter().copied().chain(rest()));
        self.ring.write_slice((slot * self.words) as usize, &words);
        Ok(())
    }

    /// Marks the slot of micro-batch `i` as done with when the stream comes to this place.
    pub(super) fn release(&self, i: u32, stream: &Stream) -> Result<(), Error> {
        Ok(self.done[(i % SLOTS) as usize].record(stream)?)
    }
}

/// The label that is none, as a word.
const NONE: u32 = NO_LABEL as u32;
