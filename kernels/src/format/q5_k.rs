//! `Q5_K`: `d, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`, `w = d * scale * q - dmin
//! * min`.
//!
//! The layout is Q4_K's, with fifth bits: bit `j` of `qh[l]` is the fifth bit of weight `l` of
//! group `j`. A tile has the nibbles, the fifth bits, then the scales.

use super::fields::bits::{BitRange, Bits, Field, two};
use super::fields::k_scales::{self, TileScales};
use super::fields::unpack::{FIVE, FIVE_LESS_16, SELECT, bytes, split};
use super::fields::{fifth_bits, nibbles};
use super::lanes::codes::{Affine, CodeValues, Codes, Units};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::{PackLane, load8};
use super::lanes::row::RowFragment;
use super::q4_k::EightBytes;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;

/// The offset of the scales in a tile.
const SCALES: u32 = fifth_bits::AT + fifth_bits::BYTES;

/// The format `Q5_K`.
#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q5_K;

impl BlockFormat for Q5_K {
    fn block(&self) -> Block {
        Block {
            ggml_type: 13,
            len: 256,
            bytes: 176,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        k_scales::numbers()
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let low = BitRange::new(48 + 32 * (k / 64) + k % 32, 4 * (k / 32 % 2), 4);
                two(low, BitRange::new(16 + k % 32, k / 32, 1))
            }
            _ => k_scales::in_block(field),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        k_scales::weight(k / 32, number, Field::Code(k))
    }

    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random) {
        k_scales::scale(block, 32.0, v, size, random);
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 256,
            bytes: 176,
            lanes: 16,
            float4s: &[0, 4, 32, 36],
        }
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(EightBytesAndFifth(EightBytes::new(thread & 15)))
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A fragment of eight bytes with fifth bits. The fifth bits of the lane's two groups are adjacent
/// in eight bytes that four lanes share.
struct EightBytesAndFifth<'k>(EightBytes<'k>);

impl<'k> Fragment<'k> for EightBytesAndFifth<'k> {
    fn first(&self) -> U32<'k> {
        self.0.first()
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![
            block,
            block.row(self.0.lane & 3, 8),
            block.row(self.0.lane, 8),
        ]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = addresses[0].at(bytes).cast::<u32>().ld4();
        let fifth = addresses[1].at(bytes + 16).cast::<u32>().ld2();
        let codes = addresses[2].at(bytes + 48).stream().cast::<u32>().ld2();
        [&header[..], &fifth, &codes].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, s0, s1, s2, h0, h1, low, high] = words else {
            unreachable!("eight words are loaded")
        };

        let first = (self.0.lane >> 2) << 1;
        let halves = [(low, h0 >> first), (high, h1 >> first)];
        let q = |group: u32| {
            let codes = halves.map(|(low, fifth)| {
                let fifth = (fifth << (4 - group)) & 0x1010_1010;
                split((low >> (4 * group)).lop3(fifth, 0x0f0f_0f0f, SELECT))
            });
            codes.into_iter().flat_map(|w| bytes(FIVE, w, 0)).collect()
        };
        self.0.scales.groups([d, s0, s1, s2], [q(0), q(1)])
    }
}

impl TileFormat for Q5_K {
    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => two(nibbles::in_tile(r, k), fifth_bits::in_tile(r, k)),
            _ => k_scales::in_tile(SCALES, r, field),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let header = rows.map(|row| row.cast::<u32>().ld4());
        let fifth = rows.map(|row| load8(row.at(16)).map(|word| word >> lane.t));
        for s in 0..2 {
            lane.nibbles_k(rows.map(|row| row.at(48)), s);
        }

        lane.fifth_bits(|r, c, j| {
            let word = fifth[r][4 * (c & 1) as usize + j];
            (word >> (4 * (c >> 1))) & 0x0101_0101
        });
        lane.scales_k(SCALES, header);
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        lane.five_bit_codes(tile, set)
    }

    fn values(&self) -> CodeValues {
        FIVE_LESS_16.into()
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        TileScales::load(lane, tile, SCALES).affine(self.values(), unit)
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let codes = multiplier.five_bits(tile);
        let scales = TileScales::load(multiplier, tile, SCALES);
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let sets = multiplier.sets(kt, item, &codes, |sums, a, b| sums.add_u8(a, b));
            scales.apply(rows, &sets);
        }
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let codes = row.codes(FIVE, row.five_bits());
        row.scaled_k(SCALES, codes)
    }
}
