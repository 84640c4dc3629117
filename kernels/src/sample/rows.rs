//! The rows of logits that are sampled, and their sequences.

use super::limits::{CHUNK, MAX_VOCAB};
use super::params::{DeviceParams, WORDS};
use crate::shared::Contract;
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use ptx_gen::*;

args! {
    /// Arguments that all kernels of sampling have.
    pub struct RowsArgs {
        /// `[count]`: the row of `state` that belongs to each row of logits. No row of `state` may
        /// occur twice. The buffer may be longer. A row is skipped if `state` does not have it, if
        /// it is done, or if its sequence or position is out of range.
        rows: In<u32>,
        /// `[sequences, 16]`, as in [`SampleParams::words`](super::SampleParams::words)
        params: In<u32>,
        /// The number of logits of a row.
        vocab: u32,
        /// The number of rows.
        count: u32,
        /// The number of rows for which the buffers have room.
        capacity: u32,
        /// The number of rows of `state`.
        states: u32,
        /// The number of sequences.
        sequences: u32,
        /// The number of positions of a sequence.
        max_tokens: u32,
    }
}

/// Returns the number of blocks of a row: one for each chunk of its logits.
pub fn blocks(vocab: u32) -> u32 {
    vocab.div_ceil(CHUNK)
}

/// Checks the arguments about rows.
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

/// A row of logits that is sampled, in the registers of a thread.
pub(super) struct SampledRow<'k> {
    /// The index among the rows of logits.
    pub(super) index: U32<'k>,
    /// The row of `state`.
    pub(super) state: U32<'k>,
    pub(super) position: U32<'k>,
    pub(super) sequence: U32<'k>,
    pub(super) params: DeviceParams<'k>,
    /// True if the row is not skipped. If it is skipped, the other fields are those of some row, so
    /// that loads with them are in bounds.
    active: Pred<'k>,
}

impl<'k> SampledRow<'k> {
    /// Loads the row of this block.
    ///
    /// All of it may be loaded before the wait for the kernels before. A kernel that writes states
    /// belongs to an earlier step or precedes a full dependency, so it has ended when this one
    /// starts.
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
                // A row without a state counts as done, and nothing is loaded for it.
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
        SampledRow {
            index,
            state: of,
            position,
            sequence,
            params,
            active,
        }
    }

    /// Waits for the end of the kernels before, if this one overlaps with them.
    pub(super) fn wait(&self, k: Builder<'k>, overlap: bool) {
        if overlap {
            k.grid_wait();
        }
    }

    /// Runs `body` if the row is not skipped.
    pub(super) fn process(&self, k: Builder<'k>, body: impl FnOnce()) {
        k.when(self.active, body);
    }
}

/// Lets the next kernel start, if kernels overlap.
pub(super) fn trigger(k: Builder<'_>, overlap: bool) {
    if overlap {
        k.grid_trigger();
    }
}

/// A row of logits that is sampled, on the CPU.
pub(super) struct CpuRow {
    /// The index among the rows of logits.
    pub(super) index: usize,
    /// The row of the state.
    pub(super) state: usize,
    pub(super) position: usize,
    pub(super) sequence: usize,
}

/// Returns the rows that are not skipped, on the CPU.
pub(super) fn on_cpu(a: &RowsArgs<Cpu<'_>>, state: &[u32]) -> Vec<CpuRow> {
    let rows = a.rows.iter().take(a.count as usize).enumerate();
    rows.filter_map(|(index, &of)| {
        let words = state.chunks(LEN).nth(of as usize)?;
        let [position, done, sequence] = [POSITION, DONE, SEQUENCE].map(|i| words[i as usize]);
        if done != 0 || sequence >= a.sequences || position >= a.max_tokens {
            return None;
        }

        Some(CpuRow {
            index,
            state: of as usize,
            position: position as usize,
            sequence: sequence as usize,
        })
    })
    .collect()
}
