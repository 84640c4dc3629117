//! The rows of logits that are sampled, and the sequences that they are of.

use super::params::{DeviceParams, WORDS};
use super::{CHUNK, MAX_VOCAB};
use crate::contract::Contract;
use crate::state::{DONE, LEN, POSITION, SEQUENCE};
use ptx_gen::*;

args! {
    /// What the kernels of sampling have in common.
    pub struct RowsArgs {
        /// `[count]`: the row of `state` that a row of logits is for, each another one. May be longer. Nothing is done for
        /// one that `state` does not have, that is done, or whose sequence or position has no place.
        rows: In<u32>,
        /// `[sequences, 16]`: see [`SampleParams::words`](super::SampleParams::words)
        params: In<u32>,
        /// Logits of a row.
        vocab: u32,
        /// Rows.
        count: u32,
        /// Rows that the buffers have room for.
        capacity: u32,
        /// Rows of `state`.
        states: u32,
        /// Sequences.
        sequences: u32,
        /// Positions of a sequence.
        max_tokens: u32,
    }
}

/// Blocks of a row: one for each chunk of its logits.
pub fn blocks(vocab: u32) -> u32 {
    vocab.div_ceil(CHUNK)
}

/// The part of the contracts that is about rows.
pub(super) fn check<K: KernelDef>(
    kernel: &K,
    a: &RowsArgs<Shape>,
    state: usize,
) -> Result<(), ShapeError> {
    kernel.range("vocab", a.vocab, 1, MAX_VOCAB)?;
    kernel.range("count", a.count, 1, u16::MAX.into())?;
    kernel.range("capacity", a.capacity, a.count, 1 << 24)?;
    kernel.range("sequences", a.sequences, 1, 1 << 16)?;
    kernel.range("max_tokens", a.max_tokens, 1, 1 << 24)?;
    kernel.at_least("rows", a.rows, "count", &[a.count])?;
    kernel.length(
        "params",
        a.params,
        "sequences * 16",
        &[a.sequences, WORDS as u32],
    )?;
    kernel.length("state", state, "states * 8", &[a.states, LEN as u32])
}

/// A row that is sampled.
pub(super) struct Row<'k> {
    /// Its number among the rows of logits.
    pub(super) index: U32<'k>,
    /// The row of the state.
    pub(super) state: U32<'k>,
    pub(super) position: U32<'k>,
    pub(super) sequence: U32<'k>,
    pub(super) params: DeviceParams<'k>,
    /// Whether there is something to do for it. Where there is not, the other fields are of some row, so that loads by
    /// them are in bounds.
    active: Pred<'k>,
}

impl<'k> Row<'k> {
    /// The row of this block. Everything here may be loaded before the wait for the kernels before: of these none that
    /// writes states still runs when this one starts; they are of earlier steps, or before a full edge.
    pub(super) fn load(
        k: Builder<'k>,
        a: &RowsArgs<Dev<'k>>,
        state: Ptr<'k, u32, impl Loads>,
    ) -> Self {
        let index = k.ctaid_y();
        let of = a.rows.at(index).ld();
        let words = state.row(of, 4 * LEN as u32);
        let [position, done, sequence] =
            [(POSITION, 0), (DONE, 1), (SEQUENCE, 0)].map(|(word, without)| {
                let mut value = k.var(without);
                words.at(word).ld_if(of.lt(a.states), &mut value);
                value.get()
            });
        let active = done.eq(0) & sequence.lt(a.sequences) & position.lt(a.max_tokens);
        let [position, sequence] = [
            position.min(a.max_tokens - 1),
            sequence.min(a.sequences - 1),
        ];
        let params = DeviceParams::load(a.params, sequence);
        Row {
            index,
            state: of,
            position,
            sequence,
            params,
            active,
        }
    }

    /// Waits for the kernels before, where this one overlaps with them.
    pub(super) fn wait(&self, k: Builder<'k>, overlap: bool) {
        if overlap {
            k.grid_wait();
        }
    }

    /// Runs `body` if there is something to do.
    pub(super) fn process(&self, k: Builder<'k>, body: impl FnOnce()) {
        k.when(self.active, body);
    }
}

/// Lets the next kernel start, where kernels overlap.
pub(super) fn trigger(k: Builder<'_>, overlap: bool) {
    if overlap {
        k.grid_trigger();
    }
}

/// A row on the CPU: its number, and its state's.
pub(super) struct CpuRow {
    pub(super) index: usize,
    pub(super) state: usize,
    pub(super) position: usize,
    pub(super) sequence: usize,
}

/// The rows that are sampled, on the CPU.
pub(super) fn on_cpu(a: &RowsArgs<Cpu<'_>>, state: &[u32]) -> Vec<CpuRow> {
    let rows = a.rows.iter().take(a.count as usize).enumerate();
    rows.filter_map(|(index, &of)| {
        let words = state.chunks(LEN).nth(of as usize)?;
        let [position, done, sequence] = [POSITION, DONE, SEQUENCE].map(|i| words[i as usize]);
        let counts = done == 0 && sequence < a.sequences && position < a.max_tokens;
        let [state, position, sequence] = [of, position, sequence].map(|i| i as usize);
        counts.then_some(CpuRow {
            index,
            state,
            position,
            sequence,
        })
    })
    .collect()
}
