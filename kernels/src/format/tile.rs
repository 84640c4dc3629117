//! Tiles: weights in the order in which a warp's matrix instructions take them, so that each load of a warp is
//! contiguous.
//!
//! Sixteen rows of a matrix are a row block. A row block is a sequence of tiles of [`Tile::columns`] columns. Lane `4
//! g + t` of a warp holds weights of rows `g` and `g + 8` of a tile; a [`RowOrder`] maps them to rows of the matrix.
//! A tile contains the bits of its GGUF blocks, each exactly once, in another order: `in_row` gives the position of a
//! number's bits in the file, `in_tile` their position in a tile, and [`pack`] copies one to the other.
//! [`dequantize`] is the specification of the kernels over tiles.
//!
//! Most of a tile is "words": word `x` of lane `l` is at byte `512 (x / 4) + 16 l + 4 (x mod 4)`, so that a warp
//! loads four words of each lane at once.

use crate::case::Random;
use crate::format::Format;
use Format::*;
use ptx_gen::{bf16, f16};

/// RowOrder of a tile.
pub const ROWS: u32 = 16;

/// The size of a format's tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Columns; a row's length is a multiple of it.
    pub columns: u32,
    /// Bytes, a multiple of 32: as many as the GGUF blocks have.
    pub bytes: u32,
}

impl Format {
    /// The format's tile; `None` where no kernel reads tiles.
    pub fn tile(self) -> Option<Tile> {
        let columns = match self {
            F32 | Q4_1 | Q5_0 | Q5_1 => return None,
            F16 | BF16 => 128,
            Q4_0 | Q8_0 | Q4_K | Q5_K | Q6_K => 256,
        };
        Some(Tile { columns, bytes: ROWS * self.row_bytes(columns as usize) as u32 })
    }
}

/// Which rows of one or two matrices form a row block.
///
/// Row `r` below 8 of row block `b` is row `b / per * stride + (b mod per * 8 + r) * step` of the matrix `lo`, and
/// row `r + 8` is the row `delta` after it of the matrix `hi`. A lane thus holds two rows that are used together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowOrder {
    /// Row blocks of a group.
    pub per: u32,
    /// RowOrder of each matrix in a group.
    pub stride: u32,
    /// From one row to the next.
    pub step: u32,
    /// The distance from a row of `lo` to its partner in `hi`.
    pub delta: u32,
}

impl RowOrder {
    /// In order; `hi` is `lo`.
    pub const PLAIN: RowOrder = RowOrder { per: 1, stride: 16, step: 1, delta: 8 };
    /// Eight rows of the gate projection (`lo`), and the same eight rows of the up projection (`hi`).
    pub const GATE_UP: RowOrder = RowOrder { per: 1, stride: 8, step: 1, delta: 0 };

    /// NeoX pairs: rows `j` and `j + head_dim / 2` of a head; `hi` is `lo`, and `head_dim` a multiple of 16.
    pub const fn half_split(head_dim: u32) -> RowOrder {
        RowOrder { per: head_dim / ROWS, stride: head_dim, step: 1, delta: head_dim / 2 }
    }

    /// GPT-J pairs: rows `2 j` and `2 j + 1` of a head; `hi` is `lo`, and `head_dim` a multiple of 16.
    pub const fn interleaved(head_dim: u32) -> RowOrder {
        RowOrder { per: head_dim / ROWS, stride: head_dim, step: 2, delta: 1 }
    }

    /// The matrix row of row `r` of a row block: of `lo` for `r` below 8, else of `hi`.
    pub const fn source(self, row_block: u32, r: u32) -> u32 {
        let base = row_block / self.per * self.stride + (row_block % self.per * 8 + r % 8) * self.step;
        if r < 8 { base } else { base + self.delta }
    }

    /// The number of row blocks of matrices of `rows` rows each.
    pub const fn blocks(self, rows: u32) -> u32 {
        rows / self.stride * self.per
    }
}

