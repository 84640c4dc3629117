//! Consecutive weights of a row of a tile, for the embedding of a token.
//!
//! In a tile, the weights of a row are spread over the lanes of row `g`. A thread takes the words of one load of one
//! lane, which are consecutive in the row.

use super::fragment::Bytes;
use super::unpack::{Code, bytes, halfword, halves, split};
use ptx_gen::*;

/// Consecutive weights of a row of a tile. `tile.rs` defines where they are.
pub(crate) struct RowFragment<'k> {
    pub(super) k: Builder<'k>,
    pub(super) tile: Bytes<'k>,
    /// The first of the lane's two rows.
    pub(super) g: U32<'k>,
    /// 1 for the second.
    pub(super) second: U32<'k>,
    /// The index of the fragment in the row, in the order of the columns.
    pub(super) index: U32<'k>,
}

impl<'k> RowFragment<'k> {
    pub(crate) fn new(k: Builder<'k>, tile: Bytes<'k>, token: U32<'k>, index: U32<'k>) -> Self {
        RowFragment {
            k,
            tile,
            g: token & 7,
            second: (token >> 3) & 1,
            index,
        }
    }

    /// The lane that holds groups `t`, `4 + t`, ... of the row.
    pub(super) fn lane(&self, t: U32<'k>) -> U32<'k> {
        self.g.mad(4, t)
    }

    /// The four words of lane `lane` at `512 c`.
    pub(super) fn words(&self, c: U32<'k>, lane: U32<'k>) -> Ptr<'k, u32, ReadOnly> {
        self.tile.row(c, 512).row(lane, 16).cast()
    }

    /// The binary16 value at this byte and `i` times `bytes` bytes.
    pub(super) fn half(&self, at: u32, i: U32<'k>, bytes: u32) -> F32<'k> {
        halves(halfword(
            self.tile.at(at).row(i, bytes).row(self.second, 2),
            0,
        ))[0]
    }

    pub(super) fn codes(
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
