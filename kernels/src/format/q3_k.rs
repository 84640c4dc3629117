//! `Q3_K`: `hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16`, `w = d * (scale - 32) * (q -
//! 4)`.
//!
//! Each half of a block is 128 weights: weight `32 k + l` has its two low bits in `qs[l]`, starting
//! at bit `2 k`. Bit `k` of `hmask[l]` is the third bit of weight `32 k + l` of the whole block.
//! The scale of group `j` of 16 weights has its low four bits in a nibble of byte `j mod 8`, the
//! high one for j > 7. Its upper two bits are in byte `8 + j mod 4`, starting at bit `2 (j / 4)`. A
//! tile has the low bits, the third bits, the scales, then `d`.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::four_of_each_32::FourOfEach32;
use super::fields::k_scales::{SIX_BITS, six_bits};
use super::fields::layout::{half_of_row, lane};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::two_bits::{self, to_bit};
use super::fields::unpack::{SIX_LESS_32, THREE_LESS_4, bytes, halfword, halves, join, split};
use super::lanes::codes::{Affine, CodeValues, Codes, Units, times};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{AND_OR, RowSums, TileLane, TileMultiplier, TilePtr, number};
use super::lanes::pack::{PackLane, Shift, TileRow};
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The offset of the low bits in a block.
const BLOCK_LOW: u32 = 32;
/// The offset of the scales in a block: eight bytes of low bits, then four of upper bits.
const BLOCK_SCALES: u32 = 96;
/// The offset of the scale `d` in a block.
const BLOCK_D: u32 = 108;
/// The third bits in a tile.
const THIRD: u32 = two_bits::BYTES;
/// The scales in a tile.
const SCALES: u32 = THIRD + 512;
/// The scale `d` of each row in a tile.
const D: u32 = SCALES + SIX_BITS;

#[allow(non_camel_case_types)] // ggml's name
/// The format `Q3_K`.
pub(super) struct Q3_K;

impl BlockFormat for Q3_K {
    fn block(&self) -> Block {
        Block {
            ggml_type: 11,
            len: 256,
            bytes: 110,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        (0..16).map(Field::Scale).chain([Field::D]).collect()
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let half = k / 128;
                let quarter = k / 32 % 4;
                let low = BitRange::new(32 + 32 * half + k % 32, 2 * quarter, 2);
                two(low, BitRange::new(k % 32, k / 32, 1))
            }
            Field::Scale(j) => {
                let low = BitRange::new(96 + j % 8, 4 * (j / 8), 4);
                two(low, BitRange::new(104 + j % 4, 2 * (j / 4), 2))
            }
            _ => one(108, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let scale = number(Field::Scale(k / 16)) as f32 - 32.0;
        f16_value(number(Field::D)) * scale * (number(Field::Code(k)) as f32 - 4.0)
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 108, v / 128.0);
    }

    fn split(&self) -> LaneSplit {
        FourOfEach32::split(110)
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(Q3Fragment(FourOfEach32::of(thread)))
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A lane's fragment of a block. Blocks have 110 bytes, so only halfwords are aligned.
struct Q3Fragment<'k>(FourOfEach32<'k>);

impl<'k> Fragment<'k> for Q3Fragment<'k> {
    fn first(&self) -> U32<'k> {
        self.0.first()
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        let FourOfEach32 { half, four } = self.0;
        let first = four << 2;
        let third_bits = block.at(first);
        let low_bits = block.at(half.mad(32, first));
        let scale = block.at(four >> 2);
        vec![block, third_bits, low_bits, scale]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let &[block, third, low, scale] = addresses else {
            unreachable!("four addresses are given")
        };
        let thirds = [0, 2].map(|at| halfword(third, bytes + at));
        let lows = [0, 2].map(|at| halfword(low, bytes + BLOCK_LOW + at));
        let scales = [0, 2, 4, 6, 8, 10].map(|at| scale.at(bytes + BLOCK_SCALES + at).ld());
        let d = halfword(block, bytes + BLOCK_D);
        [&[d][..], &thirds, &lows, &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, h0, h1, l0, l1, ref scales @ ..] = words else {
            unreachable!("eleven words are loaded")
        };