/// Packs one or two matrices, given as GGUF rows of `n` weights, into tiles: row blocks in order, and the tiles of
/// each in order.
///
/// # Panics
/// If the format has no tile, or `lo` and `hi` are not whole groups of such rows.
pub fn pack(format: Format, rows: RowOrder, lo: &[u8], hi: &[u8], n: usize) -> Vec<u8> {
    let tile = format.tile().expect("a format with a tile");
    let (row, part) = (format.row_bytes(n), format.row_bytes(tile.columns as usize));
    let row_blocks = rows.blocks((lo.len() / row) as u32);
    let mut tiles = vec![0; row_blocks as usize * row / part * tile.bytes as usize];
    for (i, bytes) in tiles.chunks_exact_mut(tile.bytes as usize).enumerate() {
        let (row_block, kt) = (i / (row / part), i % (row / part));
        for r in 0..ROWS {
            let matrix = if r < 8 { lo } else { hi };
            let at = rows.source(row_block as u32, r) as usize * row + kt * part;
            pack_row(format, r as usize, &matrix[at..at + part], bytes);
        }
    }
    tiles
}

fn pack_row(format: Format, r: usize, row: &[u8], tile: &mut [u8]) {
    for field in fields(format) {
        put(tile, in_tile(format, r, field), get(row, in_row(format, field)));
    }
}

/// The weights of tiles: `[rows in the order of the tiles, n]`, the same numbers as [`Format::dequantize`] gives.
///
/// # Panics
/// If the format has no tile.
pub fn dequantize(format: Format, tiles: &[u8], n: usize) -> Vec<f32> {
    let Tile { columns, bytes } = format.tile().expect("a format with a tile");
    let (columns, bytes) = (columns as usize, bytes as usize);
    let row_blocks = tiles.chunks_exact(n / columns * bytes);
    let row = |block: &[u8], r| -> Vec<f32> {
        let tiles = block.chunks_exact(bytes);
        tiles.flat_map(|tile| (0..columns).map(move |k| weight(format, tile, r, k))).collect()
    };
    row_blocks.flat_map(|block| (0..ROWS as usize).flat_map(move |r| row(block, r))).collect()
}

/// Column `k` of row `r` of a tile.
fn weight(format: Format, tile: &[u8], r: usize, k: usize) -> f32 {
    let bits = |field| get(tile, in_tile(format, r, field));
    let number = |field| f32::from(bits(field));
    let half = |field| f16(bits(field)).to_f32();
    let code = bits(Code(k));
    match format {
        F32 | Q4_1 | Q5_0 | Q5_1 => unreachable!("{} has no tile", format.name()),
        F16 => f16(code).to_f32(),
        BF16 => bf16(code).to_f32(),
        Q4_0 => half(D(k / 32)) * (f32::from(code) - 8.0),
        Q8_0 => half(D(k / 32)) * f32::from(code as u8 as i8),
        Q4_K | Q5_K => {
            half(D(0)) * number(Scale(k / 32)) * f32::from(code) - half(Dmin) * number(Min(k / 32))
        }
        Q6_K => half(D(0)) * f32::from(bits(Scale(k / 16)) as u8 as i8) * (f32::from(code) - 32.0),
    }
}

/// Random tiles, their weights from about `-size` to `size`.
///
/// # Panics
/// If the format has no tile.
pub fn random(format: Format, tiles: usize, size: f32, random: &mut Random) -> Vec<u8> {
    let n = format.tile().expect("a format with a tile").columns as usize;
    let blocks = tiles * ROWS as usize * n / format.block_len() as usize;
    let rows = format.random(blocks, size, random);
    pack(format, RowOrder::PLAIN, &rows, &rows, n)
}

/// A number of a tile's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    /// The code of the weight in this column.
    Code(usize),
    /// The scale of this group of columns, an integer.
    Scale(usize),
    /// The minimum of this group of columns, an integer.
    Min(usize),
    /// The `f16` scale of this block.
    D(usize),
    /// The `f16` scale of the minima.
    Dmin,
}
use Field::*;

/// Every number of a row.
fn fields(format: Format) -> Vec<Field> {
    let (scales, mins, ds, dmins) = match format {
        F32 | F16 | BF16 | Q4_1 | Q5_0 | Q5_1 => (0, 0, 0, 0),
        Q4_0 | Q8_0 => (0, 0, 8, 0),
        Q4_K | Q5_K => (8, 8, 1, 1),
        Q6_K => (16, 0, 1, 0),
    };
    let columns = format.tile().map_or(0, |tile| tile.columns as usize);
    let groups = (0..scales).map(Scale).chain((0..mins).map(Min)).chain((0..ds).map(D));
    (0..columns).map(Code).chain(groups).chain((0..dmins).map(|_| Dmin)).collect()
}

