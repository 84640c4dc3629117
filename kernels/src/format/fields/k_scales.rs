//! Packed six-bit integers, and the scales and minima of Q4_K and Q5_K, which are such integers.

use super::bits::{BitRange, Bits, Field, one, two};
use super::layout::{lane, pair_of_row};
use super::numbers::{f16_value, put_f16};
use super::unpack::{SELECT, SIX, bytes, halves, join, split};
use crate::format::lanes::codes::{Affine, CodeValues, Units, times};
use crate::format::lanes::fragment::{Bytes, Group};
use crate::format::lanes::multiply::{AND_OR, RowSums, Set, TileLane, TilePtr, number};
use crate::format::lanes::pack::{PackLane, load8};
use crate::format::lanes::row::RowFragment;
use crate::shared::Random;
use ptx_gen::*;
use std::array::from_fn;

/// The bytes of the six-bit integers of a tile, eight of each lane.
pub(crate) const SIX_BITS: u32 = 192;

/// Returns the bits of integer `(v, h)` of a lane, among the integers that start at byte `at`.
///
/// Byte `v` of the lane's word has the low four bits of the integers `(v, 0)` and `(v, 1)`. After
/// these words, each two lanes share a word whose byte `v` has the upper two bits: the integers
/// `(v, 0)` and `(v, 1)` of the even lane, then of the odd lane.
pub(crate) fn six_bits(at: u32, lane: usize, v: usize, h: usize) -> Bits {
    let at = at as usize;
    let low = BitRange::new(at + 4 * lane + v, 4 * h, 4);
    let pair = at + 128 + 4 * (lane / 2);
    let high = BitRange::new(pair + v, 4 * (lane % 2) + 2 * h, 2);
    two(low, high)
}

impl<'k> PackLane<'k> {
    /// Stores the lane's six-bit integers, starting at byte `at`. `low` is in the order of the
    /// tile. Byte `v` of `high` has the upper two bits of the integers `(v, 0)` and `(v, 1)` in its
    /// low nibble. The whole warp must call it.
    pub(crate) fn six_bits(&self, at: u32, low: U32<'k>, high: impl FnOnce() -> U32<'k>) {
        self.tile.at(at).row(self.lane, 4).cast::<u32>().st(low);
        let high = high();
        let both = high | (high.shfl_bfly(1) << 4);
        let to = self.tile.at(at + 128).row(self.lane >> 1, 4).cast::<u32>();
        self.k.when((self.lane & 1).eq(0), || to.st(both));
    }
}

impl<'k> TileLane<'k> {
    /// Returns the lane's six-bit integers: the integers `(v, 0)` in the bytes of a word, then the
    /// integers `(v, 1)`.
    pub(crate) fn six_bits(&self, low: U32<'k>, high: U32<'k>) -> [U32<'k>; 2] {
        [
            (high << 4).lop3(0x3030_3030, low & 0x0f0f_0f0f, AND_OR),
            (high << 2).lop3(0x3030_3030, (low >> 4) & 0x0f0f_0f0f, AND_OR),
        ]
    }

    /// Loads the words that [`six_bits`](TileLane::six_bits) takes.
    pub(crate) fn six_bit_words(&self, tile: TilePtr<'k>, at: u32) -> [U32<'k>; 2] {
        let low = tile.at(self.lane * 4).at(at).cast::<u32>().ld();
        // Two lanes share a word of upper bits, of which the odd lane has the high nibbles.
        let pair = tile.at((self.lane >> 1) * 4);
        let both = pair.at(at + 128).cast::<u32>().ld();
        let high = both >> ((self.lane & 1) * 4);
        [low, high]
    }
}

/// Returns the bits of a field of a Q4_K or Q5_K block other than a code. The block is `d, dmin:
/// f16, scales: [u8; 12]`, then the codes, with `w = d * scale * q - dmin * min` (ggml's
/// `get_scale_min_k4`).
///
/// Groups 0 to 3 have scale and minimum in the low bits of the bytes `j` and `j + 4`. The four low
/// bits of the other groups share bytes 8 to 11, and their two high bits fill the first eight
/// bytes.
pub(crate) fn in_block(field: Field) -> Bits {
    match field {
        Field::Scale(j @ ..4) => one(4 + j, 0, 6),
        Field::Scale(j) => two(BitRange::new(8 + j, 0, 4), BitRange::new(j, 6, 2)),
        Field::Min(j @ ..4) => one(8 + j, 0, 6),
        Field::Min(j) => two(BitRange::new(8 + j, 4, 4), BitRange::new(4 + j, 6, 2)),
        Field::Dmin => one(2, 0, 16),
        _ => one(0, 0, 16),
    }
}

