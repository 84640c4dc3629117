//! The weights of tiles as binary16 A fragments of matrix instructions, for products with many tokens.
//!
//! A matrix instruction of 16-bit elements takes 16 columns. Which columns of the matrix these are is free, as long as
//! the activations come in the same order. So each lane takes its weights as they lie in the tile: see
//! [`ColumnOrder`], which whoever writes the activations follows.
//!
//! A weight is `scale (code - bias) + offset`. Codes become binary16 without a conversion: under the exponent of 1024
//! a code is the number `1024 + code`. Subtracting `1024 + bias` is exact, and one multiplication and addition, rounded
//! once, applies the scale and the offset, which are rounded to binary16 before. They are multiplied by a power of two
//! for each row, which the epilogue divides by, so that small weights do not become subnormal.

use super::product::{TileLane, TilePtr};
use super::unpack::Code;
use super::{Format, TileFormat};
use ptx_gen::*;
use std::array::from_fn;

/// Columns of a set: what a tile gives at once, eight steps of 16 columns.
pub const SET: u32 = 128;

/// In which order the columns of a matrix are multiplied.
///
/// The columns of a chunk of `4 * group` belong to the four lanes of a row, `group` neighbours to each. Step `i` takes
/// columns `4 i` to `4 i + 3` of each lane: slots `2 t`, `2 t + 1`, `2 t + 8` and `2 t + 9` of its 16 are those of lane
/// `t`, as an A fragment has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnOrder {
    /// Neighbouring columns of a lane: 8, 16 or 32.
    pub group: u32,
}

impl ColumnOrder {
    /// The order of a format's tiles; `None` for formats without tiles.
    pub fn of(format: Format) -> Option<ColumnOrder> {
        format.of().tiles().map(|tiles| ColumnOrder { group: tiles.group() })
    }

    /// The slot of column `k`.
    pub const fn slot(self, k: u32) -> u32 {
        let chunk = 4 * self.group;
        let (t, i, e) = (k % chunk / self.group, k % self.group / 4, k % 4);
        k / chunk * chunk + 16 * i + 2 * t + e % 2 + e / 2 * 8
    }

    /// The same in a kernel, for four neighbouring columns from `k` on, a multiple of 4: the slots of the first two,
    /// which are neighbours. The other two are 8 slots further.
    pub(crate) fn slot_of_four<'k>(self, k: U32<'k>) -> U32<'k> {
        let (group, chunk) = (self.group.ilog2(), self.group.ilog2() + 2);
        let t = (k >> group) & 3;
        let i = (k >> 2) & (self.group / 4 - 1);
        ((k >> chunk) << chunk) + (i << 4) + (t << 1)
    }
}

/// The codes of four neighbouring columns of a lane, of rows `g` and `g + 8`.
#[derive(Clone, Copy)]
pub(crate) enum Codes<'k> {
    /// A byte a column: row `g` in its low nibble, row `g + 8` in its high one.
    Nibbles(U32<'k>),
    /// A byte a column: a word of row `g` and one of row `g + 8`.
    Bytes([U32<'k>; 2]),
    /// Binary16 numbers: the fragment itself.
    Binary16([U32<'k>; 4]),
    /// bfloat16 numbers in the order of the fragment.
    Bfloat16([U32<'k>; 4]),
}

/// What codes stand for, besides scales.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct CodeValues {
    /// Whether bytes are signed.
    pub(crate) signed: bool,
    /// What is subtracted from a code.
    pub(crate) bias: u32,
    /// The largest magnitude of a code less the bias.
    pub(crate) largest: u32,
}

impl CodeValues {
    /// Signed bytes of at most this magnitude.
    pub(crate) const fn signed(largest: u32) -> CodeValues {
        CodeValues { signed: true, bias: 0, largest }
    }
}

impl std::convert::From<Code> for CodeValues {
    fn from(Code { bits, bias, .. }: Code) -> Self {
        CodeValues { signed: false, bias, largest: bias.max((1 << bits) - 1 - bias) }
    }
}

/// The powers of two that rows `g` and `g + 8` are multiplied by.
pub(crate) type Units<'k> = [F32<'k>; 2];

/// Numbers of both rows, times their units.
pub(super) fn times<'k>(numbers: [F32<'k>; 2], unit: Units<'k>) -> [F32<'k>; 2] {
    [numbers[0] * unit[0], numbers[1] * unit[1]]
}

/// `scale * number + offset`.
#[derive(Clone, Copy)]
pub(crate) struct Affine<'k> {
    pub(crate) scale: F32<'k>,
    pub(crate) offset: Option<F32<'k>>,
}

impl<'k> Affine<'k> {
    /// `scale * code - min`, of numbers that are codes less a bias.
    ///
    /// Scale and offset are rounded to binary16, and a group's weights share the error. With codes of 0 to 15 the minimum
    /// is about 8 scales, and both errors weigh twice as much as with codes of -8 to 7, whose offset is nearly 0.
    pub(crate) fn less(scale: F32<'k>, min: F32<'k>, values: CodeValues) -> Self {
        Affine { scale, offset: Some(scale.fma(values.bias as f32, -min)) }
    }
}

/// The scales of a tile, of rows `g` and `g + 8`, as two equal halves of a word.
struct HalfScales<'k> {
    scale: Val<'k, f16x2>,
    offset: Option<Val<'k, f16x2>>,
}