/// The positions of a number's bits, the lowest first.
type Bits = [BitRange; 3];

/// `len` bits from bit `at` on, bit 0 of byte 0 being the first.
#[derive(Clone, Copy, Debug)]
struct BitRange {
    at: usize,
    len: usize,
}

impl BitRange {
    const NONE: BitRange = BitRange { at: 0, len: 0 };

    /// From bit `bit` of byte `byte` on.
    fn new(byte: usize, bit: usize, len: usize) -> BitRange {
        BitRange { at: 8 * byte + bit, len }
    }
}

fn one(byte: usize, bit: usize, len: usize) -> Bits {
    [BitRange::new(byte, bit, len), BitRange::NONE, BitRange::NONE]
}

fn two(low: BitRange, high: BitRange) -> Bits {
    [low, high, BitRange::NONE]
}

/// The position of a number's bits in the blocks of a file: see `format.rs`.
fn in_row(format: Format, field: Field) -> Bits {
    match (format, field) {
        (F16 | BF16, Code(k)) => one(2 * k, 0, 16),
        (Q4_0, Code(k)) => one(18 * (k / 32) + 2 + k % 16, 4 * (k / 16 % 2), 4),
        (Q4_0, D(j)) => one(18 * j, 0, 16),
        (Q8_0, Code(k)) => one(34 * (k / 32) + 2 + k % 32, 0, 8),
        (Q8_0, D(j)) => one(34 * j, 0, 16),
        (Q4_K, Code(k)) => one(16 + 32 * (k / 64) + k % 32, 4 * (k / 32 % 2), 4),
        (Q5_K, Code(k)) => {
            let low = BitRange::new(48 + 32 * (k / 64) + k % 32, 4 * (k / 32 % 2), 4);
            two(low, BitRange::new(16 + k % 32, k / 32, 1))
        }
        (Q4_K | Q5_K, Scale(j @ ..4)) => one(4 + j, 0, 6),
        (Q4_K | Q5_K, Scale(j)) => two(BitRange::new(8 + j, 0, 4), BitRange::new(j, 6, 2)),
        (Q4_K | Q5_K, Min(j @ ..4)) => one(8 + j, 0, 6),
        (Q4_K | Q5_K, Min(j)) => two(BitRange::new(8 + j, 4, 4), BitRange::new(4 + j, 6, 2)),
        (Q4_K | Q5_K, D(_)) => one(0, 0, 16),
        (Q4_K | Q5_K, Dmin) => one(2, 0, 16),
        (Q6_K, Code(k)) => {
            let (half, quarter, l) = (k / 128, k / 32 % 4, k % 32);
            let low = BitRange::new(64 * half + 32 * (quarter % 2) + l, 4 * (quarter / 2), 4);
            two(low, BitRange::new(128 + 32 * half + l, 2 * quarter, 2))
        }
        (Q6_K, Scale(j)) => one(192 + j, 0, 8),
        (Q6_K, D(_)) => one(208, 0, 16),
        _ => unreachable!("{} has no {field:?}", format.name()),
    }
}

