//! `Q2_K`: `scales: [u8; 16], qs: [u8; 64], d, dmin: f16`, `w = d * scale * q - dmin * min`.
//!
//! Byte `j` of `scales` has the scale of group `j` of 16 weights in its low nibble and the minimum
//! in its high nibble. Each half of a block is 128 weights: weight `32 k + l` is in `qs[l]`,
//! starting at bit `2 k`. A tile has the codes, the scales, then `d` and `dmin`.

use super::activations::ActivationBytes;
use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::four_of_each_32::FourOfEach32;
use super::fields::layout::{lane, pair_of_row};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::two_bits;
use super::fields::unpack::{NIBBLE, TWO, TWO_LESS_2, bytes, halves, join, split};
use super::lanes::codes::{Affine, CodeValues, Codes, Units, times};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{RowSums, TileLane, TileMultiplier, TilePtr, number};
use super::lanes::pack::PackLane;
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The offset of the codes in a block.
const BLOCK_CODES: u32 = 16;
/// The offset of `d` and `dmin` in a block.
const BLOCK_D: u32 = 80;
/// The scales in a tile: eight bytes of each lane, in which byte `2 s + r` belongs to set `s` and
/// row `g + 8 r`.
const SCALES: u32 = two_bits::BYTES;
/// The scales `d` and `dmin` of each row in a tile.
const D: u32 = SCALES + 256;

#[allow(non_camel_case_types)] // ggml's name
/// The format `Q2_K`.
pub(super) struct Q2_K;

impl BlockFormat for Q2_K {
    fn block(&self) -> Block {
        Block {
            ggml_type: 10,
            len: 256,
            bytes: 84,
        }
    }

    fn numbers(&self) -> Vec<Field> {
        let groups = (0..16).map(Field::Scale).chain((0..16).map(Field::Min));
        groups.chain([Field::D, Field::Dmin]).collect()
    }

