//! Consecutive weights of a row of a tile, for the embedding of a token.
//!
//! In a tile, the weights of a row are distributed over the lanes of row `g`. A thread takes the
//! words of one load of one lane, which are consecutive in the row.

use super::fragment::Bytes;
use crate::format::fields::unpack::{Code, bytes, halfword, halves, split};
use ptx_gen::*;

/// Consecutive weights of a row of a tile. `tile.rs` defines where they are.
pub(crate) struct RowFragment<'k> {
    pub(crate) k: Builder<'k>,
    pub(crate) tile: Bytes<'k>,
    /// The first of the lane's two rows.
    pub(crate) g: U32<'k>,
    /// 1 for the second of the lane's rows, 0 for the first.
    pub(crate) second: U32<'k>,
    /// The index of the fragment in the row, in column order.
    pub(crate) index: U32<'k>,
}

impl<'k> RowFragment<'k> {
    /// Returns fragment `index` of the row of a token.
    pub(crate) fn new(k: Builder<'k>, tile: Bytes<'k>, token: U32<'k>, index: U32<'k>) -> Self {
        RowFragment {
            k,
            tile,
            g: token & 7,
            second: (token >> 3) & 1,
            index,
        }
    }

    /// Returns the lane that holds the groups `t`, `4 + t` and so on of the row.
    pub(crate) fn lane(&self, t: U32<'k>) -> U32<'k> {
        self.g.mad(4, t)
    }

    /// Returns the address of the four words of lane `lane` at `512 c`.
    pub(crate) fn words(&self, c: U32<'k>, lane: U32<'k>) -> Ptr<'k, u32, ReadOnly> {
        self.tile.row(c, 512).row(lane, 16).cast()
    }

    /// Returns the `f16` value at byte `at` plus `i` times `bytes`, for the fragment's row.
    pub(crate) fn half(&self, at: u32, i: U32<'k>, bytes: u32) -> F32<'k> {
        let value = self.tile.at(at).row(i, bytes).row(self.second, 2);
        halves(halfword(value, 0))[0]
    }

    /// Returns the two `f16` values of the fragment's row, among the pairs of all rows at `pairs`.
    pub(crate) fn pair(&self, pairs: Bytes<'k>) -> [F32<'k>; 2] {
        let pair = pairs.row(self.g, 8).row(self.second, 4);
        halves(pair.cast::<u32>().ld())
    }

    /// Returns the values of the codes in the bytes of some words.
    pub(crate) fn codes(
        &self,
        code: Code,
        words: impl IntoIterator<Item = U32<'k>>,
    ) -> Vec<F32<'k>> {
        words
            .into_iter()
            .flat_map(|word| bytes(code, split(word), 0))
            .collect()
    }
}
