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
//!
//! Rounded scales and offsets are an error that a group's weights share. Formats with minima keep it small by their bias:
//! `Affine::less`. Where a block has a scale for its groups' scales, which are integers, the first multiplication is by
//! the integer instead, which no bit is lost for, and the second by the block's scale: `Affine::Block`.

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
        format.of().tiles().map(|tiles| ColumnOrder {
            group: tiles.group(),
        })
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
    /// The bit of a byte that counts one.
    pub(crate) shift: u32,
}

impl CodeValues {
    /// Signed bytes of at most this magnitude.
    pub(crate) const fn signed(largest: u32) -> CodeValues {
        CodeValues {
            signed: true,
            bias: 0,
            largest,
            shift: 0,
        }
    }

    /// Codes from this bit of a byte on.
    pub(crate) const fn above_bit(self, shift: u32) -> CodeValues {
        CodeValues { shift, ..self }
    }

    /// What the fraction of a binary16 number adds a code to, without conversion.
    fn base(self) -> f32 {
        (1024 >> self.shift) as f32
    }

    /// What is subtracted then. Those of signed bytes have their highest bit inverted.
    fn zero(self) -> f32 {
        self.base() + if self.signed { 128.0 } else { self.bias as f32 }
    }
}

impl std::convert::From<Code> for CodeValues {
    fn from(Code { bits, bias, .. }: Code) -> Self {
        CodeValues {
            signed: false,
            bias,
            largest: bias.max((1 << bits) - 1 - bias),
            shift: 0,
        }
    }
}

/// The powers of two that rows `g` and `g + 8` are multiplied by.
pub(crate) type Units<'k> = [F32<'k>; 2];

/// Numbers of both rows, times their units.
pub(super) fn times<'k>(numbers: [F32<'k>; 2], unit: Units<'k>) -> [F32<'k>; 2] {
    [numbers[0] * unit[0], numbers[1] * unit[1]]
}

/// What a group makes of its numbers, which are codes less a bias.
#[derive(Clone, Copy)]
pub(crate) enum Affine<'k> {
    /// `scale * number`
    Scale(F32<'k>),
    /// `scale * number + offset`
    Offset(F32<'k>, F32<'k>),
    /// `block * (scale * number)`, of bytes. `scale`, and its product with [`CodeValues::zero`], are exact in binary16: what
    /// is rounded is the product with a number, if it has more than eleven bits, and the weight.
    Block { block: F32<'k>, scale: F32<'k> },
}

impl<'k> Affine<'k> {
    /// `scale * code - min`.
    ///
    /// Scale and offset are rounded to binary16, and a group's weights share the error. With codes of 0 to 15 the minimum
    /// is about 8 scales, and both errors weigh twice as much as with codes of -8 to 7, whose offset is nearly 0.
    pub(crate) fn less(scale: F32<'k>, min: F32<'k>, values: CodeValues) -> Self {
        Affine::Offset(scale, scale.fma(values.bias as f32, -min))
    }

    /// What is rounded to binary16 besides numbers of few bits, and must not be too large for it.
    pub(crate) fn factor(&self) -> F32<'k> {
        match *self {
            Affine::Scale(scale) | Affine::Offset(scale, _) => scale,
            Affine::Block { block, .. } => block,
        }
    }

    /// The weights in `f32`.
    pub(crate) fn weights(&self, numbers: impl IntoIterator<Item = F32<'k>>) -> Vec<F32<'k>> {
        let (scale, offset) = match *self {
            Affine::Scale(scale) => (scale, None),
            Affine::Offset(scale, offset) => (scale, Some(offset)),
            Affine::Block { block, scale } => (block * scale, None),
        };
        let weight =
            |number: F32<'k>| offset.map_or(number * scale, |offset| number * scale + offset);
        numbers.into_iter().map(weight).collect()
    }
}

