//! `Q3_K`: `hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16`, `w = d * (scale - 32) * (q -
//! 4)`.
//!
//! Each half of a block is 128 weights: weight `32 k + l` has its two low bits in `qs[l]`, starting
//! at bit `2 k`. Bit `k` of `hmask[l]` is the third bit of weight `32 k + l` of the whole block.
//! The scale of group `j` of 16 weights has its low four bits in a nibble of byte `j mod 8`, the
//! high one for j > 7. Its upper two bits are in byte `8 + j mod 4`, starting at bit `2 (j / 4)`. A
//! tile has the low bits, the third bits, the scales, then `d`.

use super::bits::{BitRange, Bits, Field, one, two};
use super::codes::{Affine, CodeValues, Codes, Units, times};
use super::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::k_scales::{SIX_BITS, six_bits};
use super::layout::lane;
use super::multiply::{AND_OR, RowSums, TileLane, TileMultiplier, TilePtr, number};
use super::numbers::{f16_value, put_f16};
use super::pack::{PackLane, Shift, TileRow};
use super::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use super::two_bits::{self, to_bit};
use super::unpack::{SIX_LESS_32, THREE_LESS_4, bytes, halfword, halves, join, split};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

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
                let low = BitRange::new(32 + 32 * (k / 128) + k % 32, 2 * (k / 32 % 4), 2);
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
        LaneSplit {
            len: 256,
            bytes: 110,
            lanes: 16,
            float4s: &[0, 32, 64, 96],
        }
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        let lane = thread & 15;
        Box::new(FourOfEach32 {
            half: lane >> 3,
            four: lane & 7,
        })
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A fragment of four consecutive weights of each 32 in half a block. Blocks have 110 bytes, so
/// only halfwords are aligned.
struct FourOfEach32<'k> {
    /// The index of the half.
    half: U32<'k>,
    /// The index of the four weights in each 32.
    four: U32<'k>,
}

