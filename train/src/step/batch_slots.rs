//! Micro-batches in pinned host memory, from which the device copies them.
//!
//! The slots form a ring, so the host can write the next micro-batches while the device still works
//! on earlier ones. An event for each slot keeps the host from overwriting a batch too early.

use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, Pinned, View};
use warpwright_driver::ordering::Event;
use warpwright_driver::stream::Stream;
use warpwright_kernels::train::cross_entropy::NO_LABEL;
use warpwright_kernels::train::optimizer::micro_batch::{HEADER, LISTS};

use crate::Error;
use crate::reference::MicroBatch;

/// The number of slots, and so of micro-batches by which the host may run ahead of the device.
pub(super) const SLOTS: u32 = 4;

/// The slots in host memory, and the batch on which the device works.
pub(super) struct BatchSlots {
    /// `[SLOTS, words]`
    pub(super) ring: Pinned<u32>,
    /// The event of each slot that completes when the device no longer reads it.
    done: Vec<Event>,
    /// The number of words in a slot.
    pub(super) words: u32,
    pub(super) batch: DeviceBatch,
}

/// The batch on which the device works, as views of one buffer.
pub(super) struct DeviceBatch {
    pub(super) all: View<u32>,
    /// `[1]`: `1 / n`, by which the loss and its gradients are multiplied.
    pub(super) factor: View<f32>,
    pub(super) ids: View<u32>,
    pub(super) labels: View<i32>,
    pub(super) positions: View<u32>,
    pub(super) starts: View<u32>,
}

impl BatchSlots {
    /// Allocates the slots for micro-batches of `tokens` tokens.
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

    /// Writes micro-batch `i` into its slot, after the device has finished with the slot's previous
    /// batch.
    ///
    /// A micro-batch of fewer than `tokens` tokens is padded. Each padding token is a document of
    /// one token without a label, so it attends only to itself and adds nothing to the loss.
    pub(super) fn write(&self, i: u32, micro: &MicroBatch, tokens: u32) -> Result<(), Error> {
        let slot = i % SLOTS;

        // The device may still read the batch that was in this slot `SLOTS` micro-batches ago.
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

    /// Releases the slot of micro-batch `i` when the work queued on the stream so far completes.
    pub(super) fn release(&self, i: u32, stream: &Stream) -> Result<(), Error> {
        Ok(self.done[(i % SLOTS) as usize].record(stream)?)
    }
}

/// The missing label, as a word.
const NONE: u32 = NO_LABEL as u32;
