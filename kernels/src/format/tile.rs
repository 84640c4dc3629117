//! Tiles: weights in the order in which a warp's matrix instructions take them, so that each load
//! of a warp is contiguous.
//!
//! Sixteen rows of a matrix are a row block. A row block is a sequence of tiles of
//! [`Tile::columns`] columns. Lane `4 g + t` of a warp holds weights of the rows `g` and `g + 8` of
//! a tile. A [`RowOrder`] maps them to rows of the matrix. A tile contains the bits of its GGUF
//! blocks, each exactly once, in a different order. Each format states where the bits of a field
//! are in a block and where they are in a tile, and [`pack`] copies them. [`dequantize`] is the
//! specification of the kernels over tiles.
//!
//! Most of a tile is "words": word `x` of lane `l` is at byte `512 (x / 4) + 16 l + 4 (x mod 4)`,
//! so that a warp loads four words of each lane at once.

use super::Format;
use super::fields::bits::{get, put};
pub use super::fields::layout::{ROWS, Tile};
use crate::shared::Random;

/// Returns the tile of a format that has one.
pub(crate) fn of(format: Format) -> Tile {
    format.tile().expect("plans have tiled formats")
}

/// The assignment of rows of one or two matrices to row blocks.
///
/// Row `r` below 8 of row block `b` is row `b / per * stride + (b mod per * 8 + r) * step` of the
/// matrix `lo`. Row `r + 8` is the row `delta` rows after it, of the matrix `hi`. A lane thus holds
/// two rows that are used together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowOrder {
    /// The number of row blocks of a group.
    pub per: u32,
    /// The number of rows of each matrix in a group.
    pub stride: u32,
    /// The distance from one row to the next.
    pub step: u32,
    /// The distance from a row of `lo` to its partner in `hi`.
    pub delta: u32,
}

impl RowOrder {
    /// Rows in order. `hi` is `lo`.
    pub const PLAIN: RowOrder = RowOrder {
        per: 1,
        stride: 16,
        step: 1,
        delta: 8,
    };
    /// Eight rows of the gate projection (`lo`), and the same eight rows of the up projection
    /// (`hi`).
    pub const GATE_UP: RowOrder = RowOrder {
        per: 1,
        stride: 8,
        step: 1,
        delta: 0,
    };

    /// Returns the order for NeoX (half-split) pairs: rows `j` and `j + head_dim / 2` of a head.
    /// `hi` is `lo`, and `head_dim` is a multiple of 16.
    pub const fn half_split(head_dim: u32) -> RowOrder {
        RowOrder {
            per: head_dim / ROWS,
            stride: head_dim,
            step: 1,
            delta: head_dim / 2,
        }
    }

    /// Returns the order for GPT-J (interleaved) pairs: rows `2 j` and `2 j + 1` of a head. `hi` is
    /// `lo`, and `head_dim` is a multiple of 16.
    pub const fn interleaved(head_dim: u32) -> RowOrder {
        RowOrder {
            per: head_dim / ROWS,
            stride: head_dim,
            step: 2,
            delta: 1,
        }
    }

    /// Returns the matrix row of row `r` of a row block. It is a row of `lo` for `r` below 8, else
    /// of `hi`.
    pub const fn source(self, row_block: u32, r: u32) -> u32 {
        let base =
            row_block / self.per * self.stride + (row_block % self.per * 8 + r % 8) * self.step;
        if r < 8 { base } else { base + self.delta }
    }

    /// Returns the number of row blocks of matrices of `rows` rows each.
    pub const fn blocks(self, rows: u32) -> u32 {
        rows / self.stride * self.per
    }
}

/// Packs one or two matrices of GGUF rows of `n` weights into tiles. The row blocks are in order,
/// and so are the tiles of each.
///
/// # Panics
/// Panics if the format has no tile, or if `lo` and `hi` are not whole groups of such rows.
pub fn pack(format: Format, rows: RowOrder, lo: &[u8], hi: &[u8], n: usize) -> Vec<u8> {
    let tile = format.tile().expect("a format with a tile");
    let row = format.row_bytes(n);
    let part = format.row_bytes(tile.columns as usize);
    let row_blocks = rows.blocks((lo.len() / row) as u32);
    let mut tiles = vec![0; row_blocks as usize * row / part * tile.bytes as usize];
    for (i, bytes) in tiles.chunks_exact_mut(tile.bytes as usize).enumerate() {
        let row_block = i / (row / part);
        let kt = i % (row / part);
        for r in 0..ROWS {
            let matrix = if r < 8 { lo } else { hi };
            let at = rows.source(row_block as u32, r) as usize * row + kt * part;
            pack_row(format, r as usize, &matrix[at..at + part], bytes);
        }
    }

    tiles
}

