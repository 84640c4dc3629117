//! Blocks of 32 weights of 4 or 5 bits: a scale, optionally a minimum, optionally the fifth bits of
//! all weights in order, and 16 bytes. The low nibbles are the first 16 weights, and the high
//! nibbles are the others.
//!
//! A tile has the nibbles, the fifth bits, the scale of each group of 32, then the minimum of each
//! group.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::layout::halves_in_tile;
use super::fields::lookup::{Lookup, Table};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::unpack::{Code, SELECT, bytes, halfword, halves, join, split};
use super::fields::{fifth_bits, nibbles};
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, Set, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;

/// A format with such blocks.
pub(super) struct Legacy {
    /// The type number in a GGUF file.
    pub(super) ggml_type: u32,
    /// Whether a minimum follows the scale: `w = d * q + m`, else `w = d * q`.
    pub(super) min: bool,
    /// Whether there are fifth bits.
    pub(super) fifth: bool,
    /// The values that codes stand for.
    pub(super) values: Values,
}

/// The values that codes stand for.
pub(super) enum Values {
    /// The codes less a bias.
    Numbers(Code),
    /// Entries of a table.
    Entries(Lookup),
}

impl Legacy {
    /// Returns the byte of the fifth bits.
    fn fifth_bits(&self) -> usize {
        2 + 2 * usize::from(self.min)
    }

    /// Returns the first byte of nibbles.
    fn nibbles(&self) -> usize {
        self.fifth_bits() + 4 * usize::from(self.fifth)
    }

    /// Returns the offset of the scales in a tile.
    fn scales(&self) -> u32 {
        nibbles::BYTES + if self.fifth { fifth_bits::BYTES } else { 0 }
    }

    /// Returns the offset of the minima in a tile.
    fn minima(&self) -> u32 {
        self.scales() + 256
    }
}

impl BlockFormat for Legacy {
    fn block(&self) -> Block {
        Block {
            ggml_type: self.ggml_type,
            len: 32,
            bytes: self.nibbles() as u32 + 16,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        if self.min {
            vec![Field::D, Field::Dmin]
        } else {
            vec![Field::D]
        }
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Dmin => one(2, 0, 16),
            Field::Code(k) => {
                let low = BitRange::new(self.nibbles() + k % 16, 4 * (k / 16), 4);
                let high = BitRange::new(self.fifth_bits() + k / 8, k % 8, 1);
                two(low, if self.fifth { high } else { BitRange::NONE })
            }
            _ => one(0, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let code = number(Field::Code(k));
        let q = match &self.values {
            Values::Numbers(numbers) => code as f32 - numbers.bias as f32,
            Values::Entries(table) => table.value(code),
        };
        let scaled = f16_value(number(Field::D)) * q;
        if self.min {
            scaled + f16_value(number(Field::Dmin))
        } else {
            scaled
        }
    }

    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random) {
        let largest = match &self.values {
            Values::Numbers(numbers) if numbers.bias > 0 => numbers.bias as f32,
            Values::Numbers(numbers) => (1 << numbers.bits) as f32,
            Values::Entries(_) => 128.0,
        };
        put_f16(block, 0, v / largest);
        if self.min {
            put_f16(block, 2, size * random.unit() / 2.0);
        }
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 32,
            bytes: self.block().bytes,
            lanes: 4,
            float4s: &[0, 16],
        }
    }

    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        let values = match &self.values {
            Values::Numbers(code) => LoadedValues::Numbers(*code),
            Values::Entries(table) => LoadedValues::Entries(table.load(k)),
        };
        let min = self.min;
        let header = self.nibbles() as u32 / 2;
        Box::new(LegacyFragment {
            lane: thread & 3,
            min,
            header,
            values,
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// The values that codes stand for, in registers.
enum LoadedValues<'k> {
    Numbers(Code),
    Entries(Table<'k>),
}

/// A fragment of four bytes of 16. Only halfwords are aligned.
struct LegacyFragment<'k> {
    lane: U32<'k>,
    min: bool,
    /// The number of halfwords before the nibbles.
    header: u32,
    values: LoadedValues<'k>,
}

impl<'k> LegacyFragment<'k> {
    /// Returns the lane's four of 16 fifth bits, each at bit 4 of a byte.
    fn fifth(&self, bits: U32<'k>) -> U32<'k> {
        // The multiplication moves bit i of the four to bit 8 i. The mask drops the other copies.
        let four = (bits >> (self.lane << 2)) & 15;
        ((four * 0x0020_4081) & 0x0101_0101) << 4
    }

    /// Returns the codes of one half, a byte each: the low nibbles of `nibbles`, with their fifth
    /// bits.
    fn half(&self, nibbles: U32<'k>, fifth: Option<&U32<'k>>) -> Vec<F32<'k>> {
        let codes = match fifth {
            Some(&bits) => nibbles.lop3(self.fifth(bits), 0x0f0f_0f0f, SELECT),
            None => nibbles,
        };
        match &self.values {
            LoadedValues::Numbers(code) => bytes(*code, split(codes), 0).into(),
            LoadedValues::Entries(table) => table.numbers(codes).into(),
        }
    }
}

impl<'k> Fragment<'k> for LegacyFragment<'k> {
    fn first(&self) -> U32<'k> {
        self.lane << 2
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 4)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = self.header;
        let words = (0..header).map(|i| halfword(addresses[0], bytes + 2 * i));
        let codes = (0..2).map(|i| halfword(addresses[1], bytes + 2 * (header + i)));
        words.chain(codes).collect()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let (header, codes) = words.split_at(words.len() - 2);
        let (scales, fifth) = header.split_at(1 + usize::from(self.min));
        let nibbles = join(codes[0], codes[1]);
        let scale = halves(scales[0])[0];
        let offset = scales.get(1).map(|&m| halves(m)[0]);
        let group = |half: usize| {
            let q = self.half(nibbles >> (4 * half as u32), fifth.get(half));
            Group {
                q,
                scale: Some(scale),
                offset,
            }
        };
        vec![group(0), group(1)]
    }
}

