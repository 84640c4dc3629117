//! The first 2,048 bytes of tiles of codes of four or five bits, in groups of 32 columns: a byte has the low four bits
//! of a column, of row `g` in its low nibble and of row `g + 8` in its high one.

use super::bits::BitRange;
use super::dequantize;
use super::pack::PackLane;
use super::product::{Codes, TileLane, TilePtr};
use super::row::RowFragment;
use super::tile::{lane, word};
use super::unpack::SELECT;
use ptx_gen::*;
use std::array::from_fn;

/// Bytes of all nibbles of a tile.
pub(super) const BYTES: u32 = 2048;

/// The low four bits of column `k` of row `r`. A lane has groups `t` and `4 + t` of 32 columns, eight words each.
pub(super) fn in_tile(r: usize, k: usize) -> BitRange {
    BitRange::new(
        word(8 * (k / 128) + k / 4 % 8, lane(r, k / 32)) + k % 4,
        4 * (r / 8),
        4,
    )
}

impl<'k> PackLane<'k> {
    /// Stores set `s` of nibbles: eight words of 32 codes of each row, in the low nibbles. The high nibbles are
    /// ignored.
    pub(super) fn nibbles(&self, s: u32, [a, b]: [[U32<'k>; 8]; 2]) {
        for h in 0..2 {
            self.k.section(
                "format/common/pack_nibbles",
                "16 columns of nibbles of both rows",
            );
            let word = |j: usize| a[4 * h + j].lop3(b[4 * h + j] << 4, 0x0f0f_0f0f, SELECT);
            self.words(2 * s + h as u32, from_fn(word));
        }
    }

    /// The same for four words of each row: the low nibbles are the first 16 codes, the high ones the others.
    pub(super) fn halves_of_nibbles(&self, s: u32, rows: [[U32<'k>; 4]; 2]) {
        self.nibbles(
            s,
            rows.map(|w| from_fn(|i| if i < 4 { w[i] } else { w[i - 4] >> 4 })),
        );
    }
}

impl<'k> TileLane<'k> {
    /// The lane's words of nibbles.
    pub(super) fn nibble_words(&self, tile: TilePtr<'k>) -> [[U32<'k>; 4]; 4] {
        from_fn(|c| self.words(tile, c as u32))
    }

    /// The words of nibbles of set `set` of 128 columns.
    pub(super) fn nibble_set(&self, tile: TilePtr<'k>, set: u32) -> impl Iterator<Item = U32<'k>> {
        [0, 1]
            .map(|half| self.words(tile, 2 * set + half))
            .into_iter()
            .flatten()
    }

    /// The same, as codes without more bits.
    pub(super) fn nibble_codes(&self, tile: TilePtr<'k>, set: u32) -> Vec<dequantize::Codes<'k>> {
        self.nibble_set(tile, set)
            .map(dequantize::Codes::Nibbles)
            .collect()
    }

    /// Row `g` in the low nibbles, row `g + 8` in the high ones. For row `g + 8` whole bytes are multiplied and row
    /// `g`'s products are subtracted again, which is exact and cheaper than masking: see [`Set::separated`].
    ///
    /// [`Set::separated`]: super::product::Set::separated
    pub(super) fn nibbles(&self, tile: TilePtr<'k>) -> Codes<'k> {
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
    /// Sixteen nibbles, in the low ones of four words: fragment `8 s + 2 t + c`.
    pub(super) fn nibbles(&self) -> [U32<'k>; 4] {
        let c = ((self.index >> 3) << 1) | (self.index & 1);
        let words = self.words(c, self.group_lane()).ld4();
        words.map(|word| word >> (self.second << 2))
    }

    /// The lane of the fragment's group, of formats with fragments `8 s + 2 t + c`.
    pub(super) fn group_lane(&self) -> U32<'k> {
        self.lane((self.index >> 1) & 3)
    }

    /// A binary16 value of the fragment's group of 32, of those that start at byte `at`: see
    /// [`halves_in_tile`](super::tile::halves_in_tile).
    pub(super) fn half_of_group(&self, at: u32) -> F32<'k> {
        self.half(at, self.group_lane().mad(2, self.index >> 3), 4)
    }
}