    fn in_block(&self, field: Field) -> Bits {
        match field {
            Field::Code(k) => one(16 + 32 * (k / 128) + k % 32, 2 * (k / 32 % 4), 2),
            Field::Scale(j) => one(j, 0, 4),
            Field::Min(j) => one(j, 4, 4),
            Field::D => one(80, 0, 16),
            Field::Dmin => one(82, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let scale = f16_value(number(Field::D)) * number(Field::Scale(k / 16)) as f32;
        let min = f16_value(number(Field::Dmin)) * number(Field::Min(k / 16)) as f32;
        scale * number(Field::Code(k)) as f32 - min
    }

    fn scale(&self, block: &mut [u8], v: f32, size: f32, random: &mut Random) {
        put_f16(block, 80, v / 64.0);
        put_f16(block, 82, size * random.unit() / 32.0);
    }

    fn split(&self) -> LaneSplit {
        FourOfEach32::split(84)
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(Q2Fragment(FourOfEach32::of(thread)))
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A lane's fragment of a block.
struct Q2Fragment<'k>(FourOfEach32<'k>);

impl<'k> Fragment<'k> for Q2Fragment<'k> {
    fn first(&self) -> U32<'k> {
        self.0.first()
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        let FourOfEach32 { half, four } = self.0;
        let codes = half.mad(32, four << 2);
        let scale = half.mad(8, four >> 2);
        vec![block, block.at(codes), block.at(scale)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let &[block, codes, scale] = addresses else {
            unreachable!("three addresses are given")
        };
        let d = block.at(bytes + BLOCK_D).cast::<u32>().ld();
        let codes = codes.at(bytes + BLOCK_CODES).stream();
        let codes = codes.cast::<u32>().ld();
        let scales = [0, 2, 4, 6].map(|at| scale.at(bytes + at).ld());
        [&[d, codes][..], &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, codes, ref scales @ ..] = words else {
            unreachable!("six words are loaded")
        };

        let [d, dmin] = halves(d);
        let less = -dmin;
        let codes = split(codes);
        let group = |(i, &scale): (u32, &U32<'k>)| Group {
            q: bytes(TWO, codes, 2 * i).into(),
            scale: Some(d * NIBBLE.at(scale, 0)),
            offset: Some(less * NIBBLE.at(scale, 4)),
        };
        (0..).zip(scales).map(group).collect()
    }
}

impl TileFormat for Q2_K {
    /// Returns three bytes, because the weights are differences that nearly cancel in a sum, so
    /// that an activation's error weighs more.
    fn activation_bytes(&self) -> ActivationBytes {
        ActivationBytes::Three
    }

    fn group(&self) -> u32 {
        16
    }

    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        let scales = |j: usize| {
            let set = j / 4;
            SCALES as usize + 8 * lane(r, j) + 2 * set + r / 8
        };
        let d = pair_of_row(D, r);
        match field {
            Field::Code(k) => two(two_bits::in_tile(r, k), BitRange::NONE),
            Field::Scale(j) => one(scales(j), 0, 4),
            Field::Min(j) => one(scales(j), 4, 4),
            Field::D => one(d, 0, 16),
            Field::Dmin => one(d + 2, 0, 16),
        }
    }

    /// Packs the lane's groups. Group `4 s + t` is half of a 32 in half `s / 2` of the block.
    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let odd = lane.t & 1;
        let shift = (lane.t >> 1) << 1;
        let codes = rows.map(|row| {
            let codes = row.at(BLOCK_CODES).row(odd, 16).cast::<u32>();
            from_fn(|s: usize| {
                let s = s as u32;
                let half = codes.at(8 * (s / 2));
                from_fn(|i| half.at(i as u32).ld() >> (shift + 4 * (s % 2)))
            })
        });
        lane.two_bits(&codes);

        lane.k
            .section("format/q2_k/pack_scales", "Q2_K: pack the scales");
        let scales = rows.map(|row| [0, 1, 2, 3].map(|s| row.at(4 * s).at(lane.t).ld()));

        // A halfword has the scales and minima of both rows for a set.
        let set = |s: usize| scales[0][s] | (scales[1][s] << 8);
        let to = lane.tile.at(SCALES).row(lane.lane, 8).cast::<u32>();
        let first_sets = join(set(0), set(1));
        let last_sets = join(set(2), set(3));
        to.st2([first_sets, last_sets]);
        let d = rows.map(|row| row.at(BLOCK_D).cast::<u32>().ld());
        lane.row_words(D, d);
    }

    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        lane.two_bit_codes(tile, set, 0, |low, _, _, _| low)
    }

    fn values(&self) -> CodeValues {
        TWO_LESS_2.into()
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let words = lane.two_words(tile, SCALES);
        let [d, dmin] = lane.row_pairs(tile, D);
        let d = times(d, unit);
        let dmin = times(dmin, unit);
        let row = |s: usize, r: usize| {
            let word = words[s / 2];
            let byte = (2 * (s % 2) + r) as u32;
            // The scale is the low nibble of the byte, the minimum the high one.
            let nibble = |from: u32| number((word >> from) & 0x0f0f_0f0f, byte);
            let [scale, min] = [0, 4].map(nibble);
            let scale = d[r] * scale;
            let min = dmin[r] * min;
            Affine::less(scale, min, self.values())
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
        let codes = multiplier.two_bits(tile, |low, _, _, _| low);
        multiplier
            .k
            .section("format/q2_k/tile_scales", "Q2_K: scales of a tile");
        let words = multiplier.two_words(tile, SCALES);
        let [d, dmin] = multiplier.row_pairs(tile, D);
        let less = dmin.map(|dmin| -dmin);

        // Byte `2 s + r` of the two words belongs to set `s` and row `g + 8 r`.
        let numbers = |words: [U32<'k>; 2]| -> [[F32<'k>; 2]; 4] {
            let byte = |s: usize, r: usize| number(words[s / 2], (2 * (s % 2) + r) as u32);
            from_fn(|s| from_fn(|r| byte(s, r)))
        };
        let scales = numbers(words.map(|word| word & 0x0f0f_0f0f));
        let mins = numbers(words.map(|word| (word >> 4) & 0x0f0f_0f0f));
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let sixteens = multiplier.sixteens(kt, item);
            let mut scaled: [Var<f32>; 2] = from_fn(|_| multiplier.k.var(0.0));
            let mut offset: [Var<f32>; 2] = from_fn(|_| multiplier.k.var(0.0));
            for (s, codes) in codes.iter().enumerate() {
                let set = sixteens.set(s, codes);
                for (r, sum) in set.rows().into_iter().enumerate() {
                    scaled[r].fma(scales[s][r], sum * set.scale);
                    offset[r].fma(mins[s][r], set.sum);
                }
            }

            for r in 0..2 {
                // `d` and `dmin` are applied once per tile, after the integer scales.
                rows[r].fma(d[r], &scaled[r]);
                rows[r].fma(less[r], &offset[r]);
            }
        }
    }

    fn row_len(&self) -> u32 {
        8
    }

    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let codes = row.codes(TWO, row.two_bits());
        let lane_scales = row.tile.at(SCALES).row(row.group_lane(), 8);
        let set_scales = lane_scales.row(row.index >> 3, 2);
        let scales = set_scales.at(row.second).ld();
        let [d, dmin] = row.pair(row.tile.at(D));
        let scale = d * NIBBLE.at(scales, 0);
        let min = dmin * NIBBLE.at(scales, 4);
        codes.into_iter().map(|q| q * scale - min).collect()
    }
}