/// A lane's tile, to be taken apart.
pub(crate) struct Dequantizer<'k> {
    lane: TileLane<'k>,
    tiles: &'static dyn TileFormat,
    unit: Units<'k>,
}

/// The scales of the groups of a tile.
pub(crate) struct TileScales<'k>(Vec<[HalfScales<'k>; 2]>);

impl<'k> Dequantizer<'k> {
    pub(crate) fn new(k: Builder<'k>, format: Format, unit: Units<'k>) -> Self {
        Dequantizer { lane: TileLane::new(k, format), tiles: format.tiles(), unit }
    }

    /// Sets of a tile.
    pub(crate) fn sets(&self) -> u32 {
        self.tiles.columns() / SET
    }

    /// Loads the scales of a tile.
    pub(crate) fn scales(&self, tile: TilePtr<'k>) -> TileScales<'k> {
        let row = |affine: Affine<'k>| HalfScales {
            scale: equal_halves(affine.scale),
            offset: affine.offset.map(equal_halves),
        };
        let groups = self.tiles.scales(&self.lane, tile, self.unit).into_iter();
        TileScales(groups.map(|rows| rows.map(row)).collect())
    }

    /// Loads the codes of the eight steps of set `set` of a tile.
    pub(crate) fn codes(&self, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        self.tiles.codes(&self.lane, tile, set)
    }

    /// The A fragment of step `step` of a tile.
    pub(crate) fn fragment(&self, codes: &Codes<'k>, scales: &TileScales<'k>, step: u32) -> A<'k> {
        match codes {
            Codes::Binary16(words) => self.of_binary16(words),
            Codes::Bfloat16(words) => self.of_bfloat16(words),
            codes => self.of_codes(codes, &scales.0[(step / (self.tiles.group() / 4)) as usize]),
        }
    }

    fn of_binary16(&self, words: &[U32<'k>; 4]) -> A<'k> {
        let unit = self.unit.map(|unit| equal_halves(unit));
        let zero = self.constant(0.0);
        A(from_fn(|r| words[r].bits::<f16x2>().fma(unit[r % 2], zero).bits::<u32>()))
    }

    /// Rounded to binary16, after the multiplication by the powers of two.
    fn of_bfloat16(&self, words: &[U32<'k>; 4]) -> A<'k> {
        let both = |(i, &word): (usize, &U32<'k>)| {
            let unit = self.unit[i % 2];
            let [low, high]: [F32; 2] = [(word << 16).bits(), (word & 0xffff_0000).bits()];
            (low * unit).cvt::<f16>().pack((high * unit).cvt::<f16>()).bits::<u32>()
        };
        let words: Vec<_> = words.iter().enumerate().map(both).collect();
        A(from_fn(|i| words[i]))
    }

    /// Register `r` of the fragment has row `g + 8 (r mod 2)`, columns `2 (r / 2)` and the next.
    fn of_codes(&self, codes: &Codes<'k>, scales: &[HalfScales<'k>; 2]) -> A<'k> {
        let values = self.tiles.values();
        A(from_fn(|r| {
            let number = match codes {
                Codes::Nibbles(word) => self.nibble(*word, r, values),
                Codes::Bytes(rows) => self.byte(rows[r % 2], r / 2, values),
                _ => unreachable!("16-bit numbers have no codes"),
            };
            let HalfScales { scale, offset } = &scales[r % 2];
            let weight = match offset {
                Some(offset) => number.fma(*scale, *offset),
                None => number.fma(*scale, self.constant(0.0)),
            };
            weight.bits::<u32>()
        }))
    }

    /// Two equal halves.
    fn constant(&self, value: f32) -> Val<'k, f16x2> {
        let half = u32::from(f16::from_f32(value).0);
        self.lane.k.val(half << 16 | half).bits()
    }

    fn nibble(&self, word: U32<'k>, r: usize, values: CodeValues) -> Val<'k, f16x2> {
        let pair = word.prmt(0x6464_6464, if r < 2 { 0x4140 } else { 0x4342 });
        let bias = values.bias as f32;
        match r % 2 {
            0 => (pair & 0xff0f_ff0f).bits::<f16x2>() + self.constant(-1024.0 - bias),
            // A high nibble counts 16.
            _ => (pair & 0xfff0_fff0).bits::<f16x2>().fma(self.constant(0.0625), self.constant(-64.0 - bias)),
        }
    }

    fn byte(&self, word: U32<'k>, pair: usize, values: CodeValues) -> Val<'k, f16x2> {
        let (word, bias) = if values.signed { (word ^ 0x8080_8080, 128) } else { (word, values.bias) };
        let number = word.prmt(0x6464_6464, if pair == 0 { 0x4140 } else { 0x4342 }).bits::<f16x2>();
        number + self.constant(-1024.0 - bias as f32)
    }
}

/// Rounded to binary16, in both halves.
fn equal_halves(value: F32<'_>) -> Val<'_, f16x2> {
    let half = value.cvt::<f16>();
    half.pack(half)
}