        let d = halves(d)[0];
        let low = join(l0, l1);
        let half = self.0.half;
        let third = join(h0, h1) >> (half << 2);
        let group = |j: u32| {
            let third_bit = (third >> j) << 2;
            let low_bits = (low >> (2 * j)) & 0x0303_0303;
            let code = third_bit.lop3(0x0404_0404, low_bits, AND_OR);

            // The low bits of the scales of groups `8 half + 2 j` and `8 half + 2 j + 1` are in
            // nibble `half`.
            let low = (scales[j as usize] >> (half << 2)) & 15;
            let high_byte = scales[4 + j as usize % 2];
            let high = (high_byte >> ((half << 2) + 2 * (j / 2))) & 3;
            let scale = d * SIX_LESS_32.at(low | (high << 4), 0);
            Group {
                q: bytes(THREE_LESS_4, split(code), 0).into(),
                scale: Some(scale),
                offset: None,
            }
        };
        (0..4).map(group).collect()
    }
}

impl TileFormat for Q3_K {
    fn group(&self) -> u32 {
        16
    }

    /// Returns the bits of a field. Byte `e` of word `s` of the third bits belongs to the eight
    /// codes in byte `e` of the words `2 s` and `2 s + 1` of the low bits, in their order.
    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => {
                let word = THIRD as usize + 16 * lane(r, k / 16) + 4 * (k / 64);
                let byte = word + k % 4;
                // The eight codes of a byte are in the order of the words, then of their columns.
                let bit = 4 * (k / 8 % 2) + 2 * (k / 4 % 2) + r / 8;
                two(two_bits::in_tile(r, k), BitRange::new(byte, bit, 1))
            }
            Field::Scale(j) => six_bits(SCALES, lane(r, j), j / 4, r / 8),
            _ => half_of_row(D, r),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let [codes, codes_8] = lane.rows.each_ref().map(|row| codes(lane, row));
        lane.two_bits(&[codes.low, codes_8.low]);
        let third = |s: usize| {
            lane.k.section(
                "format/q3_k/pack_third_bits",
                "Q3_K: pack the third bits of a group of both rows",
            );
            // Even bits belong to row `g`, odd bits to row `g + 8`.
            let one = |n: usize| {
                let row = if n.is_multiple_of(2) {
                    &codes.third
                } else {
                    &codes_8.third
                };
                (row[s][n / 2] & 0x0101_0101) << n as u32
            };
            (1..8).fold(one(0), |word, n| word | one(n))
        };
        let to = lane.tile.at(THIRD).row(lane.lane, 16).cast::<u32>();
        to.st4([0, 1, 2, 3].map(third));

        lane.k
            .section("format/q3_k/pack_scales", "Q3_K: pack the scales");
        let bytes = [0, 4, 8].map(|at| BLOCK_SCALES + at);
        let scales = rows.map(|row| bytes.map(|at| row.at(at).at(lane.t).ld()));

        // Bytes 0 and 1 have the nibbles of the sets 0 and 2, and of the sets 1 and 3.
        let low = |[a, b, _]: [U32<'k>; 3]| {
            let pair = a | (b << 8);
            (pair | (pair << 12)) & 0x0f0f_0f0f
        };
        let [low0, low1] = scales.map(low);
        let two = |[_, _, c]: [U32<'k>; 3]| (c | (c << 6) | (c << 12) | (c << 18)) & 0x0303_0303;
        lane.six_bits(SCALES, low0 | (low1 << 4), || {
            let [high0, high1] = scales.map(two);
            high0 | (high1 << 2)
        });
        let [d, d_8] = rows.map(|row| halfword(row, BLOCK_D));
        lane.row_words(D, [join(d, d_8)]);
    }

