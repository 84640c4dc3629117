//! `Q6_K`: `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`, `w = d * scale * (q - 32)`.
//!
//! Each half of a block is 128 weights. Weight `32 k + l` has its four low bits in a nibble of
//! `ql[32 (k mod 2) + l]`, the high one for k > 1. Its two high bits are in `qh[l]`, starting at
//! bit `2 k`. In a tile, three words hold eight columns of both rows: six bits in each of their
//! bytes, and the bits of a fourth word in the two bits that remain.

use super::bits::{BitRange, Bits, Field, one, two};
use super::codes::{Affine, CodeValues, Codes, Units, times};
use super::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::layout::{lane, word};
use super::multiply::{AND_OR, RowSums, TileLane, TileMultiplier, TilePtr};
use super::numbers::{f16_value, put_f16};
use super::pack::{PackLane, Shift, TileRow};
use super::row::RowFragment;
use super::sixteens::SixteenCodes;
use super::traits::{Block, BlockFormat, TileFormat};
use super::unpack::{BYTE, SELECT, SIX_LESS_32, bytes, halfword, halves, join, split};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The offset of the scales in a tile.
const SCALES: u32 = 3072;
/// The offset of the scale `d` of each row in a tile.
const D: u32 = 3328;

/// The format `Q6_K`.
#[allow(non_camel_case_types)] // ggml's name
pub(super) struct Q6_K;

