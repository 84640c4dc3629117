//! The 512 bytes of fifth bits after the nibbles of a tile.

use super::bits::BitRange;
use super::layout::lane;
use super::nibbles;
use super::unpack::SELECT;
use crate::format::lanes::codes;
use crate::format::lanes::multiply::{AND_OR, Codes, TileLane, TilePtr};
use crate::format::lanes::pack::PackLane;
use crate::format::lanes::row::RowFragment;
use ptx_gen::*;
use std::array::from_fn;

/// The offset of the fifth bits in a tile.
pub(crate) const AT: u32 = nibbles::BYTES;
/// The bytes of all fifth bits of a tile.
pub(crate) const BYTES: u32 = 512;

/// Returns the fifth bit of column `k` of row `r`. It is in one of four more words of a lane. Byte
/// `e` of word `c` has the fifth bits for byte `e` of the four words of nibbles at `512 c`, two
/// bits for each.
pub(crate) fn in_tile(r: usize, k: usize) -> BitRange {
    let c = 2 * (k / 128) + k / 16 % 2;
    let j = k / 4 % 4;
    let word = AT as usize + 16 * lane(r, k / 32) + 4 * c;
    BitRange::new(word + k % 4, 2 * j + r / 8, 1)
}

impl<'k> PackLane<'k> {
    /// Stores the lane's words. `bits(r, c, j)` has the fifth bits of four columns in bit 0 of its
    /// bytes.
    pub(crate) fn fifth_bits(&self, bits: impl Fn(usize, u32, usize) -> U32<'k>) {
        self.k
            .section("format/common/fifth_bits", "pack fifth bits");
        let one = |r: usize, c: u32, j: usize| bits(r, c, j) << (2 * j + r) as u32;
        // Bit `i` of a byte belongs to row `g + 8 (i mod 2)` and word `i / 2`.
        let word = |c| (1..8).fold(one(0, c, 0), |word, i| word | one(i % 2, c, i / 2));
        let to = self.tile.at(AT).row(self.lane, 16).cast::<u32>();
        to.st4([0, 1, 2, 3].map(word));
    }

    /// Stores the lane's words, given the fifth bits of group `4 s + t` of each row in column order
    /// as the word `words[s][r]`.
    pub(crate) fn fifth_bits_in_order(&self, words: [[U32<'k>; 2]; 2]) {
        self.fifth_bits(|r, c, j| {
            let word = words[c as usize / 2][r];
            let four = (word >> (16 * (c % 2) + 4 * j as u32)) & 15;
            // The multiplication moves bit i of the four to bit 8 i. The mask drops the other
            // copies.
            (four * 0x0020_4081) & 0x0101_0101
        });
    }
}

impl<'k> TileLane<'k> {
    /// Returns the nibbles with their fifth bits above them. Word `c` of the fifth bits belongs to
    /// word `c` of the nibbles, and its bit `2 j + r` to row `g + 8 r`.
    pub(crate) fn five_bits(&self, tile: TilePtr<'k>) -> Codes<'k> {
        let words = self.nibble_words(tile);
        let high = self.four_words(tile, AT);
        from_fn(|s| {
            from_fn(|i| {
                self.k.section(
                    "format/common/tile_fifth_bits",
                    "fifth bits above nibbles, eight columns of both rows",
                );
                let c = 2 * s + i / 2;
                let code =
                    |j: usize, r: usize| five_bits(words[c][j], high[c], 2 * j + r, 4 * r as u32);
                let j = 2 * (i % 2);
                [code(j, 0), code(j, 1), code(j + 1, 0), code(j + 1, 1)]
            })
        })
    }
}

impl<'k> TileLane<'k> {
    /// Returns the codes of set `set` of 128 columns.
    pub(crate) fn five_bit_codes(&self, tile: TilePtr<'k>, set: u32) -> Vec<codes::Codes<'k>> {
        let high = tile.at(self.lane * 16).at(AT + 8 * set).cast::<u32>().ld2();
        let rows = |(i, word): (usize, U32<'k>)| {
            let row = |r: usize| five_bits(word, high[i / 4], 2 * (i % 4) + r, 4 * r as u32);
            codes::Codes::Bytes([0, 1].map(row))
        };
        self.nibble_set(tile, set).enumerate().map(rows).collect()
    }
}

/// Returns four nibbles of a word, starting at bit `from` of each byte, with bit `bit` of the bytes
/// of `high` above them.
fn five_bits<'k>(word: U32<'k>, high: U32<'k>, bit: usize, from: u32) -> U32<'k> {
    let fifth = match bit as u32 {
        bit @ 0..=4 => high << (4 - bit),
        bit => high >> (bit - 4),
    };
    fifth.lop3(0x1010_1010, (word >> from) & 0x0f0f_0f0f, AND_OR)
}

impl<'k> RowFragment<'k> {
    /// Returns the nibbles of a row fragment with their fifth bits above them.
    pub(crate) fn five_bits(&self) -> [U32<'k>; 4] {
        let [n0, n1, n2, n3] = self.nibbles();
        let c = ((self.index >> 3) << 1) | (self.index & 1);
        let lane_bits = self.tile.at(AT).row(self.group_lane(), 16);
        let both_rows = lane_bits.row(c, 4).cast::<u32>().ld();
        let bits = both_rows >> self.second;
        let with =
            |nibble: U32<'k>, fifth: U32<'k>| nibble.lop3(fifth & 0x1010_1010, 0x0f0f_0f0f, SELECT);
        [
            with(n0, bits << 4),
            with(n1, bits << 2),
            with(n2, bits),
            with(n3, bits >> 2),
        ]
    }
}
