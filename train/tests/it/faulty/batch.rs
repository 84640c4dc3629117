//! Faulty kernels that fetch a micro-batch. See [`micro_batch`](warpwright_kernels::train::optimizer::micro_batch) for its words.

use ptx_gen::{Builder, Dev, U32};
use warpwright_kernels::train::optimizer::micro_batch::{
    FetchMicroBatch, FetchMicroBatchArgs, HEADER, LISTS,
};

use super::Program;

/// What is wrong with the batch.
pub(super) enum Fetch {
    /// It is always the one in the first slot.
    First,
    /// Each word of a list is another one.
    All(List),
    /// `1 / n` is of the labels of this micro-batch, and of the number of them in a step.
    OwnMean { accum: u32 },
}

/// A list of a batch.
pub(super) enum List {
    /// Token 0 where there is no label, and `n` is the number of tokens.
    Labels,
    /// Documents are whole rows of this many tokens.
    Starts { row: u32 },
}

impl Program<FetchMicroBatch> for Fetch {
    fn program<'k>(&self, of: &FetchMicroBatch, k: Builder<'k>, a: FetchMicroBatchArgs<Dev<'k>>) {
        let (i, words) = (k.ctaid() * of.threads + k.tid(), a.words);
        let tokens = (words - HEADER) / LISTS;

        // Slots before the micro-batch's own.
        let skipped = match self {
            Fetch::First => k.val(0),
            _ => {
                a.counters
                    .at(warpwright_kernels::train::optimizer::state::MICRO)
                    .ld()
                    % of.slots
            }
        };
        let slot = a.slots.at(skipped * words);
        k.when(i.lt(words), || {
            let word = slot.at(i).ld();
            let word = match self {
                Fetch::First => word,
                Fetch::All(list) => list.word(i, word, tokens),
                Fetch::OwnMean { accum } => {
                    let mut labels = k.var(0u32);
                    k.for_each(tokens + HEADER, tokens * 2 + HEADER, 1, |j| {
                        labels.set(labels.get() + slot.at(j).ld().ge(NONE).select(0u32, 1u32));
                    });
                    i.eq(0).select(inverse(labels.get() * *accum), word)
                }
            };
            a.batch.at(i).st(word);
        });
    }
}

/// Labels from here on are negative, and none.
const NONE: u32 = 1 << 31;

impl List {
    /// Word `i`.
    fn word<'k>(&self, i: U32<'k>, word: U32<'k>, tokens: U32<'k>) -> U32<'k> {
        match self {
            List::Labels => {
                let label = i.ge(tokens + HEADER) & i.lt(tokens * 2 + HEADER);
                let word = (label & word.ge(NONE)).select(0u32, word);
                i.eq(0).select(inverse(tokens), word)
            }
            List::Starts { row } => {
                let first = tokens * 3 + HEADER;
                let token = i - i.min(first);
                let start = token - token % *row;
                i.ge(first).select(start, word)
            }
        }
    }
}

/// The bits of `1 / n`.
fn inverse(n: U32<'_>) -> U32<'_> {
    n.cvt::<f32>().rcp_rn().bits::<u32>()
}
