//! The first 1,024 bytes of tiles with codes of two or three bits, in groups of 16 columns. A byte
//! has the low two bits of two columns of both rows:
//!
//! | bits of byte `e` | column of the word's eight | row |
//! |---|---|---|
//! | 0, 1 | `e` | `g` |
//! | 2, 3 | `e` | `g + 8` |
//! | 4, 5 | `4 + e` | `g` |
//! | 6, 7 | `4 + e` | `g + 8` |

use super::bits::BitRange;
use super::layout::{lane, word};
use super::sixteens::SixteenCodes;
use crate::format::lanes::codes;
use crate::format::lanes::multiply::{TileLane, TilePtr};
use crate::format::lanes::pack::PackLane;
use crate::format::lanes::row::RowFragment;
use ptx_gen::*;
use std::array::from_fn;

/// The bytes of the low two bits of a tile.
pub(crate) const BYTES: u32 = 1024;

/// Returns the low two bits of column `k` of row `r`. Word `2 s + i` of a lane has the columns `8
/// i` to `8 i + 7` of group `4 s + t` of 16.
pub(crate) fn in_tile(r: usize, k: usize) -> BitRange {
    let x = 2 * (k / 64) + k / 8 % 2;
    BitRange::new(
        word(x, lane(r, k / 16)) + k % 4,
        4 * (k / 4 % 2) + 2 * (r / 8),
        2,
    )
}

impl<'k> PackLane<'k> {
    /// Stores the lane's words. `codes[r][s]` are four words with the codes of group `4 s + t` in
    /// the low two bits of their bytes. The other bits are ignored.
    pub(crate) fn two_bits(&self, codes: &[[[U32<'k>; 4]; 4]; 2]) {
        let word = |x: usize| {
            self.k.section(
                "format/common/pack_two_bits",
                "eight columns of two bits of both rows",
            );
            // Pair `n` of bits has row `n % 2` and column word `n / 2`, as the table above shows.
            let one = |n: usize| {
                let code = codes[n % 2][x / 2][2 * (x % 2) + n / 2] & 0x0303_0303;
                code << (2 * n as u32)
            };
            (1..4).fold(one(0), |word, n| word | one(n))
        };
        for c in 0..2 {
            self.words(c as u32, from_fn(|i| word(4 * c + i)));
        }
    }
}

impl<'k> TileLane<'k> {
    /// Returns the lane's codes: the low two bits, and the bits that `above` adds to them for word
    /// `n` of instruction `i` of set `s`.
    pub(crate) fn two_bits(
        &self,
        tile: TilePtr<'k>,
        above: impl Fn(U32<'k>, usize, usize, usize) -> U32<'k>,
    ) -> SixteenCodes<'k> {
        let words: [[U32; 4]; 2] = from_fn(|c| self.words(tile, c as u32));
        from_fn(|s| {
            from_fn(|i| {
                self.k.section(
                    "format/common/tile_two_bits",
                    "two bits, eight columns of both rows",
                );
                let x = 2 * s + i;
                let low = |n: usize| (words[x / 4][x % 4] >> (2 * n as u32)) & 0x0303_0303;
                from_fn(|n| above(low(n), s, i, n))
            })
        })
    }
}

impl<'k> TileLane<'k> {
    /// Returns the codes of set `set` of 128 columns, starting at bit `at` of bytes. `above` adds
    /// further bits, as in [`two_bits`](TileLane::two_bits).
    pub(crate) fn two_bit_codes(
        &self,
        tile: TilePtr<'k>,
        set: u32,
        at: u32,
        above: impl Fn(U32<'k>, usize, usize, usize) -> U32<'k>,
    ) -> Vec<codes::Codes<'k>> {
        let words = self.words(tile, set);
        let row = |(word, s, i): (U32<'k>, usize, usize), n: usize| {
            above(
                to_bit(at, word, 2 * n as u32) & (0x0303_0303 << at),
                s,
                i,
                n,
            )
        };
        let two = |(x, &word): (usize, &U32<'k>)| {
            let at = (word, 2 * set as usize + x / 2, x % 2);
            [0, 2].map(|j| codes::Codes::Bytes([0, 1].map(|r| row(at, j + r))))
        };
        words.iter().enumerate().flat_map(two).collect()
    }
}

impl<'k> RowFragment<'k> {
    /// Returns the low two bits of eight columns, in the low bits of the bytes of two words, for
    /// fragment `8 s + 2 t + i`. The other bits are not cleared.
    pub(crate) fn two_bits(&self) -> [U32<'k>; 2] {
        let x = ((self.index >> 3) << 1) | (self.index & 1);
        let word = self.words(x >> 2, self.group_lane()).at(x & 3).ld() >> (self.second << 1);
        [word, word >> 4]
    }
}

/// Moves bit `bit` of each byte of `word`, and the bits above it, to bit `to`. The other bits are
/// not cleared.
pub(crate) fn to_bit(to: u32, word: U32<'_>, bit: u32) -> U32<'_> {
    if bit < to {
        word << (to - bit)
    } else {
        word >> (bit - to)
    }
}