impl<'k> Fragment<'k> for FourOfEach32<'k> {
    fn first(&self) -> U32<'k> {
        self.half.mad(128, self.four << 2)
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        let four = self.four << 2;
        vec![
            block,
            block.at(four),
            block.at(self.half.mad(32, four)),
            block.at(self.four >> 2),
        ]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let &[block, third, low, scale] = addresses else {
            unreachable!("four addresses are given")
        };
        let thirds = [0, 2].map(|at| halfword(third, bytes + at));
        let lows = [32, 34].map(|at| halfword(low, bytes + at));
        let scales = [96, 98, 100, 102, 104, 106].map(|at| scale.at(bytes + at).ld());
        [&[halfword(block, bytes + 108)][..], &thirds, &lows, &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, h0, h1, l0, l1, ref scales @ ..] = words else {
            unreachable!("eleven words are loaded")
        };
        let d = halves(d)[0];
        let low = join(l0, l1);
        let third = join(h0, h1) >> (self.half << 2);
        let group = |j: u32| {
            let code =
                ((third >> j) << 2).lop3(0x0404_0404, (low >> (2 * j)) & 0x0303_0303, AND_OR);
            // The low bits of the scales of groups `8 half + 2 j` and `8 half + 2 j + 1` are in
            // nibble `half`.
            let low = (scales[j as usize] >> (self.half << 2)) & 15;
            let high = (scales[4 + j as usize % 2] >> ((self.half << 2) + 2 * (j / 2))) & 3;
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
                let byte = THIRD as usize + 16 * lane(r, k / 16) + 4 * (k / 64) + k % 4;
                let bit = 4 * (k / 8 % 2) + 2 * (k / 4 % 2) + r / 8;
                two(two_bits::in_tile(r, k), BitRange::new(byte, bit, 1))
            }
            Field::Scale(j) => six_bits(SCALES, lane(r, j), j / 4, r / 8),
            _ => one(D as usize + 4 * (r % 8) + 2 * (r / 8), 0, 16),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let [a, b] = lane.rows.each_ref().map(|row| codes(lane, row));
        lane.two_bits(&[a.0, b.0]);
        let third = |s: usize| {
            lane.k.section(
                "format/q3_k/pack_third_bits",
                "Q3_K: pack the third bits of a group of both rows",
            );
            let one = |n: usize| {
                let words = if n.is_multiple_of(2) { &a.1 } else { &b.1 };
                (words[s][n / 2] & 0x0101_0101) << n as u32
            };
            (1..8).fold(one(0), |word, n| word | one(n))
        };
        lane.tile
            .at(THIRD)
            .row(lane.lane, 16)
            .cast::<u32>()
            .st4([0, 1, 2, 3].map(third));
        lane.k
            .section("format/q3_k/pack_scales", "Q3_K: pack the scales");
        let scales = rows.map(|row| [96, 100, 104].map(|at| row.at(at).at(lane.t).ld()));
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
        let [a, b] = rows.map(|row| halfword(row, 108));
        lane.row_words(D, [join(a, b)]);
    }

    /// Returns codes that start at bit 4, because then `scale * (64 + 4)` has only eleven bits.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        let third = tile.at(lane.lane * 16).at(THIRD).cast::<u32>().ld4();
        lane.two_bit_codes(tile, set, 4, |low, s, i, n| {
            to_bit(6, third[s], 4 * i as u32 + n as u32).lop3(0x4040_4040, low, AND_OR)
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
        let d = times(halves(tile.at(lane.g * 4).at(D).cast::<u32>().ld()), unit);
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
        let third = tile.at(multiplier.lane * 16).at(THIRD).cast::<u32>().ld4();
        let codes = multiplier.two_bits(tile, |low, s, i, n| {
            to_bit(2, third[s], 4 * i as u32 + n as u32).lop3(0x0404_0404, low, AND_OR)
        });
        multiplier
            .k
            .section("format/q3_k/tile_scales", "Q3_K: scales of a tile");
        let [low, high] = multiplier.six_bit_words(tile, SCALES);
        let words = multiplier.six_bits(low, high);
        let d = halves(tile.at(multiplier.g * 4).at(D).cast::<u32>().ld());
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
        let s = row.index >> 3;
        let lane = row.group_lane();
        let third = row
            .tile
            .at(THIRD)
            .row(lane, 16)
            .row(s, 4)
            .cast::<u32>()
            .ld();
        let third = third >> ((row.index & 1) << 2) >> row.second;
        let [a, b] = row.two_bits();
        let code =
            |low: U32<'k>, third: U32<'k>| third.lop3(0x0404_0404, low & 0x0303_0303, AND_OR);
        let codes = row.codes(THREE_LESS_4, [code(a, third << 2), code(b, third)]);
        let low = row.tile.at(SCALES).row(lane, 4).row(s, 1).ld() >> (row.second << 2);
        let high = row.tile.at(SCALES + 128).row(lane >> 1, 4).row(s, 1).ld();
        let high = high >> (lane & 1).mad(4, row.second << 1);
        let scale = SIX_LESS_32.at((low & 15) | ((high & 3) << 4), 0);
        let scale = row.half(D, row.g, 4) * scale;
        codes.into_iter().map(|q| q * scale).collect()
    }
}

/// Returns the codes of the groups `4 s + t` of 16, in four words each: the low bits and the third
/// bits, both in the low bits of bytes.
///
/// Blocks have 110 bytes, so every other block starts in the middle of a word.
fn codes<'k>(lane: &PackLane<'k>, row: &TileRow<'k>) -> ([[U32<'k>; 4]; 4], [[U32<'k>; 4]; 4]) {
    let t = lane.t;
    let odd = row.index & 1;
    let shift = Shift::halfword(odd, 0x3210);
    let block = row.matrix.row(row.index >> 1, 220).row(odd, 108);
    let half = block.row(t & 1, 16).cast::<u32>();
    let four = |at: u32| shift.of::<4>(&[0, 1, 2, 3, 4].map(|i| half.at(at / 4 + i).ld()));
    let thirds = four(0);
    let pair = t >> 1;
    let low = |s: usize| {
        lane.k
            .section("format/q3_k/tile_low_bits", "Q3_K: low bits of a group");
        let from = (pair << 1) + 4 * (s as u32 % 2);
        four(32 + 32 * (s as u32 / 2)).map(|word| word >> from)
    };
    let low = from_fn(low);
    lane.k.section(
        "format/q3_k/tile_third_bits",
        "Q3_K: third bits of all groups",
    );
    (
        low,
        from_fn(|s| thirds.map(|word| word >> (pair + 2 * s as u32))),
    )
}