/// Returns the bits of such a field in a tile. The six-bit integers start at byte `at`, followed by
/// `d` and `dmin`.
pub(crate) fn in_tile(at: u32, r: usize, field: Field) -> Bits {
    let second = r / 8;
    let d = pair_of_row(at + SIX_BITS, r);
    match field {
        Field::Scale(j) => six_bits(at, lane(r, j), 2 * second, j / 4),
        Field::Min(j) => six_bits(at, lane(r, j), 2 * second + 1, j / 4),
        Field::Dmin => one(d + 2, 0, 16),
        _ => one(d, 0, 16),
    }
}

/// Returns the fields of a block other than its codes.
pub(crate) fn numbers() -> Vec<Field> {
    let groups = (0..8).map(Field::Scale).chain((0..8).map(Field::Min));
    groups.chain([Field::D, Field::Dmin]).collect()
}

/// Returns the weight with this code in group `j`.
pub(crate) fn weight(j: usize, number: &dyn Fn(Field) -> u32, code: Field) -> f32 {
    let scale = f16_value(number(Field::D)) * number(Field::Scale(j)) as f32;
    let min = f16_value(number(Field::Dmin)) * number(Field::Min(j)) as f32;
    scale * number(code) as f32 - min
}

/// Sets the scales of a random block whose codes are below `codes`.
pub(crate) fn scale(block: &mut [u8], codes: f32, v: f32, size: f32, random: &mut Random) {
    put_f16(block, 0, v / (64.0 * codes));
    put_f16(block, 2, size * random.unit() / 128.0);
}

/// The scales of a lane that holds weights of the groups `j` and `j + 1`, for even `j`.
///
/// A block's header is `d, dmin` and three words of scales. In lanes of groups 0 to 3, the scales
/// are the low six bits of the first word's bytes, and the minima the low six bits of the second
/// word's. In the other lanes, the third word has the low four bits of both, with scales in the low
/// nibbles and minima in the high nibbles. Their upper two bits are the highest bits of the first
/// two words.
pub(crate) struct LaneScales<'k> {
    /// The `prmt` selector of the two bytes of the lane's groups in each of two words.
    pick: U32<'k>,
    /// The number of bits that the first two words are shifted by: 0 or 2.
    shift: U32<'k>,
    /// The mask of the bits that come from the third word: none, or the low four of each byte.
    third: U32<'k>,
}

impl<'k> LaneScales<'k> {
    /// Creates the scales of the pair of groups `pair`.
    pub(crate) fn new(pair: U32<'k>) -> Self {
        let shift = pair & 2;
        LaneScales {
            pick: (pair & 1).mad(0x2222, 0x5410),
            shift,
            third: shift.eq(0).select(0, 0x0f0f_0f0f),
        }
    }

