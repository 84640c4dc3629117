//! Micro-batches, which the host writes into slots of its memory ahead of time. The device copies
//! the next one.
//!
//! A micro-batch is a list of words. It starts with the bits of `1 / n` as an `f32` and three words
//! of padding. Four lists with a word per token follow: token ids, labels (negative without one),
//! positions, and the index of the first token of the token's document.

use super::state::{COUNTERS, MICRO};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// The number of words before the lists.
pub const HEADER: u32 = 4;

/// The number of lists with a word per token.
pub const LISTS: u32 = 4;

args! {
    /// Arguments of [`FetchMicroBatch`].
    pub struct FetchMicroBatchArgs {
        /// `[slots, words]`: micro-batch `i` in slot `i mod slots`
        slots: In<u32>,
        /// `[4]`: the counters of [`state`](super::state)
        counters: In<u32>,
        /// `[words]`: the micro-batch
        batch: Out<u32>,
        /// The number of words of a micro-batch.
        words: u32,
    }
}

/// Kernel that copies the next micro-batch, with a word per thread.
pub struct FetchMicroBatch {
    /// The number of threads of a block.
    pub threads: u32,
    /// The number of slots.
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
        let &FetchMicroBatchArgs { words, .. } = a;
        let slots = self.slots;
        self.range("words", words, 1, 1 << 28)?;
        check_lengths! { self, a:
            slots == slots * words,
            batch == words,
        }
        self.exactly("counters", a.counters, COUNTERS)?;
        Ok(Grid::line(words.div_ceil(self.threads)))
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