impl TileFormat for Legacy {
    fn in_tile(&self, r: usize, block: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let column = 32 * block + k;
                let fifth = if self.fifth {
                    fifth_bits::in_tile(r, column)
                } else {
                    BitRange::NONE
                };
                two(nibbles::in_tile(r, column), fifth)
            }
            Field::Dmin => halves_in_tile(self.minima(), r, block),
            _ => halves_in_tile(self.scales(), r, block),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();

        // The number of words after the scale and the minimum.
        let words = 4 + u32::from(self.fifth);
        let fifth = [0, 1].map(|s| {
            let (words, header) = lane.blocks(rows, self.block().bytes, words, s);

            // The nibbles are the last four words, after the fifth bits if there are any.
            let nibbles = words
                .each_ref()
                .map(|w| [4, 3, 2, 1].map(|back| w[w.len() - back]));
            lane.halves_of_nibbles(s, nibbles);
            lane.group_halves(self.scales(), s, header[0]);
            if self.min {
                lane.group_halves(self.minima(), s, header[1]);
            }

            words.map(|w| w[0])
        });
        if self.fifth {
            lane.fifth_bits_in_order(fifth);
        }
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        match &self.values {
            Values::Entries(table) => lane.entry_codes(tile, table, set),
            Values::Numbers(_) if self.fifth => lane.five_bit_codes(tile, set),
            Values::Numbers(_) => lane.nibble_codes(tile, set),
        }
    }

    fn values(&self) -> CodeValues {
        match &self.values {
            Values::Entries(_) => CodeValues::signed(127),
            Values::Numbers(code) => (*code).into(),
        }
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let d = lane.two_words(tile, self.scales()).map(halves);
        let m = self
            .min
            .then(|| lane.two_words(tile, self.minima()).map(halves));
        let affine = |s: usize, r: usize| {
            let scale = d[s][r] * unit[r];
            m.map_or(Affine::Scale(scale), |m| {
                Affine::Offset(scale, m[s][r] * unit[r])
            })
        };
        [0, 1].map(|s| [0, 1].map(|r| affine(s, r))).into()
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = match &self.values {
            Values::Entries(table) => multiplier.entries(tile, table),
            Values::Numbers(_) if self.fifth => multiplier.five_bits(tile),
            Values::Numbers(_) => multiplier.nibbles(tile),
        };

        multiplier.k.section(
            multiplier.format.section("tile_scales"),
            format!("{}: scales of a tile", multiplier.format.name()),
        );
        let d = multiplier.two_words(tile, self.scales()).map(halves);
        let m = self
            .min
            .then(|| multiplier.two_words(tile, self.minima()).map(halves));
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            // Entries of a table are signed bytes. Plain codes are unsigned, and `add` subtracts
            // their offset.
            let sets = match &self.values {
                Values::Entries(_) => {
                    multiplier.sets(kt, item, &codes, |sums, a, b| sums.add_i8(a, b))
                }
                Values::Numbers(_) => {
                    multiplier.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b))
                }
            };
            for (s, set) in sets.into_iter().enumerate() {
                self.add(rows, set, d[s], m.map(|m| m[s]));
            }
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let d = row.half_of_group(self.scales());
        let m = self.min.then(|| row.half_of_group(self.minima()));
        let q = match &self.values {
            Values::Entries(table) => row.entries(table),
            Values::Numbers(code) if self.fifth => row.codes(*code, row.five_bits()),
            Values::Numbers(code) => row.codes(*code, row.nibbles()),
        };
        let weight = |q: F32<'k>| match m {
            Some(m) => q.fma(d, m),
            None => q * d,
        };
        q.into_iter().map(weight).collect()
    }
}

impl Legacy {
    /// Adds the results of a group, with its scale and minimum for each row.
    fn add<'k>(
        &self,
        rows: &mut RowSums<'k>,
        set: Set<'k>,
        d: [F32<'k>; 2],
        m: Option<[F32<'k>; 2]>,
    ) {
        let bias = match &self.values {
            Values::Numbers(numbers) => numbers.bias as f32,
            Values::Entries(_) => 0.0,
        };

        // Nibbles of row `g + 8` are multiplied together with the nibbles of row `g`, and count 16.
        let together = !self.fifth && matches!(self.values, Values::Numbers(_));
        let set = if together { set.separated() } else { set };
        let sums = set.scaled();
        let offset = (bias > 0.0).then(|| set.sum * -bias);
        for (r, row) in rows.iter_mut().enumerate() {
            let sum = match (offset, together && r == 1) {
                (Some(offset), true) => sums[r].fma(0.0625, offset),
                (Some(offset), false) => sums[r] + offset,
                (None, true) => sums[r] * 0.0625,
                (None, false) => sums[r],
            };
            row.fma(sum, d[r]);
            if let Some(m) = m {
                row.fma(set.sum, m[r]);
            }
        }
    }
}
