//! `IQ4_XS`: `d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128]`, `w = d * (scale - 32) *
//! table[q]`.
//!
//! Group `j` of 32 weights has its codes in 16 bytes, the first 16 in the low nibbles. The low four
//! bits of its scale are a nibble of `scales_l`, and the upper two bits are in `scales_h`. A tile
//! has the nibbles, the scales, then `d`.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::layout::{half_of_row, lane};
use super::fields::lookup::{IQ4, Table};
use super::fields::nibbles;
use super::fields::numbers::{f16_value, put_f16};
use super::fields::unpack::{SIX_LESS_32, halfword, halves, join};
use super::lanes::codes::{Affine, CodeValues, Codes, Units, times};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The low bits of the scales in a tile: a halfword of each lane, in which nibble `2 s + r` belongs
/// to set `s` and row `g + 8 r`.
const LOW: u32 = nibbles::BYTES;
/// The upper bits of the scales in a tile: a byte of each lane, in the same order as the low bits.
const HIGH: u32 = LOW + 64;
/// The scale `d` of each row in a tile.
const D: u32 = HIGH + 32;

#[allow(non_camel_case_types)] // ggml's name
/// The format `IQ4_XS`.
pub(super) struct IQ4_XS;

impl BlockFormat for IQ4_XS {
    fn block(&self) -> Block {
        Block {
            ggml_type: 23,
            len: 256,
            bytes: 136,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        (0..8).map(Field::Scale).chain([Field::D]).collect()
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => one(8 + 16 * (k / 32) + k % 16, 4 * (k / 16 % 2), 4),
            Field::Scale(j) => two(
                BitRange::new(4 + j / 2, 4 * (j % 2), 4),
                BitRange::new(2 + j / 4, 2 * (j % 4), 2),
            ),
            _ => one(0, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let scale = number(Field::Scale(k / 32)) as f32 - 32.0;
        f16_value(number(Field::D)) * scale * IQ4.value(number(Field::Code(k)))
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 0, v / 4096.0);
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 256,
            bytes: 136,
            lanes: 16,
            float4s: &[0, 4, 16, 20],
        }
    }

    fn fragment<'k>(&self, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(HalfGroup {
            lane: thread & 15,
            table: IQ4.load(k),
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// Eight bytes of a group's 16.
struct HalfGroup<'k> {
    lane: U32<'k>,
    table: Table<'k>,
}

impl<'k> Fragment<'k> for HalfGroup<'k> {
    fn first(&self) -> U32<'k> {
        (self.lane >> 1).mad(32, (self.lane & 1) << 3)
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 8)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = addresses[0].at(bytes).cast::<u32>().ld2();
        let codes = addresses[1].at(bytes + 8).stream().cast::<u32>().ld2();
        [header, codes].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, low, a, b] = words else {
            unreachable!("four words are loaded")
        };

        let group = self.lane >> 1;
        let low = (low >> (group << 2)) & 15;
        let high = (d >> ((group << 1) + 12)) & 0x30;
        let scale = halves(d)[0] * SIX_LESS_32.at(low | high, 0);
        let half = |half: u32| {
            let q = [a, b]
                .into_iter()
                .flat_map(|w| self.table.numbers(w >> (4 * half)))
                .collect();
            Group {
                q,
                scale: Some(scale),
                offset: None,
            }
        };
        vec![half(0), half(1)]
    }
}

