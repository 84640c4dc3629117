//! `Q6_K`: `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`, `w = d * scale * (q - 32)`.
//!
//! Each half of a block is 128 weights. Weight `32 k + l` has its four low bits in a nibble of
//! `ql[32 (k mod 2) + l]`, the high one for k > 1. Its two high bits are in `qh[l]`, starting at
//! bit `2 k`. In a tile, three words hold eight columns of both rows: six bits in each of their
//! bytes, and the bits of a fourth word in the two bits that remain.

use super::fields::bits::{BitRange, Bits, Field, one, two};
use super::fields::four_of_each_32::FourOfEach32;
use super::fields::layout::{half_of_row, lane, word};
use super::fields::numbers::{f16_value, put_f16};
use super::fields::sixteens::SixteenCodes;
use super::fields::unpack::{BYTE, SELECT, SIX_LESS_32, bytes, halfword, halves, join, split};
use super::lanes::codes::{Affine, CodeValues, Codes, Units, times};
use super::lanes::fragment::{Bytes, Fragment, Group, LaneSplit};
use super::lanes::multiply::{AND_OR, RowSums, TileLane, TileMultiplier, TilePtr};
use super::lanes::pack::{PackLane, Shift, TileRow};
use super::lanes::row::RowFragment;
use super::traits::{Block, BlockFormat, TileFormat};
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The offset of the high bits in a block.
const BLOCK_HIGH: u32 = 128;
/// The offset of the scales in a block.
const BLOCK_SCALES: u32 = 192;
/// The offset of the scale `d` in a block.
const BLOCK_D: u32 = 208;
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
        FourOfEach32::split(210)
    }

    fn fragment<'k>(&self, _: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
        Box::new(Q6Fragment(FourOfEach32::of(thread)))
    }

    fn tiles(&self) -> Option<&dyn TileFormat> {
        Some(self)
    }
}

/// A lane's fragment of a block. Blocks have 210 bytes, so only halfwords are aligned.
struct Q6Fragment<'k>(FourOfEach32<'k>);