/// The position of a number of row `r` in a tile.
fn in_tile(format: Format, r: usize, field: Field) -> Bits {
    let (g, second) = (r % 8, r / 8);
    match (format, field) {
        (F16 | BF16, Code(k)) => {
            let x = 8 * (k / 32) + 4 * (k / 4 % 2) + 2 * (k / 2 % 2) + second;
            one(word(x, lane(g, k / 8)) + 2 * (k % 2), 0, 16)
        }
        (Q8_0, Code(k)) => {
            let x = 16 * (k / 128) + 4 * (k / 8 % 4) + 2 * (k / 4 % 2) + second;
            one(word(x, lane(g, k / 32)) + k % 4, 0, 8)
        }
        (Q8_0, D(j)) => one(4096 + 8 * lane(g, j) + 4 * (j / 4) + 2 * second, 0, 16),
        (Q4_0 | Q4_K, Code(k)) => one(nibble(g, k), 4 * second, 4),
        (Q4_0, D(j)) => one(2048 + 8 * lane(g, j) + 4 * (j / 4) + 2 * second, 0, 16),
        (Q4_K, Scale(j)) => six_bits(2048, g, j, 2 * second),
        (Q4_K, Min(j)) => six_bits(2048, g, j, 2 * second + 1),
        (Q4_K, D(_)) => one(2240 + 8 * g + 4 * second, 0, 16),
        (Q4_K, Dmin) => one(2240 + 8 * g + 4 * second + 2, 0, 16),
        (Q5_K, Code(k)) => two(BitRange::new(nibble(g, k), 4 * second, 4), fifth(g, second, k)),
        (Q5_K, Scale(j)) => six_bits(2560, g, j, 2 * second),
        (Q5_K, Min(j)) => six_bits(2560, g, j, 2 * second + 1),
        (Q5_K, D(_)) => one(2752 + 8 * g + 4 * second, 0, 16),
        (Q5_K, Dmin) => one(2752 + 8 * g + 4 * second + 2, 0, 16),
        (Q6_K, Code(k)) => q6_k_code(g, second, k),
        (Q6_K, Scale(j)) => one(3072 + 8 * lane(g, j) + 2 * (j / 4) + second, 0, 8),
        (Q6_K, D(_)) => one(3328 + 4 * g + 2 * second, 0, 16),
        _ => unreachable!("{} has no {field:?}", format.name()),
    }
}

/// The lane of row `g` that holds `group`, among the row's four lanes.
fn lane(g: usize, group: usize) -> usize {
    4 * g + group % 4
}

/// The first byte of a lane's word `x`.
fn word(x: usize, lane: usize) -> usize {
    512 * (x / 4) + 16 * lane + 4 * (x % 4)
}

/// The byte that holds the low four bits of column `k`: in its low nibble for row `g`, in its high one for row
/// `g + 8`. A lane has groups `t` and `4 + t` of 32 columns, eight words each.
fn nibble(g: usize, k: usize) -> usize {
    word(8 * (k / 128) + k / 4 % 8, lane(g, k / 32)) + k % 4
}

/// The fifth bit of column `k`: four more words, of which byte `e` of word `c` has those of byte `e` of the four words
/// of nibbles at `512 c`, two bits for each.
fn fifth(g: usize, second: usize, k: usize) -> BitRange {
    let (c, j) = (2 * (k / 128) + k / 16 % 2, k / 4 % 4);
    BitRange::new(2048 + 16 * lane(g, k / 32) + 4 * c + k % 4, 2 * j + second, 1)
}

/// Byte `v` of a lane's word at `at` has the low four bits of group `t` and those of group `4 + t`. Above these
/// words, a word for each two lanes has in byte `v` the upper two bits: group `t` and `4 + t` of the even lane, then
/// of the odd one.
fn six_bits(at: usize, g: usize, group: usize, v: usize) -> Bits {
    let (lane, set) = (lane(g, group), group / 4);
    let high = BitRange::new(at + 128 + 4 * (lane / 2) + v, 4 * (lane % 2) + 2 * set, 2);
    two(BitRange::new(at + 4 * lane + v, 4 * set, 4), high)
}

/// Three words hold eight columns of both rows: six bits in each of their bytes, and the fourth word's bits in the
/// two that remain.
fn q6_k_code(g: usize, second: usize, k: usize) -> Bits {
    let (first, lane, e) = (3 * (k / 64 * 2 + k / 8 % 2), lane(g, k / 16), k % 4);
    let at = |x: usize, bit, len| BitRange::new(word(first + x, lane) + e, bit, len);
    match (k / 4 % 2, second) {
        (0, 0) => [at(0, 0, 6), BitRange::NONE, BitRange::NONE],
        (0, _) => [at(1, 2, 6), BitRange::NONE, BitRange::NONE],
        (_, 0) => [at(2, 0, 6), BitRange::NONE, BitRange::NONE],
        _ => [at(1, 0, 2), at(2, 6, 2), at(0, 6, 2)],
    }
}