    /// Returns both scales and both minima of the lane's two groups, in the low six bits of each
    /// byte.
    fn scales(&self, words: [U32<'k>; 3]) -> U32<'k> {
        let six = words[0].prmt(words[1], self.pick);
        let four = words[2].prmt(words[2] >> 4, self.pick);
        four.lop3(six >> self.shift, self.third, SELECT)
    }

    /// Returns the lane's two groups, given a block's header and the codes.
    pub(crate) fn groups(
        &self,
        [d, s0, s1, s2]: [U32<'k>; 4],
        codes: [Vec<F32<'k>>; 2],
    ) -> Vec<Group<'k>> {
        let [d, dmin] = halves(d);
        let less = -dmin;
        let six = self.scales([s0, s1, s2]);
        let [scale0, scale1, min0, min1] = bytes(SIX, split(six), 0);
        let scales = [(scale0, min0), (scale1, min1)];
        let group = |(q, (scale, min))| Group {
            q,
            scale: Some(d * scale),
            offset: Some(less * min),
        };
        codes.into_iter().zip(scales).map(group).collect()
    }
}

impl<'k> PackLane<'k> {
    /// Packs the nibbles of group `4 s + t`. In a block, 32 bytes hold one group in the low nibbles
    /// and the next in the high nibbles.
    pub(crate) fn nibbles_k(&self, codes: [Bytes<'k>; 2], s: u32) {
        let pair = |codes: Bytes<'k>| load8(codes.at(64 * s).row(self.t >> 1, 32));
        let shift = (self.t & 1) << 2;
        let group = codes.map(|codes| pair(codes).map(|word| word >> shift));
        self.nibbles(s, group);
    }

    /// Stores scales and minima, starting at byte `at`: low bits, high bits, then `d` and `dmin`.
    ///
    /// A header is `d, dmin` and 12 bytes of six-bit integers. Byte `t` of the first two words has
    /// the scale and the minimum of group `t` in its lower six bits, and the upper two bits of
    /// group `4 + t` above. Byte `t` of the third word has the lower four bits of group `4 + t`.
    /// Bits 4 to 7 of the first two words are therefore the upper bits of both groups, in the
    /// tile's order.
    pub(crate) fn scales_k(&self, at: u32, [a, b]: [[U32<'k>; 4]; 2]) {
        self.k.section(
            "format/common/k_pack_scales",
            "pack the scales and minima of Q4_K and Q5_K",
        );
        let pick = self.t.mad(0x11, 0x40);

        // For each row, the scale and the minimum of group `t`, and the low bits of group `4 + t`.
        let [(first, first_next), (second, second_next)] = [a, b].map(|header| {
            let lower = header[1].prmt(header[2], pick);
            let next = header[3].prmt(header[3] >> 4, pick);
            (lower, next)
        });
        let low = join(first, second);
        let next = join(first_next, second_next);
        let word = low.lop3(next << 4, 0x0f0f_0f0f, SELECT);
        self.six_bits(at, word, || (low >> 4) & 0x0f0f_0f0f);
        self.row_words(at + SIX_BITS, [a[0], b[0]]);
    }
}

/// The scales and minima of a tile, as floats. For each set: scale and minimum of row `g`, then of
/// row `g + 8`. Also `d` and `dmin` of both rows.
pub(crate) struct TileScales<'k> {
    pub(crate) numbers: [[F32<'k>; 4]; 2],
    pub(crate) d: [F32<'k>; 2],
    pub(crate) dmin: [F32<'k>; 2],
}

impl<'k> TileScales<'k> {
    /// Loads the lane's scales and minima, starting at byte `at`.
    pub(crate) fn load(lane: &TileLane<'k>, tile: TilePtr<'k>, at: u32) -> Self {
        lane.k.section(
            "format/common/k_tile_scales",
            "load scales and minima of a tile of Q4_K and Q5_K",
        );
        let [low, high] = lane.six_bit_words(tile, at);
        let [d, dmin] = lane.row_pairs(tile, at + SIX_BITS);
        let words = lane.six_bits(low, high);
        let numbers = words.map(|word| from_fn(|byte| number(word, byte as u32)));
        TileScales { numbers, d, dmin }
    }

    /// Returns the scales by set and row, for codes less the bias of `values`, times the rows'
    /// units.
    pub(crate) fn affine(&self, values: CodeValues, unit: Units<'k>) -> Vec<[Affine<'k>; 2]> {
        let d = times(self.d, unit);
        let dmin = times(self.dmin, unit);
        let row = |numbers: &[F32<'k>; 4], r: usize| {
            let scale = d[r] * numbers[2 * r];
            let min = dmin[r] * numbers[2 * r + 1];
            Affine::less(scale, min, values)
        };
        self.numbers
            .iter()
            .map(|numbers| [0, 1].map(|r| row(numbers, r)))
            .collect()
    }

    /// Computes `row += d * (sum over sets of scale * product) - dmin * (sum over sets of min *
    /// sum)`.
    pub(crate) fn apply(&self, rows: &mut RowSums<'k>, sets: &[Set<'k>; 2]) {
        let products = sets.each_ref().map(Set::scaled);
        for (r, row) in rows.iter_mut().enumerate() {
            let [[scale_0, min_0], [scale_1, min_1]] = self
                .numbers
                .map(|numbers| [numbers[2 * r], numbers[2 * r + 1]]);
            let scaled = scale_0.fma(products[0][r], scale_1 * products[1][r]);
            row.fma(self.d[r], scaled);
            let less = -self.dmin[r];
            let offset = min_0.fma(sets[0].sum, min_1 * sets[1].sum);
            row.fma(less, offset);
        }
    }
}

impl<'k> RowFragment<'k> {
    /// Applies the scale and the minimum of the fragment's group, which are in the words at byte
    /// `at`.
    pub(crate) fn scaled_k(&self, at: u32, codes: Vec<F32<'k>>) -> Vec<F32<'k>> {
        let set = self.index >> 3;
        let lane = self.group_lane();
        let words = self.tile.at(at);

        // Two bytes of each word belong to a row: the scale, then the minimum.
        let row = self.second << 4;
        let low = words.row(lane, 4).cast::<u32>().ld() >> set.mad(4, row);
        let high = words.at(128).row(lane >> 1, 4).cast::<u32>().ld();
        let high = high >> (lane & 1).mad(4, set.mad(2, row));

        // Bits 0 to 3 of each byte come from the first word, bits 4 and 5 from the second.
        let six = low.lop3(high << 4, 0x0f0f_0f0f, SELECT);
        let [d, dmin] = self.pair(words.at(SIX_BITS));
        let scale = d * SIX.at(six, 0);
        let min = dmin * SIX.at(six, 8);
        codes.into_iter().map(|q| q * scale - min).collect()
    }
}