/// Packs the blocks of one row of a tile.
fn pack_row(format: Format, r: usize, row: &[u8], tile: &mut [u8]) {
    for (block, bytes) in row.chunks_exact(format.block_bytes() as usize).enumerate() {
        for field in format.fields() {
            put(
                tile,
                format.tiles().in_tile(r, block, field),
                get(bytes, format.of().in_block(field)),
            );
        }
    }
}

/// Dequantizes tiles: `[rows in the order of the tiles, n]`, with the same values as
/// [`Format::dequantize`].
///
/// # Panics
/// Panics if the format has no tile.
pub fn dequantize(format: Format, tiles: &[u8], n: usize) -> Vec<f32> {
    let Tile { columns, bytes } = format.tile().expect("a format with a tile");
    let columns = columns as usize;
    let bytes = bytes as usize;
    let row_blocks = tiles.chunks_exact(n / columns * bytes);
    let row = |block: &[u8], r| -> Vec<f32> {
        let tiles = block.chunks_exact(bytes);
        tiles
            .flat_map(|tile| (0..columns).map(move |k| weight(format, tile, r, k)))
            .collect()
    };
    row_blocks
        .flat_map(|block| (0..ROWS as usize).flat_map(move |r| row(block, r)))
        .collect()
}

/// Returns the weight in column `k` of row `r` of a tile.
fn weight(format: Format, tile: &[u8], r: usize, k: usize) -> f32 {
    let len = format.block_len() as usize;
    let block = k / len;
    let k = k % len;
    format.of().weight(k, &|field| {
        get(tile, format.tiles().in_tile(r, block, field))
    })
}