/// An [`Affine`] of a row, each number as two equal halves of a word.
enum HalfScales<'k> {
    Affine(Val<'k, f16x2>, Option<Val<'k, f16x2>>),
    /// `zero` is what the scale makes of [`CodeValues::zero`], negated.
    Block {
        block: Val<'k, f16x2>,
        scale: Val<'k, f16x2>,
        zero: Val<'k, f16x2>,
    },
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
        Dequantizer {
            lane: TileLane::new(k, format),
            tiles: format.tiles(),
            unit,
        }
    }

    /// Sets of a tile.
    pub(crate) fn sets(&self) -> u32 {
        self.tiles.columns() / SET
    }

    /// Loads the scales of a tile.
    pub(crate) fn scales(&self, tile: TilePtr<'k>) -> TileScales<'k> {
        let groups = self.tiles.scales(&self.lane, tile, self.unit).into_iter();
        TileScales(
            groups
                .map(|rows| rows.map(|row| self.halves(row)))
                .collect(),
        )
    }

    fn halves(&self, affine: Affine<'k>) -> HalfScales<'k> {
        match affine {
            Affine::Scale(scale) => HalfScales::Affine(equal_halves(scale), None),
            Affine::Offset(scale, offset) => {
                HalfScales::Affine(equal_halves(scale), Some(equal_halves(offset)))
            }
            Affine::Block { block, scale } => {
                let scale = equal_halves(scale);
                let zero = scale * self.constant(-self.tiles.values().zero());
                HalfScales::Block {
                    block: equal_halves(block),
                    scale,
                    zero,
                }
            }
        }
    }

    /// Loads the codes of the eight steps of set `set` of a tile.
    pub(crate) fn codes(&self, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        self.tiles.codes(&self.lane, tile, set)
    }

    /// The A fragment of step `step` of a tile.
    pub(crate) fn fragment(
        &self,
        codes: &Codes<'k>,
        scales: &TileScales<'k>,
        step: u32,
    ) -> LeftFragment<'k> {
        match codes {
            Codes::Binary16(words) => self.of_binary16(words),
            Codes::Bfloat16(words) => self.of_bfloat16(words),
            codes => self.of_codes(codes, &scales.0[(step / (self.tiles.group() / 4)) as usize]),
        }
    }

    fn of_binary16(&self, words: &[U32<'k>; 4]) -> LeftFragment<'k> {
        let unit = self.unit.map(|unit| equal_halves(unit));
        let zero = self.constant(0.0);
        LeftFragment(from_fn(|r| {
            words[r]
                .bits::<f16x2>()
                .fma(unit[r % 2], zero)
                .bits::<u32>()
        }))
    }

    /// Rounded to binary16, after the multiplication by the powers of two.
    fn of_bfloat16(&self, words: &[U32<'k>; 4]) -> LeftFragment<'k> {
        let both = |(i, &word): (usize, &U32<'k>)| {
            let unit = self.unit[i % 2];
            let [low, high]: [F32; 2] = [(word << 16).bits(), (word & 0xffff_0000).bits()];
            (low * unit)
                .cvt::<f16>()
                .pack((high * unit).cvt::<f16>())
                .bits::<u32>()
        };
        let words: Vec<_> = words.iter().enumerate().map(both).collect();
        LeftFragment(from_fn(|i| words[i]))
    }

    /// Register `r` of the fragment has row `g + 8 (r mod 2)`, columns `2 (r / 2)` and the next.
    fn of_codes(&self, codes: &Codes<'k>, scales: &[HalfScales<'k>; 2]) -> LeftFragment<'k> {
        let values = self.tiles.values();
        LeftFragment(from_fn(|r| {
            let weight = match (codes, &scales[r % 2]) {
                (Codes::Bytes(rows), HalfScales::Block { block, scale, zero }) => {
                    let scaled = self
                        .above_base(rows[r % 2], r / 2, values)
                        .fma(*scale, *zero);
                    scaled.fma(*block, self.constant(0.0))
                }
                (Codes::Bytes(rows), HalfScales::Affine(scale, offset)) => {
                    let number =
                        self.above_base(rows[r % 2], r / 2, values) + self.constant(-values.zero());
                    number.fma(*scale, offset.unwrap_or_else(|| self.constant(0.0)))
                }
                (Codes::Nibbles(word), HalfScales::Affine(scale, offset)) => {
                    let number = self.nibble(*word, r, values);
                    number.fma(*scale, offset.unwrap_or_else(|| self.constant(0.0)))
                }
                _ => unreachable!("16-bit numbers have no codes, and blocks have bytes"),
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
            _ => (pair & 0xfff0_fff0)
                .bits::<f16x2>()
                .fma(self.constant(0.0625), self.constant(-64.0 - bias)),
        }
    }

    /// Two bytes, each as its code above [`CodeValues::base`].
    fn above_base(&self, word: U32<'k>, pair: usize, values: CodeValues) -> Val<'k, f16x2> {
        let word = if values.signed {
            word ^ 0x8080_8080
        } else {
            word
        };
        let exponents = 0x6464_6464 - 0x0404_0404 * values.shift;
        word.prmt(exponents, if pair == 0 { 0x4140 } else { 0x4342 })
            .bits()
    }
}

/// Rounded to binary16, in both halves.
fn equal_halves(value: F32<'_>) -> Val<'_, f16x2> {
    let half = value.cvt::<f16>();
    half.pack(half)
}
