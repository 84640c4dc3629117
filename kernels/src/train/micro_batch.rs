//! Micro-batches: the host writes them into slots of its memory, ahead; the device copies the one that is next.
//!
//! A micro-batch is words: `1 / n` as the bits of an `f32`, three of padding, then for each token id, label (negative
//! without one), position, and the index of the first token of its document; list after list.

use super::state::{COUNTERS, MICRO};
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use ptx_gen::*;

/// Words before the lists.
pub const HEADER: u32 = 4;

/// Lists of a word for each token.
pub const LISTS: u32 = 4;

args! {
    /// Arguments of [`FetchMicroBatch`].
    pub struct FetchMicroBatchArgs {
        /// `[slots, words]`: micro-batch `i` is in slot `i mod slots`
        slots: In<u32>,
        /// `[4]`: see [`state`](super::state)
        counters: In<u32>,
        /// `[words]`
        batch: Out<u32>,
        /// Words of a micro-batch.
        words: u32,
    }
}

/// Copies the micro-batch that is next, a word a thread.
pub struct FetchMicroBatch {
    /// Threads of a block.
    pub threads: u32,
    /// Slots.
    pub slots: u32,
}

impl KernelDef for FetchMicroBatch {
    type Args<S: Side> = FetchMicroBatchArgs<S>;

    fn name(&self) -> String {
        format!("train_fetch_micro_batch_{}_{}", self.slots, self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &FetchMicroBatchArgs<Shape>) -> Result<Grid, ShapeError> {
        self.range("words", a.words, 1, 1 << 28)?;
        self.length("slots", a.slots, "slots * words", &[self.slots, a.words])?;
        self.length("batch", a.batch, "words", &[a.words])?;
        self.exactly("counters", a.counters, COUNTERS)?;
        Ok(Grid::line(a.words.div_ceil(self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: FetchMicroBatchArgs<Dev<'k>>) {
        let i = k.ctaid() * self.threads + k.tid();
        k.when(i.lt(a.words), || {
            let slot = a.counters.at(MICRO).ld() % self.slots;
            a.batch.at(i).st(a.slots.at(slot * a.words + i).ld());
        });
    }

    fn reference(&self, a: FetchMicroBatchArgs<Cpu<'_>>) {
        let slot = (a.counters[MICRO as usize] % self.slots) as usize;
        let words = a.batch.len();
        a.batch.copy_from_slice(&a.slots[slot * words..][..words]);
    }
}

impl Variant for FetchMicroBatch {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(words, micro): (u32, u32)| {
            let mut random = Random(seed);
            let args = vec![
                CpuArg::U32(
                    (0..self.slots * words)
                        .map(|_| random.bits() as u32)
                        .collect(),
                ),
                CpuArg::U32(vec![1, micro, 0, 0]),
                CpuArg::U32(vec![0; words as usize]),
                CpuArg::scalar(words),
            ];
            Case {
                label: format!("words={words} micro={micro}"),
                args,
                bound: 0.0,
            }
        };
        [(8, 0), (100, 3), (1000, 70_001)].map(case).into()
    }
}