impl TileFormat for IQ4_XS {
    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, k), BitRange::NONE),
            Field::Scale(j) => {
                let lane = lane(r, j);
                let i = 2 * (j / 4) + r / 8;
                let low = BitRange::new(LOW as usize + 2 * lane, 4 * i, 4);
                two(low, BitRange::new(HIGH as usize + lane, 2 * i, 2))
            }
            _ => half_of_row(D, r),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let headers = rows.map(|row| row.cast::<u32>().ld2());
        for s in 0..2 {
            let group_words = |row: Bytes<'k>| {
                let words = row.at(8 + 64 * s).row(lane.t, 16).cast::<u32>();
                [0, 1, 2, 3].map(|i| words.at(i).ld())
            };
            let words = rows.map(group_words);
            lane.halves_of_nibbles(s, words);
        }

        lane.k
            .section("format/iq4_xs/pack_scales", "IQ4_XS: pack the scales");
        let group = |s: u32| lane.t + 4 * s;

        // The sets and the rows in the order of the tile.
        let order = [(0, 0), (0, 1), (1, 0), (1, 1)];

        // The scale of a group has four bits in the second word of the header, and two in the upper
        // half of the first.
        let low_bits = |(s, r): (u32, usize)| {
            let word = headers[r][1];
            (word >> (group(s) << 2)) & 15
        };
        let high_bits = |(s, r): (u32, usize)| {
            let word = headers[r][0];
            (word >> ((group(s) << 1) + 16)) & 3
        };
        let lows = order.map(low_bits);
        let highs = order.map(high_bits);
        let low = lows[0] | (lows[1] << 4) | (lows[2] << 8) | (lows[3] << 12);
        let high = highs[0] | (highs[1] << 2) | (highs[2] << 4) | (highs[3] << 6);
        lane.tile.at(LOW).row(lane.lane, 2).cast::<u16>().st(low);
        lane.tile.at(HIGH).row(lane.lane, 1).st(high);
        let d = join(headers[0][0], headers[1][0]);
        lane.row_words(D, [d]);
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        lane.entry_codes(tile, &IQ4, set)
    }

    fn values(&self) -> CodeValues {
        CodeValues::signed(127)
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let scales = Iq4Scales::load(lane, tile);
        let d = times(lane.row_halves(tile, D), unit);
        let row = |s: u32, r: u32| Affine::Block {
            block: d[r as usize],
            scale: scales.scale(2 * s + r),
        };
        [0, 1].map(|s| [0, 1].map(|r| row(s, r))).into()
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = multiplier.entries(tile, &IQ4);
        multiplier
            .k
            .section("format/iq4_xs/tile_scales", "IQ4_XS: scales of a tile");
        let scales = Iq4Scales::load(multiplier, tile);
        let d = multiplier.row_halves(tile, D);
        // The multiplication is exact: an `f16` has 11 significant bits, and a scale has six.
        let d = from_fn(|s| from_fn(|r| d[r] * scales.scale(2 * s as u32 + r as u32)));
        multiplier.multiply_entries(&codes, d, kt, batch);
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let set = row.index >> 3;
        let lane = row.group_lane();
        let i = (set << 1) + row.second;
        let low = halfword(row.tile.at(LOW).row(lane, 2), 0) >> (i << 2);
        let high = row.tile.at(HIGH).row(lane, 1).ld() >> (i << 1);
        let scale = SIX_LESS_32.at((low & 15) | ((high & 3) << 4), 0);
        let d = row.half(D, row.g, 4);
        let scale = d * scale;
        row.entries(&IQ4).into_iter().map(|q| q * scale).collect()
    }
}

/// The scales of a lane's groups in a tile.
struct Iq4Scales<'k> {
    low: U32<'k>,
    high: U32<'k>,
}

impl<'k> Iq4Scales<'k> {
    /// Loads the scales.
    fn load(lane: &TileLane<'k>, tile: TilePtr<'k>) -> Self {
        Iq4Scales {
            low: tile.at(lane.lane * 2).at(LOW).cast::<u16>().ld(),
            high: tile.at(lane.lane).at(HIGH).ld(),
        }
    }

    /// Returns scale `i`, which is `2 s + r` for set `s` and row `g + 8 r`.
    fn scale(&self, i: u32) -> F32<'k> {
        let low = self.low.bfe(4 * i, 4);
        let high = self.high.bfe(2 * i, 2);
        SIX_LESS_32.at(low | (high << 4), 0)
    }
}