fn get(bytes: &[u8], bits: Bits) -> u16 {
    let places = bits.into_iter().flat_map(|range| range.at..range.at + range.len);
    places.enumerate().fold(0, |v, (i, at)| v | u16::from(bytes[at / 8] >> (at % 8) & 1) << i)
}

/// Sets bits that are zero.
fn put(bytes: &mut [u8], bits: Bits, v: u16) {
    let places = bits.into_iter().flat_map(|range| range.at..range.at + range.len);
    places.enumerate().for_each(|(i, at)| bytes[at / 8] |= ((v >> i & 1) as u8) << (at % 8));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats with a tile.
    fn tiled() -> impl Iterator<Item = (Format, Tile)> {
        Format::ALL.into_iter().filter_map(|format| Some((format, format.tile()?)))
    }

    #[test]
    fn sizes() {
        let sizes = [
            (Q4_0, 256, 2304),
            (Q5_K, 256, 2816),
            (F16, 128, 4096),
            (BF16, 128, 4096),
            (Q8_0, 256, 4352),
            (Q4_K, 256, 2304),
            (Q6_K, 256, 3360),
        ];
        for (format, columns, bytes) in sizes {
            assert_eq!(format.tile(), Some(Tile { columns, bytes }), "{}", format.name());
        }
        assert!([F32, Q4_1, Q5_0, Q5_1].into_iter().all(|format| format.tile().is_none()));
    }

    #[test]
    fn each_bit_of_a_tile_and_of_its_rows_belongs_to_one_number() {
        fn claim(taken: &mut [bool], bits: Bits, what: &dyn std::fmt::Debug) {
            for at in bits.into_iter().flat_map(|range| range.at..range.at + range.len) {
                assert!(!std::mem::replace(&mut taken[at], true), "bit {at} of {what:?} is taken");
            }
        }
        for (format, size) in tiled() {
            let mut tile = vec![false; 8 * size.bytes as usize];
            for r in 0..ROWS as usize {
                let mut row = vec![false; tile.len() / ROWS as usize];
                for field in fields(format) {
                    claim(&mut tile, in_tile(format, r, field), &(format, r, field));
                    claim(&mut row, in_row(format, field), &(format, field));
                }
                assert!(row.iter().all(|&taken| taken), "a bit of a {} row is in no number", format.name());
            }
            assert!(tile.iter().all(|&taken| taken), "a bit of a {} tile is in no number", format.name());
        }
    }

    /// The layout as the kernels assume it: an index of a word or a byte, its value, the row, the column.
    #[test]
    fn tiles_are_laid_out_as_described() {
        // Byte to set, its value, then row and column whose code must change, and to what.
        type CodeCase = (Format, usize, u8, usize, usize, u16);
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
            for (row, column) in (0..16).flat_map(|row| (0..128).map(move |k| (row, k))).chain([(r, k)]) {
                let wanted = if (row, column) == (r, k) { code } else { 0 };
                let found = get(&tile, in_tile(format, row, Code(column)));
                assert_eq!(found, wanted, "{format:?} byte {at}, row {row}, column {column}");
            }
        }
    }

    #[test]
    fn the_fourth_part_of_q6_k_is_in_three_words() {
        // m 3 (set 1, i 1), lane 2: row 8, columns 16 (4 + 2) + 8 + 4 on; words 9, 10, 11
        let at = |x: usize| 512 * (x / 4) + 2 * 16 + 4 * (x % 4) + 1;
        for (word, bits, code) in [(9, 0xc0, 0b11_00_00), (10, 0x03, 0b00_00_11), (11, 0xc0, 0b00_11_00)] {
            let mut tile = vec![0; 3360];
            tile[at(word)] = bits;
            assert_eq!(get(&tile, in_tile(Q6_K, 8, Code(16 * 6 + 8 + 4 + 1))), code, "word {word}");
        }
    }

    #[test]
    fn scales_are_laid_out_as_described() {
        // Format, bytes to set, row, number, value.
        type ScaleCase = (Format, &'static [(usize, u8)], usize, Field, u16);
        #[rustfmt::skip] // one case per line
        let places: [ScaleCase; 17] = [
            (Q8_0, &[(4096 + 6 * 8, 0x34), (4096 + 6 * 8 + 1, 0x12)], 1, D(2), 0x1234),
            (Q8_0, &[(4096 + 31 * 8 + 6, 0x34), (4096 + 31 * 8 + 7, 0x12)], 15, D(7), 0x1234),
            (Q4_K, &[(2048 + 5 * 4, 0x0a), (2176 + 2 * 4, 0x30)], 1, Scale(1), 0x3a),
            (Q4_K, &[(2048 + 4 * 4 + 1, 0xa0), (2176 + 2 * 4 + 1, 0x08)], 1, Min(4), 0x2a),
            (Q4_K, &[(2048 + 31 * 4 + 2, 0x50), (2176 + 15 * 4 + 2, 0x40)], 15, Scale(7), 0x15),
            (Q4_K, &[(2048 + 4 * 2 + 3, 0x07), (2176 + 4 + 3, 0x02)], 8, Min(2), 0x27),
            (Q4_K, &[(2240 + 8, 0x01), (2240 + 9, 0x02)], 1, D(0), 0x0201),
            (Q4_K, &[(2240 + 3 * 8 + 6, 0x01)], 11, Dmin, 1),
            (Q4_0, &[(2048 + 6 * 8 + 4, 0x34), (2048 + 6 * 8 + 5, 0x12)], 1, D(6), 0x1234),
            (Q5_K, &[(2560 + 5 * 4, 0x0a), (2688 + 2 * 4, 0x30)], 1, Scale(1), 0x3a),
            (Q5_K, &[(2560 + 4 * 4 + 1, 0xa0), (2688 + 2 * 4 + 1, 0x08)], 1, Min(4), 0x2a),
            (Q5_K, &[(2752 + 8, 0x01), (2752 + 9, 0x02)], 1, D(0), 0x0201),
            (Q5_K, &[(2752 + 3 * 8 + 6, 0x01)], 11, Dmin, 1),
            (Q6_K, &[(3072, 0x80)], 0, Scale(0), 0x80),
            (Q6_K, &[(3072 + 9 * 8 + 7, 0x7f)], 10, Scale(13), 0x7f),
            (Q6_K, &[(3328 + 7 * 4, 0x11)], 7, D(0), 0x11),
            (Q6_K, &[(3328 + 2 * 4 + 3, 0x11)], 10, D(0), 0x1100),
        ];
        for (format, bytes, r, field, value) in places {
            let mut tile = vec![0; format.tile().unwrap().bytes as usize];
            bytes.iter().for_each(|&(at, v)| tile[at] = v);
            assert_eq!(get(&tile, in_tile(format, r, field)), value, "{format:?} {field:?} of row {r}");
        }
    }

    /// Row orders, the matrix's rows in a group, and the first group's rows in the order of the tiles. Rows from 100
    /// on belong to the second matrix.
    #[test]
    fn rows_of_a_block() {
        let plain: Vec<u32> = (0..16).collect();
        let half_split: Vec<u32> = [0, 16, 8, 24].into_iter().flat_map(|first| first..first + 8).collect();
        let interleaved: Vec<u32> =
            [0, 1, 16, 17].into_iter().flat_map(|first| (0..8).map(move |i| first + 2 * i)).collect();
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
        let kinds = [RowOrder::PLAIN, RowOrder::half_split(64), RowOrder::interleaved(32), RowOrder::GATE_UP];
        for ((format, tile), rows) in tiled().flat_map(|tiled| kinds.map(|rows| (tiled, rows))) {
            let (n, count) = (2 * tile.columns as usize, 2 * rows.stride);
            let random = &mut Random(u64::from(rows.per));
            let mut matrix = || format.random(count as usize * n / format.block_len() as usize, 1.0, random);
            let lo = matrix();
            let hi = if rows == RowOrder::GATE_UP { matrix() } else { lo.clone() };
            let found = dequantize(format, &pack(format, rows, &lo, &hi, n), n);
            let (lo, hi) = (format.dequantize(&lo), format.dequantize(&hi));
            assert_eq!(found.len(), (16 * rows.blocks(count)) as usize * n);
            for (i, found) in found.chunks_exact(n).enumerate() {
                let (row_block, r) = (i as u32 / 16, i as u32 % 16);
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
            assert!(dequantize(format, &tiles, tile.columns as usize).iter().all(|w| w.abs() < 1.0));
        }
    }
}
