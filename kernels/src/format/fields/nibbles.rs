//! The first 2,048 bytes of tiles with codes of four or five bits, in groups of 32 columns. A byte
//! has the low four bits of a column: row `g` in the low nibble, row `g + 8` in the high nibble.

use super::bits::BitRange;
use super::layout::{lane, word};
use super::unpack::SELECT;
use crate::format::lanes::codes;
use crate::format::lanes::multiply::{Codes, TileLane, TilePtr};
use crate::format::lanes::pack::PackLane;
use crate::format::lanes::row::RowFragment;
use ptx_gen::*;
use std::array::from_fn;

/// The bytes of all nibbles of a tile.
pub(crate) const BYTES: u32 = 2048;

/// Returns the low four bits of column `k` of row `r`. A lane has the groups `t` and `4 + t` of 32
/// columns, in eight words each.
pub(crate) fn in_tile(r: usize, k: usize) -> BitRange {
    let x = 8 * (k / 128) + k / 4 % 8;
    let word = word(x, lane(r, k / 32));
    BitRange::new(word + k % 4, 4 * (r / 8), 4)
}

impl<'k> PackLane<'k> {
    /// Stores set `s` of nibbles, given eight words of 32 codes of each row in the low nibbles. The
    /// high nibbles are ignored.
    pub(crate) fn nibbles(&self, s: u32, [a, b]: [[U32<'k>; 8]; 2]) {
        for h in 0..2 {
            self.k.section(
                "format/common/pack_nibbles",
                "16 columns of nibbles of both rows",
            );
            let word = |j: usize| {
                let high = b[4 * h + j] << 4;
                a[4 * h + j].lop3(high, 0x0f0f_0f0f, SELECT)
            };
            self.words(2 * s + h as u32, from_fn(word));
        }
    }

    /// Stores set `s` of nibbles, given four words of each row. The low nibbles are the first 16
    /// codes, and the high nibbles are the others.
    pub(crate) fn halves_of_nibbles(&self, s: u32, rows: [[U32<'k>; 4]; 2]) {
        let codes = rows.map(|w| from_fn(|i| if i < 4 { w[i] } else { w[i - 4] >> 4 }));
        self.nibbles(s, codes);
    }
}

impl<'k> TileLane<'k> {
    /// Loads the lane's words of nibbles.
    pub(crate) fn nibble_words(&self, tile: TilePtr<'k>) -> [[U32<'k>; 4]; 4] {
        from_fn(|c| self.words(tile, c as u32))
    }

    /// Loads the words of nibbles of set `set` of 128 columns.
    pub(crate) fn nibble_set(&self, tile: TilePtr<'k>, set: u32) -> impl Iterator<Item = U32<'k>> {
        [0, 1]
            .map(|half| self.words(tile, 2 * set + half))
            .into_iter()
            .flatten()
    }

    /// Returns the nibbles of set `set` of 128 columns as codes without further bits.
    pub(crate) fn nibble_codes(&self, tile: TilePtr<'k>, set: u32) -> Vec<codes::Codes<'k>> {
        self.nibble_set(tile, set)
            .map(codes::Codes::Nibbles)
            .collect()
    }

    /// Returns row `g` in the low nibbles, and both rows in whole bytes. For row `g + 8`, whole
    /// bytes are multiplied, and the products of row `g` are subtracted again, which is exact and
    /// cheaper than masking (see [`Set::separated`]).
    ///
    /// [`Set::separated`]: crate::format::lanes::multiply::Set::separated
    pub(crate) fn nibbles(&self, tile: TilePtr<'k>) -> Codes<'k> {
        let words = self.nibble_words(tile);
        from_fn(|s| {
            from_fn(|i| {
                let pair = &words[2 * s + i / 2][2 * (i % 2)..];
                [
                    pair[0] & 0x0f0f_0f0f,
                    pair[0],
                    pair[1] & 0x0f0f_0f0f,
                    pair[1],
                ]
            })
        })
    }
}

impl<'k> RowFragment<'k> {
    /// Returns sixteen nibbles in the low nibbles of four words, for fragment `8 s + 2 t + c`.
    pub(crate) fn nibbles(&self) -> [U32<'k>; 4] {
        let c = ((self.index >> 3) << 1) | (self.index & 1);
        let words = self.words(c, self.group_lane()).ld4();
        words.map(|word| word >> (self.second << 2))
    }

    /// Returns the lane of the fragment's group, for formats with fragments `8 s + 2 t + c`.
    pub(crate) fn group_lane(&self) -> U32<'k> {
        self.lane((self.index >> 1) & 3)
    }

    /// Returns the `f16` value of the fragment's group of 32, among the values that start at byte
    /// `at` (see [`halves_in_tile`](super::layout::halves_in_tile)).
    pub(crate) fn half_of_group(&self, at: u32) -> F32<'k> {
        self.half(at, self.group_lane().mad(2, self.index >> 3), 4)
    }
}