    /// Returns codes that start at bit 4, because then `scale * (64 + 4)` has only eleven bits.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        let third = lane.four_words(tile, THIRD);
        lane.two_bit_codes(tile, set, 4, |low, s, i, n| {
            let third_bit = to_bit(6, third[s], 4 * i as u32 + n as u32);
            third_bit.lop3(0x4040_4040, low, AND_OR)
        })
    }

    fn values(&self) -> CodeValues {
        CodeValues::from(THREE_LESS_4).above_bit(4)
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let [low, high] = lane.six_bit_words(tile, SCALES);
        let words = lane.six_bits(low, high);
        let d = times(lane.row_halves(tile, D), unit);
        let row = |s: usize, r: usize| {
            let scale = number(words[r], s as u32) - 32.0;
            Affine::Block { block: d[r], scale }
        };
        (0..4).map(|s| [0, 1].map(|r| row(s, r))).collect()
    }

    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let third = multiplier.four_words(tile, THIRD);
        let codes = multiplier.two_bits(tile, |low, s, i, n| {
            let third_bit = to_bit(2, third[s], 4 * i as u32 + n as u32);
            third_bit.lop3(0x0404_0404, low, AND_OR)
        });
        multiplier
            .k
            .section("format/q3_k/tile_scales", "Q3_K: scales of a tile");
        let [low, high] = multiplier.six_bit_words(tile, SCALES);
        let words = multiplier.six_bits(low, high);
        let d = multiplier.row_halves(tile, D);
        let scales: [[F32; 2]; 4] = from_fn(|s| from_fn(|r| number(words[r], s as u32) - 32.0));
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let sixteens = multiplier.sixteens(kt, item);
            let mut scaled: [Var<f32>; 2] = from_fn(|_| multiplier.k.var(0.0));
            for (s, codes) in codes.iter().enumerate() {
                let set = sixteens.set(s, codes);
                // Codes are stored with 4 added, so 4 times the sum of the activations is
                // subtracted.
                let offset = set.sum * -4.0;
                for (r, sum) in set.rows().into_iter().enumerate() {
                    scaled[r].fma(scales[s][r], sum.fma(set.scale, offset));
                }
            }

            for r in 0..2 {
                rows[r].fma(d[r], &scaled[r]);
            }
        }
    }

    fn row_len(&self) -> u32 {
        8
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let set = row.index >> 3;
        let lane = row.group_lane();
        let lane_thirds = row.tile.at(THIRD).row(lane, 16);
        let third = lane_thirds.row(set, 4).cast::<u32>().ld();

        // The four bits of the fragment's word, then the bit of its row.
        let third = third >> ((row.index & 1) << 2) >> row.second;
        let [first, second] = row.two_bits();
        let code =
            |low: U32<'k>, third: U32<'k>| third.lop3(0x0404_0404, low & 0x0303_0303, AND_OR);
        let words = [code(first, third << 2), code(second, third)];
        let codes = row.codes(THREE_LESS_4, words);

        // See [`six_bits`] for the places of a scale's low and upper bits.
        let low = row.tile.at(SCALES).row(lane, 4).row(set, 1).ld() >> (row.second << 2);
        let high = row.tile.at(SCALES + 128).row(lane >> 1, 4).row(set, 1).ld();
        let high = high >> (lane & 1).mad(4, row.second << 1);
        let scale = SIX_LESS_32.at((low & 15) | ((high & 3) << 4), 0);
        let d = row.half(D, row.g, 4);
        let scale = d * scale;
        codes.into_iter().map(|q| q * scale).collect()
    }
}

/// The codes of a row's groups `4 s + t` of 16, in four words each. Both parts are in the low bits
/// of bytes, whose other bits are arbitrary.
struct RowCodes<'k> {
    low: [[U32<'k>; 4]; 4],
    third: [[U32<'k>; 4]; 4],
}

/// Returns the codes of a row.
///
/// Blocks have 110 bytes, so every other block starts in the middle of a word.
fn codes<'k>(lane: &PackLane<'k>, row: &TileRow<'k>) -> RowCodes<'k> {
    let t = lane.t;
    let odd = row.index & 1;
    let shift = Shift::halfword(odd, 0x3210);

    // Two blocks have 220 bytes. The second one is read from two bytes before its start on, and
    // `shift` drops them.
    let block = row.matrix.row(row.index >> 1, 220).row(odd, 108);
    let half = block.row(t & 1, 16).cast::<u32>();
    let four_words = |at: u32| {
        let five = [0, 1, 2, 3, 4].map(|i| half.at(at / 4 + i).ld());
        shift.of::<4>(&five)
    };
    let thirds = four_words(0);
    let pair = t >> 1;
    let low = |s: usize| {
        lane.k
            .section("format/q3_k/tile_low_bits", "Q3_K: low bits of a group");
        let s = s as u32;
        let bit = (pair << 1) + 4 * (s % 2);
        four_words(BLOCK_LOW + 32 * (s / 2)).map(|word| word >> bit)
    };
    let low = from_fn(low);

    lane.k.section(
        "format/q3_k/tile_third_bits",
        "Q3_K: third bits of all groups",
    );
    let third = from_fn(|s| thirds.map(|word| word >> (pair + 2 * s as u32)));
    RowCodes { low, third }
}