impl BlockFormat for Q6_K {
    fn block(&self) -> Block {
        Block {
            ggml_type: 14,
            len: 256,
            bytes: 210,
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
                let l = k % 32;
                let low = BitRange::new(64 * half + 32 * (quarter % 2) + l, 4 * (quarter / 2), 4);
                two(low, BitRange::new(128 + 32 * half + l, 2 * quarter, 2))
            }
            Field::Scale(j) => one(192 + j, 0, 8),
            _ => one(208, 0, 16),
        }
    }

    fn weight(&self, k: usize, number: &dyn Fn(Field) -> u32) -> f32 {
        let scale = f32::from(number(Field::Scale(k / 16)) as u8 as i8);
        f16_value(number(Field::D)) * scale * (number(Field::Code(k)) as f32 - 32.0)
    }

    fn scale(&self, block: &mut [u8], v: f32, _: f32, _: &mut Random) {
        put_f16(block, 208, v / 4096.0);
    }

    fn split(&self) -> LaneSplit {
        LaneSplit {
            len: 256,
            bytes: 210,
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

/// A fragment of four consecutive weights of each 32 in half a block. Blocks have 210 bytes, so
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
        let low = self.half.mad(64, four);
        let high = self.half.mad(32, four);
        let scale = self.half.mad(8, self.four >> 2);
        vec![block, block.at(low), block.at(high), block.at(scale)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let &[block, low, high, scale] = addresses else {
            unreachable!("four addresses are given")
        };
        let lows = [0, 2, 32, 34].map(|at| halfword(low, bytes + at));
        let highs = [128, 130].map(|at| halfword(high, bytes + at));
        let scales = [192, 194, 196, 198].map(|at| scale.at(bytes + at).ld());
        [&[halfword(block, bytes + 208)][..], &lows, &highs, &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, a, b, c, e, f, g, ref scales @ ..] = words else {
            unreachable!("eleven words are loaded")
        };
        let d = halves(d)[0];
        let low0 = join(a, b);
        let low1 = join(c, e);
        let high = join(f, g);
        let codes = [
            (low0, high << 4),
            (low1, high << 2),
            (low0 >> 4, high),
            (low1 >> 4, high >> 2),
        ];
        let group = |((low, high), &scale): ((U32<'k>, U32<'k>), &U32<'k>)| Group {
            q: bytes(SIX_LESS_32, split(low.lop3(high, 0x0f0f_0f0f, SELECT)), 0).into(),
            scale: Some(d * BYTE.at(scale, 0)),
            offset: None,
        };
        codes.into_iter().zip(scales).map(group).collect()
    }
}

impl TileFormat for Q6_K {
    fn group(&self) -> u32 {
        16
    }

    fn in_tile(&self, r: usize, _: usize, field: Field) -> Bits {
        match field {
            Field::Code(k) => code_in_tile(r, k),
            Field::Scale(j) => one(SCALES as usize + 8 * lane(r, j) + 2 * (j / 4) + r / 8, 0, 8),
            _ => one(D as usize + 4 * (r % 8) + 2 * (r / 8), 0, 16),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let codes = lane.rows.each_ref().map(|row| codes(lane.t, row));
        lane.k.section(
            "format/q6_k/pack_codes",
            "pack four words of six-bit codes into three",
        );
        let words: Vec<_> = (0..8)
            .flat_map(|m| pack_six_bits(codes.each_ref().map(|row| &row[2 * m..])))
            .collect();
        for (c, w) in words.chunks(4).enumerate() {
            lane.words(c as u32, [w[0], w[1], w[2], w[3]]);
        }
        lane.k
            .section("format/q6_k/pack_scales", "Q6_K: pack the scales");
        let scale = |row: Bytes<'k>, s: u32| row.at(192 + 4 * s).at(lane.t).ld();
        let set = |s| scale(rows[0], s) | (scale(rows[1], s) << 8);
        let scales = [join(set(0), set(1)), join(set(2), set(3))];
        lane.tile
            .at(SCALES)
            .row(lane.lane, 8)
            .cast::<u32>()
            .st2(scales);
        let [a, b] = rows.map(|row| halfword(row, 208));
        lane.row_words(D, [join(a, b)]);
    }

    /// Returns codes that start at bit 2, as the codes of row `g + 8` do anyway (see [`six_bits`]).
    /// Then `scale * (256 + 32)` has eleven bits, but `scale * (1024 + 32)` would have 13.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        let words: Vec<U32> = (0..3).flat_map(|c| lane.words(tile, 3 * set + c)).collect();
        let two = |words| {
            let [a, b, c, d] = six_bits(words);
            [Codes::Bytes([a << 2, b]), Codes::Bytes([c << 2, d])]
        };
        words.chunks(3).flat_map(two).collect()
    }

    fn values(&self) -> CodeValues {
        CodeValues::from(SIX_LESS_32).above_bit(2)
    }

    fn scales<'k>(
        &self,
        lane: &TileLane<'k>,
        tile: TilePtr<'k>,
        unit: Units<'k>,
    ) -> Vec<[Affine<'k>; 2]> {
        let scales = tile.at(lane.lane * 8).at(SCALES).cast::<u32>().ld2();
        let d = times(halves(tile.at(lane.g * 4).at(D).cast::<u32>().ld()), unit);
        let factor = |byte: usize| {
            scales[byte / 4]
                .bits::<i32>()
                .bfe(8 * (byte as u32 % 4), 8)
                .cvt::<f32>()
        };
        let row = |s: usize, r: usize| Affine::Block {
            block: d[r],
            scale: factor(2 * s + r),
        };
        (0..4).map(|s| [0, 1].map(|r| row(s, r))).collect()
    }

    /// Multiplies a tile. The codes of row `g + 8` count 4 times as much as the codes of row `g`,
    /// because 24 words hold 32 (see [`six_bits`]).
    fn multiply<'k>(
        &self,
        multiplier: &TileMultiplier<'k>,
        tile: TilePtr<'k>,
        kt: U32<'k>,
        batch: &mut [RowSums<'k>],
    ) {
        let words: Vec<U32> = (0..6).flat_map(|c| multiplier.words(tile, c)).collect();
        let scales = tile.at(multiplier.lane * 8).at(SCALES).cast::<u32>().ld2();
        let d = halves(tile.at(multiplier.g * 4).at(D).cast::<u32>().ld());
        let codes: SixteenCodes = from_fn(|s| from_fn(|i| six_bits(&words[6 * s + 3 * i..])));
        let factor = |byte: usize| {
            scales[byte / 4]
                .bits::<i32>()
                .bfe(8 * (byte as u32 % 4), 8)
                .cvt::<f32>()
        };
        let factors: [[_; 2]; 4] = from_fn(|s| from_fn(|r| factor(2 * s + r)));
        for (item, rows) in (0..).zip(batch) {
            multiplier.token();
            let sixteens = multiplier.sixteens(kt, item);
            let mut scaled: [Var<f32>; 2] = from_fn(|_| multiplier.k.var(0.0));
            for (s, codes) in codes.iter().enumerate() {
                let set = sixteens.set(s, codes);
                // Codes are stored with 32 added, so 32 times the sum of the activations is
                // subtracted.
                let offset = set.sum * -32.0;
                let [first, second] = set.rows();
                let terms = [
                    first.fma(set.scale, offset),
                    second.fma(set.scale * 0.25, offset),
                ];
                for (r, term) in terms.into_iter().enumerate() {
                    scaled[r].fma(factors[s][r], term);
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

    /// Returns the weights of fragment `8 s + 2 t + i`.
    fn row<'k>(&self, row: &RowFragment<'k>) -> Vec<F32<'k>> {
        let s = row.index >> 3;
        let lane = row.group_lane();
        let first = ((s << 1) | (row.index & 1)) * 3;
        let word = |i: u32| {
            let x = first + i;
            row.words(x >> 2, lane).at(x & 3).ld()
        };
        let [a, b, c] = [0, 1, 2].map(word);
        let fourth = ((a & 0xc0c0_c0c0) >> 2) | ((c & 0xc0c0_c0c0) >> 4) | (b & 0x0303_0303);
        let first_row = row.second.eq(0);
        let six = [first_row.select(a, b >> 2), first_row.select(c, fourth)];
        let scale = row
            .tile
            .at(SCALES)
            .row(lane, 8)
            .row(s, 2)
            .at(row.second)
            .ld();
        let scale = row.half(D, row.g, 4) * BYTE.at(scale, 0);
        row.codes(SIX_LESS_32, six)
            .into_iter()
            .map(|q| q * scale)
            .collect()
    }
}

/// Returns the bits of the code of column `k` of row `r` in a tile.
fn code_in_tile(r: usize, k: usize) -> Bits {
    let first = 3 * (k / 64 * 2 + k / 8 % 2);
    let lane = lane(r, k / 16);
    let e = k % 4;
    let at = |x: usize, bit, len| BitRange::new(word(first + x, lane) + e, bit, len);
    match (k / 4 % 2, r / 8) {
        (0, 0) => [at(0, 0, 6), BitRange::NONE, BitRange::NONE],
        (0, _) => [at(1, 2, 6), BitRange::NONE, BitRange::NONE],
        (_, 0) => [at(2, 0, 6), BitRange::NONE, BitRange::NONE],
        _ => [at(1, 0, 2), at(2, 6, 2), at(0, 6, 2)],
    }
}

/// Returns the codes of the groups `t`, `4 + t`, `8 + t` and `12 + t` of 16, in four words each.
///
/// Blocks have 210 bytes, so every other block starts in the middle of a word.
fn codes<'k>(t: U32<'k>, row: &TileRow<'k>) -> Vec<U32<'k>> {
    let odd = row.index & 1;
    let shift = Shift::halfword(odd, 0x3210);
    let block = row.matrix.row(row.index >> 1, 420).row(odd, 208);
    let low = block.row(t, 16);
    let high = block.row(t & 1, 16);
    let four = |from: Bytes<'k>, at| {
        shift.of::<4>(&[0, 1, 2, 3, 4].map(|i| from.cast::<u32>().at(at / 4 + i).ld()))
    };
    let half = |half: u32| {
        let lows = four(low, 64 * half);
        let highs = four(high, 128 + 32 * half).map(|word| word >> ((t >> 1) << 1));
        let code = |low: U32<'k>, high: U32<'k>| low.lop3(high, 0x0f0f_0f0f, SELECT) & 0x3f3f_3f3f;
        let first: [_; 4] = from_fn(|i| code(lows[i], highs[i] << 4));
        let second: [_; 4] = from_fn(|i| code(lows[i] >> 4, highs[i]));
        [first, second].concat()
    };
    [half(0), half(1)].concat()
}

/// Packs eight columns of two rows, two words of six-bit codes each, into three words.
fn pack_six_bits<'k>([a, b]: [&[U32<'k>]; 2]) -> [U32<'k>; 3] {
    let last = b[1];
    [
        a[0] | ((last & 0x3030_3030) << 2),
        (b[0] << 2) | (last & 0x0303_0303),
        a[1] | ((last & 0x0c0c_0c0c) << 4),
    ]
}

/// Unpacks three words into four words of bytes. Six bits of each byte form one word, and the
/// remaining bits of all three form the fourth word.
fn six_bits<'k>(w: &[U32<'k>]) -> [U32<'k>; 4] {
    let first = w[0] & 0x3f3f_3f3f;
    let second = w[1] & 0xfcfc_fcfc;
    let third = w[2] & 0x3f3f_3f3f;
    let fourth = (w[2] >> 2).lop3(0x3030_3030, w[0] & 0xc0c0_c0c0, AND_OR);
    let fourth = (w[1] << 2).lop3(0x0c0c_0c0c, fourth, AND_OR);
    [first, second, third, fourth]
}
