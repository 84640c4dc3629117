//! The adapter of a row, and the product with its matrix B.

use crate::pipeline::lora::RANK_STEP;
use crate::shared::state::{ADAPTER, LEN};
use ptx_gen::*;

/// The adapter of a row.
pub(super) struct AdapterRow<'k> {
    /// The index of the adapter. It is meaningless if the row has none.
    pub(super) index: U32<'k>,
    /// Whether the row has an adapter that exists.
    pub(super) exists: Pred<'k>,
}

impl<'k> AdapterRow<'k> {
    /// Loads the adapter of a row. An index without an adapter counts as none, so that no state can
    /// make a kernel read outside of the adapters.
    pub(super) fn load(
        state: Ptr<'k, u32, ReadOnly>,
        token: U32<'k>,
        adapters: U32<'k>,
    ) -> AdapterRow<'k> {
        let word = state.row(token, 4 * LEN as u32).at(ADAPTER).ld();
        AdapterRow {
            index: word - 1,
            exists: word.ne(0) & word.le(adapters),
        }
    }
}

/// Returns the adapter of a row on the CPU.
pub(super) fn adapter_of(state: &[u32], token: usize, adapters: u32) -> Option<usize> {
    let word = state[token * LEN + ADAPTER as usize];
    (word != 0 && word <= adapters).then(|| word as usize - 1)
}

/// The product with a transposed matrix B, `[rank, rows]`.
pub(super) struct TransposedB<'k> {
    pub(super) k: Builder<'k>,
    pub(super) b: Ptr<'k, f32, ReadOnly>,
    pub(super) rank: U32<'k>,
    pub(super) rows: U32<'k>,
}

impl<'k> TransposedB<'k> {
    /// Returns `B u` for one row of B. `u` has `rank` elements. They are added in order.
    pub(super) fn dot(&self, row: U32<'k>, u: Ptr<'k, f32, ReadOnly>) -> F32<'k> {
        let k = self.k;
        let column = self.b.at(row);
        let mut sum = k.var(0.0);
        k.for_each(0, self.rank, RANK_STEP, |first| {
            for (i, u) in (0..).zip(u.at(first).ld4()) {
                let b = column.row(first + i, self.rows * 4).ld();
                sum.fma(b, u);
            }
        });
        sum.get()
    }
}

/// Returns `B u` for one row of a transposed matrix on the CPU.
pub(super) fn dot(b: &[f32], rows: usize, row: usize, u: &[f32]) -> f64 {
    let of_rank = |(i, &u): (usize, &f32)| f64::from(b[i * rows + row]) * f64::from(u);
    u.iter().enumerate().map(of_rank).sum()
}

/// Returns states of rows whose adapters are these, and zeros otherwise.
pub(super) fn states(adapters: &[Option<u32>]) -> Vec<u32> {
    let state = |&adapter: &Option<u32>| {
        let state = crate::shared::state::StepState {
            adapter,
            ..Default::default()
        };
        state.words()
    };
    adapters.iter().flat_map(state).collect()
}
