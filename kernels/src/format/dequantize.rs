//! Unpacks the weights of tiles into `f16` A fragments of matrix instructions, for matmuls of many
//! tokens.
//!
//! A matrix instruction with 16-bit elements takes 16 columns. Any 16 columns of the matrix will
//! do, as long as the activations have the same order. Each lane therefore takes its weights in the
//! order of the tile. Kernels that write activations must follow that order, which is
//! [`ColumnOrder`].
//!
//! A weight is `scale (code - bias) + offset`. Codes become `f16` without a conversion instruction:
//! under the exponent of 1024, a code is the number `1024 + code`. The subtraction of `1024 + bias`
//! is exact. One fused multiply-add, rounded once, applies the scale and the offset, which are
//! rounded to `f16` before. Scale and offset are multiplied by a power of two for each row, so that
//! small weights do not become subnormal. The epilogue divides by it.
//!
//! The weights of a group share the rounding error of their scale and offset. Formats with minima
//! keep it small with their bias (`Affine::less`). Some formats have a block scale for the integer
//! scales of groups. There, the first multiplication is by the integer, which is exact. The second
//! one is by the block scale (`Affine::Block`).

use super::Format;
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::multiply::{TileLane, TilePtr};
use super::traits::TileFormat;
use ptx_gen::*;
use std::array::from_fn;

/// The number of columns of a set: the part of a tile that is unpacked at once, eight steps of 16
/// columns.
pub const SET: u32 = 128;

/// The order in which the columns of a matrix are multiplied.
///
/// A chunk of `4 * group` columns is divided among the four lanes of a row, `group` adjacent
/// columns per lane. Step `i` takes the columns `4 i` to `4 i + 3` of each lane. Lane `t` has the
/// slots `2 t`, `2 t + 1`, `2 t + 8` and `2 t + 9` of the step's 16, as in an A fragment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnOrder {
    /// The number of adjacent columns of a lane: 8, 16 or 32.
    pub group: u32,
}

impl ColumnOrder {
    /// Returns the order of a format's tiles, or `None` for a format without tiles.
    pub fn of(format: Format) -> Option<ColumnOrder> {
        format.of().tiles().map(|tiles| ColumnOrder {
            group: tiles.group(),
        })
    }

    /// Returns the slot of column `k`.
    pub const fn slot(self, k: u32) -> u32 {
        let chunk = 4 * self.group;
        let t = k % chunk / self.group;
        let i = k % self.group / 4;
        let e = k % 4;
        k / chunk * chunk + 16 * i + 2 * t + e % 2 + e / 2 * 8
    }

    /// Returns the slot of column `k`, a multiple of 4, in a kernel. Column `k + 1` is at the next
    /// slot. The columns `k + 2` and `k + 3` are 8 slots further.
    pub(crate) fn slot_of_four<'k>(self, k: U32<'k>) -> U32<'k> {
        let group = self.group.ilog2();
        let chunk = group + 2;
        let t = (k >> group) & 3;
        let i = (k >> 2) & (self.group / 4 - 1);
        ((k >> chunk) << chunk) + (i << 4) + (t << 1)
    }
}

/// An [`Affine`] of a row, with each value in both halves of a word.
enum HalfScales<'k> {
    Affine(Val<'k, f16x2>, Option<Val<'k, f16x2>>),
    /// A block scale. `zero` is the negated product of the scale and [`CodeValues::zero`].
    Block {
        block: Val<'k, f16x2>,
        scale: Val<'k, f16x2>,
        zero: Val<'k, f16x2>,
    },
}

/// The unpacking of a lane's tiles.
pub(crate) struct Dequantizer<'k> {
    lane: TileLane<'k>,
    tiles: &'static dyn TileFormat,
    unit: Units<'k>,
}

/// The scales of the groups of a tile.
pub(crate) struct TileScales<'k>(Vec<[HalfScales<'k>; 2]>);

impl<'k> Dequantizer<'k> {
    /// Creates the dequantizer of a lane, with the units of its rows.
    pub(crate) fn new(k: Builder<'k>, format: Format, unit: Units<'k>) -> Self {
        Dequantizer {
            lane: TileLane::new(k, format.section_name()),
            tiles: format.tiles(),
            unit,
        }
    }

    /// Returns the number of sets of a tile.
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

    /// Rounds an [`Affine`] to `f16`.
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

    /// Returns the A fragment of step `step` of a tile.
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

    /// Multiplies an `f16` fragment by the rows' units.
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

    /// Multiplies a `bf16` fragment by the rows' units, then rounds it to `f16`.
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

    /// Returns a fragment of codes. Register `r` has row `g + 8 (r mod 2)` and the columns `2 (r /
    /// 2)` and `2 (r / 2) + 1`.
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

    /// Returns a constant in both halves of a word.
    fn constant(&self, value: f32) -> Val<'k, f16x2> {
        let half = u32::from(f16::from_f32(value).0);
        self.lane.k.val(half << 16 | half).bits()
    }

    /// Returns two nibbles less the bias, for register `r`.
    fn nibble(&self, word: U32<'k>, r: usize, values: CodeValues) -> Val<'k, f16x2> {
        let pair = word.prmt(0x6464_6464, if r < 2 { 0x4140 } else { 0x4342 });
        let bias = values.bias as f32;
        match r % 2 {
            0 => (pair & 0xff0f_ff0f).bits::<f16x2>() + self.constant(-1024.0 - bias),
            // A high nibble counts 16, so the exponent's 1024 becomes 64 after the multiplication.
            _ => (pair & 0xfff0_fff0)
                .bits::<f16x2>()
                .fma(self.constant(0.0625), self.constant(-64.0 - bias)),
        }
    }

    /// Returns two bytes, each as its code above [`CodeValues::base`].
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

/// Returns a value, rounded to `f16`, in both halves of a word.
fn equal_halves(value: F32<'_>) -> Val<'_, f16x2> {
    let half = value.cvt::<f16>();
    half.pack(half)
}