impl<'k> Fragment<'k> for Q6Fragment<'k> {
    fn first(&self) -> U32<'k> {
        self.0.first()
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        let FourOfEach32 { half, four } = self.0;
        let first = four << 2;
        let low = half.mad(64, first);
        let high = half.mad(32, first);
        let scale = half.mad(8, four >> 2);
        vec![block, block.at(low), block.at(high), block.at(scale)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let &[block, low, high, scale] = addresses else {
            unreachable!("four addresses are given")
        };
        let lows = [0, 2, 32, 34].map(|at| halfword(low, bytes + at));
        let highs = [0, 2].map(|at| halfword(high, bytes + BLOCK_HIGH + at));
        let scales = [0, 2, 4, 6].map(|at| scale.at(bytes + BLOCK_SCALES + at).ld());
        let d = halfword(block, bytes + BLOCK_D);
        [&[d][..], &lows, &highs, &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, l0, l1, l2, l3, h0, h1, ref scales @ ..] = words else {
            unreachable!("eleven words are loaded")
        };

        let d = halves(d)[0];
        let low0 = join(l0, l1);
        let low1 = join(l2, l3);
        let high = join(h0, h1);

        // The low bits of each four weights, and their high bits, moved to bits 4 and 5.
        let codes = [
            (low0, high << 4),
            (low1, high << 2),
            (low0 >> 4, high),
            (low1 >> 4, high >> 2),
        ];
        let group = |((low, high), &scale): ((U32<'k>, U32<'k>), &U32<'k>)| {
            let code = low.lop3(high, 0x0f0f_0f0f, SELECT);
            let q = bytes(SIX_LESS_32, split(code), 0);
            let scale = BYTE.at(scale, 0);
            Group {
                q: q.into(),
                scale: Some(d * scale),
                offset: None,
            }
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
            Field::Scale(j) => {
                let set = j / 4;
                one(SCALES as usize + 8 * lane(r, j) + 2 * set + r / 8, 0, 8)
            }
            _ => half_of_row(D, r),
        }
    }

    fn pack<'k>(&self, lane: &PackLane<'k>) {
        let rows = lane.bytes();
        let codes = lane.rows.each_ref().map(|row| codes(lane.t, row));

        lane.k.section(
            "format/q6_k/pack_codes",
            "pack four words of six-bit codes into three",
        );

        // Eight columns are two words of each row.
        let eight_columns = |m: usize| {
            let both_rows = codes.each_ref().map(|row| &row[2 * m..]);
            pack_six_bits(both_rows)
        };
        let words: Vec<_> = (0..8).flat_map(eight_columns).collect();
        for (c, four) in (0..).zip(words.chunks(4)) {
            lane.words(c, [four[0], four[1], four[2], four[3]]);
        }

        lane.k
            .section("format/q6_k/pack_scales", "Q6_K: pack the scales");
        let scale = |row: Bytes<'k>, s: u32| row.at(BLOCK_SCALES + 4 * s).at(lane.t).ld();

        // A halfword has the scales of both rows for a set.
        let set = |s| scale(rows[0], s) | (scale(rows[1], s) << 8);
        let first_sets = join(set(0), set(1));
        let last_sets = join(set(2), set(3));
        let to = lane.tile.at(SCALES).row(lane.lane, 8).cast::<u32>();
        to.st2([first_sets, last_sets]);
        let [d, d_8] = rows.map(|row| halfword(row, BLOCK_D));
        lane.row_words(D, [join(d, d_8)]);
    }

    /// Returns codes that start at bit 2, as the codes of row `g + 8` do anyway (see [`six_bits`]).
    /// Then `scale * (256 + 32)` has eleven bits, but `scale * (1024 + 32)` would have 13.
    fn codes<'k>(&self, lane: &TileLane<'k>, tile: TilePtr<'k>, set: u32) -> Vec<Codes<'k>> {
        let words: Vec<U32> = (0..3).flat_map(|c| lane.words(tile, 3 * set + c)).collect();
        // Three words hold eight columns of both rows, which are two steps of four columns.
        let two_steps = |three| {
            let [first, first_8, second, second_8] = six_bits(three);
            [
                Codes::Bytes([first << 2, first_8]),
                Codes::Bytes([second << 2, second_8]),
            ]
        };
        words.chunks(3).flat_map(two_steps).collect()
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
        let scales = lane.two_words(tile, SCALES);
        let d = times(lane.row_halves(tile, D), unit);
        let row = |s: usize, r: usize| Affine::Block {
            block: d[r],
            scale: signed_byte(scales, 2 * s + r),
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
        let scales = multiplier.two_words(tile, SCALES);
        let d = multiplier.row_halves(tile, D);
        let codes: SixteenCodes = from_fn(|s| from_fn(|i| six_bits(&words[6 * s + 3 * i..])));
        let factors: [[_; 2]; 4] = from_fn(|s| from_fn(|r| signed_byte(scales, 2 * s + r)));
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
        let set = row.index >> 3;
        let lane = row.group_lane();

        // A set has two triples of words, one for each eight columns of the lane.
        let triple = (set << 1) | (row.index & 1);
        let first = triple * 3;
        let word = |i: u32| {
            let x = first + i;
            row.words(x >> 2, lane).at(x & 3).ld()
        };
        let [a, b, c] = [0, 1, 2].map(word);

        // The fourth word consists of the two bits that the codes in the other words leave free.
        let from_outer = ((a & 0xc0c0_c0c0) >> 2) | ((c & 0xc0c0_c0c0) >> 4);
        let fourth = from_outer | (b & 0x0303_0303);
        let first_row = row.second.eq(0);
        let six = [first_row.select(a, b >> 2), first_row.select(c, fourth)];
        let lane_scales = row.tile.at(SCALES).row(lane, 8);
        let scale = lane_scales.row(set, 2).at(row.second).ld();
        let d = row.half(D, row.g, 4);
        let scale = d * BYTE.at(scale, 0);
        row.codes(SIX_LESS_32, six)
            .into_iter()
            .map(|q| q * scale)
            .collect()
    }
}

/// Returns the bits of the code of column `k` of row `r` in a tile.
fn code_in_tile(r: usize, k: usize) -> Bits {
    // A lane has two triples of words in each set of 64 columns, one for each eight columns.
    let set = k / 64;
    let triple = 2 * set + k / 8 % 2;
    let first = 3 * triple;
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

    // Two blocks have 420 bytes. The second one is read from two bytes before its start on, and
    // `shift` drops them.
    let block = row.matrix.row(row.index >> 1, 420).row(odd, 208);
    let low = block.row(t, 16);
    let high = block.row(t & 1, 16);
    let four_words = |from: Bytes<'k>, at| {
        let five = [0, 1, 2, 3, 4].map(|i| from.cast::<u32>().at(at / 4 + i).ld());
        shift.of::<4>(&five)
    };
    let half = |half: u32| {
        let lows = four_words(low, 64 * half);
        let highs = four_words(high, BLOCK_HIGH + 32 * half);
        let highs = highs.map(|word| word >> ((t >> 1) << 1));
        let code = |low: U32<'k>, high: U32<'k>| low.lop3(high, 0x0f0f_0f0f, SELECT) & 0x3f3f_3f3f;
        let first: [_; 4] = from_fn(|i| code(lows[i], highs[i] << 4));
        let second: [_; 4] = from_fn(|i| code(lows[i] >> 4, highs[i]));
        [first, second].concat()
    };
    [half(0), half(1)].concat()
}

/// Returns a signed byte of two words.
fn signed_byte<'k>(words: [U32<'k>; 2], byte: usize) -> F32<'k> {
    let word = words[byte / 4].bits::<i32>();
    let bit = 8 * (byte as u32 % 4);
    word.bfe(bit, 8).cvt::<f32>()
}

/// Packs eight columns of two rows, two words of six-bit codes each, into three words. The fourth
/// word of codes fills the bits that the codes of the others leave free.
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