/// Returns random tiles with weights from about `-size` to `size`.
///
/// # Panics
/// Panics if the format has no tile.
pub fn random(format: Format, tiles: usize, size: f32, random: &mut Random) -> Vec<u8> {
    let n = format.tile().expect("a format with a tile").columns as usize;
    let blocks = tiles * ROWS as usize * n / format.block_len() as usize;
    let rows = format.random(blocks, size, random);
    pack(format, RowOrder::PLAIN, &rows, &rows, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::fields::bits::Bits;
    use crate::format::fields::bits::Field;
    use crate::format::fields::bits::Field::*;
    use Format::*;

    /// Formats with a tile.
    fn tiled() -> impl Iterator<Item = (Format, Tile)> {
        Format::ALL
            .into_iter()
            .filter_map(|format| Some((format, format.tile()?)))
    }

    #[test]
    fn sizes() {
        let sizes = [
            (Q4_0, 256, 2304),
            (Q4_1, 256, 2560),
            (Q5_0, 256, 2816),
            (Q5_1, 256, 3072),
            (Q2_K, 256, 1344),
            (Q3_K, 256, 1760),
            (IQ4_NL, 256, 2304),
            (IQ4_XS, 256, 2176),
            (MXFP4, 256, 2176),
            (Q5_K, 256, 2816),
            (F16, 128, 4096),
            (BF16, 128, 4096),
            (Q8_0, 256, 4352),
            (Q4_K, 256, 2304),
            (Q6_K, 256, 3360),
        ];
        for (format, columns, bytes) in sizes {
            assert_eq!(
                format.tile(),
                Some(Tile { columns, bytes }),
                "{}",
                format.name()
            );
        }

        let without = Format::ALL
            .into_iter()
            .filter(|format| format.tile().is_none());
        assert_eq!(without.collect::<Vec<_>>(), [F32]);
    }

    #[test]
    fn each_bit_of_a_tile_and_of_a_block_belongs_to_one_number() {
        fn claim(taken: &mut [bool], bits: Bits, what: &dyn std::fmt::Debug) {
            for at in bits
                .into_iter()
                .flat_map(|range| range.at..range.at + range.len)
            {
                assert!(
                    !std::mem::replace(&mut taken[at], true),
                    "bit {at} of {what:?} is taken"
                );
            }
        }
        for format in Format::ALL {
            let mut block = vec![false; 8 * format.block_bytes() as usize];
            for field in format.fields() {
                claim(&mut block, format.of().in_block(field), &(format, field));
            }
            assert!(
                block.iter().all(|&taken| taken),
                "a bit of a {} block is in no number",
                format.name()
            );
        }
        for (format, size) in tiled() {
            let mut tile = vec![false; 8 * size.bytes as usize];
            let blocks = (size.columns / format.block_len()) as usize;
            for (r, block) in
                (0..ROWS as usize).flat_map(|r| (0..blocks).map(move |block| (r, block)))
            {
                let bits = |field| {
                    (
                        format.tiles().in_tile(r, block, field),
                        (format, r, block, field),
                    )
                };
                for (bits, what) in format.fields().map(bits) {
                    claim(&mut tile, bits, &what);
                }
            }

            assert!(
                tile.iter().all(|&taken| taken),
                "a bit of a {} tile is in no number",
                format.name()
            );
        }
    }

    /// Returns the code of column `k` of row `r`.
    fn code_of(format: Format, tile: &[u8], r: usize, k: usize) -> u32 {
        let len = format.block_len() as usize;
        get(tile, format.tiles().in_tile(r, k / len, Code(k % len)))
    }

    /// The layout as the kernels assume it: an index of a word or a byte, its value, the row, the
    /// column.
    #[test]
    fn tiles_are_laid_out_as_described() {
        // Byte to set, its value, then row and column whose code must change, and to what.
        type CodeCase = (Format, usize, u8, usize, usize, u32);
        #[rustfmt::skip] // one case per line
        let places: [CodeCase; 20] = [
            (F16, 0, 0xff, 0, 0, 0x00ff),                                   // c 0, u 0, lane 0, a0
            (F16, 5 * 512 + 31 * 16 + 4 + 3, 0x12, 15, 2 * 32 + 24 + 4 + 1, 0x1200), // c 2, u 1, lane 31, a1
            (F16, 512 + 5 * 16 + 8, 0x34, 1, 8 + 4 + 2, 0x34),              // c 0, u 1, lane 5, a2
            (BF16, 7 * 512 + 2 * 16 + 14, 0x56, 8, 96 + 16 + 4 + 3, 0x56),  // c 3, u 1, lane 2, a3
            (Q8_0, 3, 7, 0, 3, 7),                                          // set 0, i 0, lane 0, a0
            (Q8_0, 6 * 512 + 9 * 16 + 4, 8, 10, 32 * 5 + 16, 8),            // set 1, i 2, lane 9, a1
            (Q8_0, 3 * 512 + 30 * 16 + 9, 9, 7, 32 * 2 + 24 + 5, 9),        // set 0, i 3, lane 30, a2
            (Q8_0, 7 * 512 + 31 * 16 + 15, 10, 15, 255, 10),                // set 1, i 3, lane 31, a3
            (Q4_K, 0, 0x0b, 0, 0, 11),                                      // c 0, lane 0, j 0
            (Q4_K, 512 + 6 * 16 + 4 + 2, 0xb0, 9, 32 * 2 + 16 + 4 + 2, 11), // c 1, lane 6, j 1: i 2, b 1
            (Q4_K, 2 * 512 + 4 * 16 + 8, 0x0c, 1, 32 * 4 + 8, 12),          // c 2, lane 4, j 2: i 1, b 0
            (Q4_K, 3 * 512 + 31 * 16 + 15, 0xd0, 15, 255, 13),              // c 3, lane 31, j 3: i 3, b 1
            (Q4_0, 2 * 512 + 4 * 16 + 8, 0x0c, 1, 32 * 4 + 8, 12),          // as Q4_K
            (Q5_K, 512 + 6 * 16 + 4 + 2, 0xb0, 9, 32 * 2 + 16 + 4 + 2, 11), // as Q4_K
            (Q5_K, 2048 + 6 * 16 + 4 + 2, 0x08, 9, 32 * 2 + 16 + 4 + 2, 16), // c 1, j 1, r 1
            (Q5_K, 2048 + 31 * 16 + 15, 0x40, 7, 255, 16),                  // c 3, j 3, r 0
            (Q6_K, 0, 0x3f, 0, 0, 63),                                      // m 0, word 0: A0
            (Q6_K, 16 + 4 + 1, 0x2a << 2, 8, 16 + 1, 0x2a),                 // m 0, lane 1, word 1: A1
            (Q6_K, 8, 0x15, 0, 4, 0x15),                                    // m 0, word 2: A2
            (Q6_K, 5 * 512 + 31 * 16 + 3 * 4, 0x3f, 7, 192 + 48 + 8 + 4, 63), // m 7, word 23: A2
        ];
        for (format, at, value, r, k, code) in places {
            let mut tile = vec![0; format.tile().unwrap().bytes as usize];
            tile[at] = value;
            for (row, column) in (0..16)
                .flat_map(|row| (0..128).map(move |k| (row, k)))
                .chain([(r, k)])
            {
                let wanted = if (row, column) == (r, k) { code } else { 0 };
                let found = code_of(format, &tile, row, column);
                assert_eq!(
                    found, wanted,
                    "{format:?} byte {at}, row {row}, column {column}"
                );
            }
        }
    }

    #[test]
    fn the_fourth_part_of_q6_k_is_in_three_words() {
        // m 3 (set 1, i 1), lane 2: row 8, columns 16 (4 + 2) + 8 + 4 on; words 9, 10, 11
        let at = |x: usize| 512 * (x / 4) + 2 * 16 + 4 * (x % 4) + 1;
        for (word, bits, code) in [
            (9, 0xc0, 0b11_00_00),
            (10, 0x03, 0b00_00_11),
            (11, 0xc0, 0b00_11_00),
        ] {
            let mut tile = vec![0; 3360];
            tile[at(word)] = bits;
            assert_eq!(
                code_of(Q6_K, &tile, 8, 16 * 6 + 8 + 4 + 1),
                code,
                "word {word}"
            );
        }
    }

    #[test]
    fn scales_are_laid_out_as_described() {
        // Format, bytes to set, row, block, number, value.
        type ScaleCase = (Format, &'static [(usize, u8)], usize, usize, Field, u32);
        #[rustfmt::skip] // one case per line
        let places: [ScaleCase; 17] = [
            (Q8_0, &[(4096 + 6 * 8, 0x34), (4096 + 6 * 8 + 1, 0x12)], 1, 2, D, 0x1234),
            (Q8_0, &[(4096 + 31 * 8 + 6, 0x34), (4096 + 31 * 8 + 7, 0x12)], 15, 7, D, 0x1234),
            (Q4_K, &[(2048 + 5 * 4, 0x0a), (2176 + 2 * 4, 0x30)], 1, 0, Scale(1), 0x3a),
            (Q4_K, &[(2048 + 4 * 4 + 1, 0xa0), (2176 + 2 * 4 + 1, 0x08)], 1, 0, Min(4), 0x2a),
            (Q4_K, &[(2048 + 31 * 4 + 2, 0x50), (2176 + 15 * 4 + 2, 0x40)], 15, 0, Scale(7), 0x15),
            (Q4_K, &[(2048 + 4 * 2 + 3, 0x07), (2176 + 4 + 3, 0x02)], 8, 0, Min(2), 0x27),
            (Q4_K, &[(2240 + 8, 0x01), (2240 + 9, 0x02)], 1, 0, D, 0x0201),
            (Q4_K, &[(2240 + 3 * 8 + 6, 0x01)], 11, 0, Dmin, 1),
            (Q4_0, &[(2048 + 6 * 8 + 4, 0x34), (2048 + 6 * 8 + 5, 0x12)], 1, 6, D, 0x1234),
            (Q5_K, &[(2560 + 5 * 4, 0x0a), (2688 + 2 * 4, 0x30)], 1, 0, Scale(1), 0x3a),
            (Q5_K, &[(2560 + 4 * 4 + 1, 0xa0), (2688 + 2 * 4 + 1, 0x08)], 1, 0, Min(4), 0x2a),
            (Q5_K, &[(2752 + 8, 0x01), (2752 + 9, 0x02)], 1, 0, D, 0x0201),
            (Q5_K, &[(2752 + 3 * 8 + 6, 0x01)], 11, 0, Dmin, 1),
            (Q6_K, &[(3072, 0x80)], 0, 0, Scale(0), 0x80),
            (Q6_K, &[(3072 + 9 * 8 + 7, 0x7f)], 10, 0, Scale(13), 0x7f),
            (Q6_K, &[(3328 + 7 * 4, 0x11)], 7, 0, D, 0x11),
            (Q6_K, &[(3328 + 2 * 4 + 3, 0x11)], 10, 0, D, 0x1100),
        ];
        for (format, bytes, r, block, field, value) in places {
            let mut tile = vec![0; format.tile().unwrap().bytes as usize];
            for &(at, v) in bytes {
                tile[at] = v;
            }
            let found = get(&tile, format.tiles().in_tile(r, block, field));
            assert_eq!(
                found, value,
                "{format:?} {field:?} of row {r}, block {block}"
            );
        }
    }

    /// Row orders, the matrix's rows in a group, and the first group's rows in the order of the
    /// tiles. Rows from 100 on belong to the second matrix.
    #[test]
    fn rows_of_a_block() {
        let plain: Vec<u32> = (0..16).collect();
        let half_split: Vec<u32> = [0, 16, 8, 24]
            .into_iter()
            .flat_map(|first| first..first + 8)
            .collect();
        let interleaved: Vec<u32> = [0, 1, 16, 17]
            .into_iter()
            .flat_map(|first| (0..8).map(move |i| first + 2 * i))
            .collect();
        let gate_up: Vec<u32> = (0..8).chain(100..108).collect();
        let cases = [
            (RowOrder::PLAIN, 16, plain),
            (RowOrder::half_split(32), 32, half_split),
            (RowOrder::interleaved(32), 32, interleaved),
            (RowOrder::GATE_UP, 8, gate_up),
        ];
        for (rows, group, wanted) in cases {
            let hi = if rows == RowOrder::GATE_UP { 100 } else { 0 };
            let row = |i: u32| rows.source(i / 16, i % 16) + if i % 16 < 8 { 0 } else { hi };
            let first: Vec<u32> = (0..16 * rows.per).map(row).collect();
            assert_eq!(first, wanted, "{rows:?}");
            assert_eq!(rows.blocks(3 * group), 3 * rows.per, "{rows:?}");
            assert_eq!(rows.source(2 * rows.per, 0), 2 * group, "{rows:?}");
        }
    }

    #[test]
    fn tiles_hold_the_weights_of_the_rows() {
        let kinds = [
            RowOrder::PLAIN,
            RowOrder::half_split(64),
            RowOrder::interleaved(32),
            RowOrder::GATE_UP,
        ];
        for ((format, tile), rows) in tiled().flat_map(|tiled| kinds.map(|rows| (tiled, rows))) {
            let n = 2 * tile.columns as usize;
            let count = 2 * rows.stride;
            let random = &mut Random(u64::from(rows.per));
            let mut matrix = || {
                format.random(
                    count as usize * n / format.block_len() as usize,
                    1.0,
                    random,
                )
            };
            let lo = matrix();
            let hi = if rows == RowOrder::GATE_UP {
                matrix()
            } else {
                lo.clone()
            };
            let found = dequantize(format, &pack(format, rows, &lo, &hi, n), n);
            let lo = format.dequantize(&lo);
            let hi = format.dequantize(&hi);
            assert_eq!(found.len(), (16 * rows.blocks(count)) as usize * n);
            for (i, found) in found.chunks_exact(n).enumerate() {
                let row_block = i as u32 / 16;
                let r = i as u32 % 16;
                let at = rows.source(row_block, r) as usize * n;
                let wanted = &(if r < 8 { &lo } else { &hi })[at..at + n];
                assert_eq!(found, wanted, "{} {rows:?} row {i}", format.name());
            }
        }
    }

    #[test]
    fn random_tiles_are_as_large_as_asked() {
        for (format, tile) in tiled() {
            let tiles = random(format, 3, 0.5, &mut Random(1));
            assert_eq!(tiles.len(), 3 * tile.bytes as usize, "{}", format.name());
            assert!(
                dequantize(format, &tiles, tile.columns as usize)
                    .iter()
                    .all(|w| w.abs() < 1.0)
            );
        }
    }
}
