//! The layout of tiles: their size, and the places of lanes and words.

use super::bits::{Bits, one};

/// The number of rows of a tile.
pub const ROWS: u32 = 16;

/// The size of a format's tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// The number of columns. The length of a row is a multiple of it.
    pub columns: u32,
    /// The number of bytes, a multiple of 32. It equals the bytes of the GGUF blocks.
    pub bytes: u32,
}

/// Returns the lane of row `r` that holds `group`, among the row's four lanes.
pub(crate) fn lane(r: usize, group: usize) -> usize {
    4 * (r % 8) + group % 4
}

/// Returns the first byte of a lane's word `x`.
pub(crate) fn word(x: usize, lane: usize) -> usize {
    512 * (x / 4) + 16 * lane + 4 * (x % 4)
}

/// Returns the bits of the `f16` value of row `r`, among the values of all rows that start at byte
/// `at`. A word has the values of the rows `g` and `g + 8`.
pub(crate) fn half_of_row(at: u32, r: usize) -> Bits {
    one(at as usize + 4 * (r % 8) + 2 * (r / 8), 0, 16)
}

/// Returns the first byte of the two `f16` values of row `r`, among the pairs of all rows that
/// start at byte `at`. The pairs of the rows `g` and `g + 8` are adjacent.
pub(crate) fn pair_of_row(at: u32, r: usize) -> usize {
    at as usize + 8 * (r % 8) + 4 * (r / 8)
}

/// Returns the bits of the `f16` value of group `j` of 32 columns of row `r`, among the values that
/// start at byte `at`.
pub(crate) fn halves_in_tile(at: u32, r: usize, j: usize) -> Bits {
    // A lane has a word of each set, with the values of both of its rows.
    let set = j / 4;
    one(at as usize + 8 * lane(r, j) + 4 * set + 2 * (r / 8), 0, 16)
}
