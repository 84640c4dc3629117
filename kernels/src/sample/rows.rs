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
pub(super) fn check<K: KernelDef>(kernel: &K, a: &RowsArgs<Shape>, state: usize) -> Result<(), ShapeError> {
    kernel.range("vocab", a.vocab, 1, MAX_VOCAB)?;
    kernel.range("count", a.count, 1, u16::MAX.into())?;
    kernel.range("capacity", a.capacity, a.count, 1 << 24)?;
    kernel.range("sequences", a.sequences, 1, 1 << 16)?;
    kernel.range("max_tokens", a.max_tokens, 1, 1 << 24)?;
    kernel.at_least("rows", a.rows, "count", &[a.count])?;
    kernel.length("params", a.params, "sequences * 16", &[a.sequences, WORDS as u32])?;
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
}

/// Runs `body` for the row of this block, if there is something to do for it. Waits for the kernels before. Of these none
/// that writes states still runs when this one starts: they are of earlier steps, or before a full edge.
pub(super) fn with_row<'k>(
    k: Builder<'k>,
    overlap: bool,
    a: &RowsArgs<Dev<'k>>,
    state: Ptr<'k, u32, impl Loads>,
    body: impl FnOnce(Row<'k>),
) {
    if overlap {
        k.grid_trigger();
        k.grid_wait();
    }
    let index = k.ctaid_y();
    let of = a.rows.at(index).ld();
    k.when(of.lt(a.states), || {
        let words = state.row(of, 4 * LEN as u32);
        let [position, done, sequence] = [POSITION, DONE, SEQUENCE].map(|i| words.at(i).ld());
        let placed = sequence.lt(a.sequences) & position.lt(a.max_tokens);
        k.when(done.eq(0) & placed, || {
            let params = DeviceParams::load(a.params, sequence);
            body(Row { index, state: of, position, sequence, params });
        });
    });
}

/// The row of this block once more, for which there is something to do: what is loaded again is not kept meanwhile.
pub(super) fn again<'k>(k: Builder<'k>, a: &RowsArgs<Dev<'k>>, state: Ptr<'k, u32, ReadWrite>) -> Row<'k> {
    let index = k.ctaid_y();
    let of = a.rows.at(index).ld();
    let [position, sequence] = [POSITION, SEQUENCE].map(|word| state.row(of, 4 * LEN as u32).at(word).ld());
    Row { index, state: of, position, sequence, params: DeviceParams::load(a.params, sequence) }
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
        counts.then_some(CpuRow { index, state, position, sequence })
    })
    .collect()
}
