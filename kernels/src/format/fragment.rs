//! How the lanes of a warp divide a row of weights.
//!
//! The lanes divide a block among them, and each lane takes the same *fragment* of every block it visits, so
//! everything that depends on the fragment (offsets, masks) is computed once. A fragment gives [`Group`]s: weights
//! `scale * q + offset` with individual codes `q` and common scale and offset. Both the matrix-vector product and the
//! copy of a row are built from the groups.
//!
//! Codes are converted to floats without a conversion instruction, which is slow on most GPUs. The exponent of a
//! float chooses the unit of its fraction: under the exponent of `2^(23 - s)`, bit `s` counts one. A masked field
//! that starts at bit `s`, with that exponent above it, is the float `2^(23 - s) + field`. One exact subtraction
//! gives the code.

use crate::format::Format;
use ptx_gen::*;

/// The bytes of a matrix.
pub(crate) type Bytes<'k> = Ptr<'k, u8, Read>;

/// How the lanes of a warp divide a format's rows. All sizes except the bytes are powers of two.
pub(crate) struct LaneSplit {
    /// Weights in a block: ggml's block size, or 4 for unblocked formats.
    pub(crate) len: u32,
    /// Bytes of a block.
    pub(crate) bytes: u32,
    /// Lanes that share a block.
    pub(crate) lanes: u32,
    /// The `float4`s of a fragment: the offset of each within the block.
    pub(crate) float4s: &'static [u32],
}

impl LaneSplit {
    /// The division of `format`.
    pub(crate) const fn of(format: Format) -> LaneSplit {
        const fn split(len: u32, bytes: u32, lanes: u32, float4s: &'static [u32]) -> LaneSplit {
            LaneSplit { len, bytes, lanes, float4s }
        }
        match format {
            Format::F32 => split(4, 16, 1, &[0]),
            Format::F16 | Format::BF16 => split(4, 8, 1, &[0]),
            Format::Q4_0 => split(32, 18, 4, &[0, 16]),
            Format::Q4_1 => split(32, 20, 4, &[0, 16]),
            Format::Q5_0 => split(32, 22, 4, &[0, 16]),
            Format::Q5_1 => split(32, 24, 4, &[0, 16]),
            Format::Q8_0 => split(32, 34, 8, &[0]),
            Format::Q4_K => split(256, 144, 16, &[0, 4, 32, 36]),
            Format::Q5_K => split(256, 176, 16, &[0, 4, 32, 36]),
            Format::Q6_K => split(256, 210, 16, &[0, 32, 64, 96]),
        }
    }

    /// The number of blocks in `n` weights.
    pub(crate) fn blocks<'k>(&self, n: U32<'k>) -> U32<'k> {
        n >> self.len.ilog2()
    }

    /// Blocks that a warp processes at once.
    pub(crate) fn blocks_of_warp(&self) -> u32 {
        32 / self.lanes
    }

    /// The block of `thread`, among the blocks that consecutive threads process at once.
    pub(crate) fn block<'k>(&self, thread: U32<'k>) -> U32<'k> {
        thread >> self.lanes.ilog2()
    }
}

/// The part of a block that one lane reads.
pub(crate) trait Fragment<'k> {
    /// Its first weight, relative to the block's first.
    fn first(&self) -> U32<'k>;
    /// Where its bytes are.
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>>;
    /// Loads its words, at these addresses plus `bytes`.
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>>;
    /// Its weights, in the order of [`LaneSplit::float4s`].
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>>;
}

/// Weights `scale * q + offset`; a missing scale is 1, a missing offset is 0.
pub(crate) struct Group<'k> {
    pub(crate) q: Vec<F32<'k>>,
    pub(crate) scale: Option<F32<'k>>,
    pub(crate) offset: Option<F32<'k>>,
}

/// The fragment of `thread`. The low bits of `thread` are its index among the lanes that share a block.
pub(crate) fn fragment<'k>(format: Format, k: Builder<'k>, thread: U32<'k>) -> Box<dyn Fragment<'k> + 'k> {
    let lane = |lanes: u32| thread & (lanes - 1);
    let lanes = LaneSplit::of(format).lanes;
    match format {
        Format::F32 => Box::new(Unquantized { first: k.val(0), load: load_f32, unpack: unpack_f32 }),
        Format::F16 => Box::new(Unquantized { first: k.val(0), load: load_half, unpack: unpack_f16 }),
        Format::BF16 => Box::new(Unquantized { first: k.val(0), load: load_half, unpack: unpack_bf16 }),
        Format::Q4_0 => Box::new(LegacyQuant { lane: lane(lanes), min: 0, fifth: 0, code: NIBBLE_LESS_8 }),
        Format::Q4_1 => Box::new(LegacyQuant { lane: lane(lanes), min: 1, fifth: 0, code: NIBBLE }),
        Format::Q5_0 => Box::new(LegacyQuant { lane: lane(lanes), min: 0, fifth: 2, code: FIVE_LESS_16 }),
        Format::Q5_1 => Box::new(LegacyQuant { lane: lane(lanes), min: 1, fifth: 2, code: FIVE }),
        Format::Q8_0 => Box::new(Q8::new(lane(lanes))),
        Format::Q4_K => Box::new(Q4::new(lane(lanes))),
        Format::Q5_K => Box::new(Q5(Q4::new(lane(lanes)))),
        Format::Q6_K => Box::new(Q6::new(lane(lanes))),
    }
}

/// Four unquantized weights.
struct Unquantized<'k> {
    first: U32<'k>,
    load: fn(Bytes<'k>) -> Vec<U32<'k>>,
    unpack: fn(&[U32<'k>]) -> Vec<F32<'k>>,
}

impl<'k> Fragment<'k> for Unquantized<'k> {
    fn first(&self) -> U32<'k> {
        self.first
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        (self.load)(addresses[0].at(bytes))
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        vec![Group { q: (self.unpack)(words), scale: None, offset: None }]
    }
}

fn load_f32(at: Bytes<'_>) -> Vec<U32<'_>> {
    at.stream().cast::<u32>().ld4().into()
}
fn load_half(at: Bytes<'_>) -> Vec<U32<'_>> {
    at.stream().cast::<u32>().ld2().into()
}
fn unpack_f32<'k>(words: &[U32<'k>]) -> Vec<F32<'k>> {
    words.iter().map(|w| w.bits()).collect()
}
pub(crate) fn unpack_f16<'k>(words: &[U32<'k>]) -> Vec<F32<'k>> {
    words.iter().flat_map(|&w| halves(w)).collect()
}
pub(crate) fn unpack_bf16<'k>(words: &[U32<'k>]) -> Vec<F32<'k>> {
    words.iter().flat_map(|&w| [(w << 16).bits(), (w & 0xffff_0000).bits()]).collect()
}

/// ggml's legacy quantizations of 4 and 5 bits: four bytes of 16. Low nibbles are weights of the first half, high
/// nibbles of the second half. Blocks are halfwords: the scale, the minimum, the fifth bits of all weights in order,
/// and the nibbles.
struct LegacyQuant<'k> {
    lane: U32<'k>,
    /// Halfwords of a minimum.
    min: u32,
    /// Halfwords of fifth bits.
    fifth: u32,
    code: Code,
}

impl<'k> LegacyQuant<'k> {
    /// The lane's four of 16 fifth bits, each at bit 4 of a byte.
    fn fifth(&self, bits: U32<'k>) -> U32<'k> {
        // The multiplication moves bit i of the four to bit 8 i; the mask drops the other copies.
        let four = (bits >> (self.lane << 2)) & 15;
        ((four * 0x0020_4081) & 0x0101_0101) << 4
    }

    /// The codes of a half, a byte each: the low nibbles of `nibbles`, with their fifth bits.
    fn half(&self, nibbles: U32<'k>, fifth: Option<&U32<'k>>) -> U32<'k> {
        match fifth {
            Some(&bits) => nibbles.lop3(self.fifth(bits), 0x0f0f_0f0f, SELECT),
            None => nibbles,
        }
    }
}

impl<'k> Fragment<'k> for LegacyQuant<'k> {
    fn first(&self) -> U32<'k> {
        self.lane << 2
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 4)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = 1 + self.min + self.fifth;
        let words = (0..header).map(|i| halfword(addresses[0], bytes + 2 * i));
        let codes = (0..2).map(|i| halfword(addresses[1], bytes + 2 * (header + i)));
        words.chain(codes).collect()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let (header, codes) = words.split_at(words.len() - 2);
        let (scales, fifth) = header.split_at(1 + self.min as usize);
        let nibbles = join(codes[0], codes[1]);
        let scale = halves(scales[0])[0];
        let offset = scales.get(1).map(|&m| halves(m)[0]);
        let group = |half: usize| {
            let codes = self.half(nibbles >> (4 * half as u32), fifth.get(half));
            Group { q: bytes(self.code, split(codes), 0).into(), scale: Some(scale), offset }
        };
        vec![group(0), group(1)]
    }
}

/// Four bytes of 32, and their scale. Blocks are 34 bytes, so only halfwords are aligned.
struct Q8<'k> {
    first: U32<'k>,
}

impl<'k> Q8<'k> {
    fn new(lane: U32<'k>) -> Self {
        Q8 { first: lane << 2 }
    }
}

impl<'k> Fragment<'k> for Q8<'k> {
    fn first(&self) -> U32<'k> {
        self.first
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.at(self.first)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        vec![
            halfword(addresses[0], bytes),
            halfword(addresses[1], bytes + 2),
            halfword(addresses[1], bytes + 4),
        ]
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, q01, q23] = words else { unreachable!("three words are loaded") };
        let q = [q01, q23].into_iter().flat_map(|w| [BYTE.at(w, 0), BYTE.at(w, 8)]).collect();
        vec![Group { q, scale: Some(halves(d)[0]), offset: None }]
    }
}

/// Eight bytes of 32, whose low nibbles are in one group and whose high nibbles in the next.
///
/// A block's header is `d, dmin` and three words of scales. In lanes of groups 0 to 3 the scales are the low six
/// bits of the first word's bytes and the minima those of the second word's. In the others, the third word has the
/// low four bits of both (scales in the low nibbles, minima in the high ones), and the first two words' highest
/// bits are the upper two.
struct Q4<'k> {
    lane: U32<'k>,
    /// Picks the two bytes of the lane's groups from each of two words.
    pick: U32<'k>,
    /// How far the first two words are shifted: 0 or 2.
    shift: U32<'k>,
    /// Which bits come from the third word: none, or each byte's low four.
    third: U32<'k>,
}

impl<'k> Q4<'k> {
    fn new(lane: U32<'k>) -> Self {
        let pair = lane >> 2;
        let shift = pair & 2;
        Q4 { lane, pick: (pair & 1).mad(0x2222, 0x5410), shift, third: shift.eq(0).select(0, 0x0f0f_0f0f) }
    }

    /// Scale and scale, minimum and minimum of the lane's two groups: the low six bits of each byte.
    fn scales(&self, words: [U32<'k>; 3]) -> U32<'k> {
        let six = words[0].prmt(words[1], self.pick);
        let four = words[2].prmt(words[2] >> 4, self.pick);
        four.lop3(six >> self.shift, self.third, SELECT)
    }

    /// The lane's two groups, from a block's header and their codes.
    fn groups(&self, [d, s0, s1, s2]: [U32<'k>; 4], codes: [Vec<F32<'k>>; 2]) -> Vec<Group<'k>> {
        let [d, dmin] = halves(d);
        let less = -dmin;
        let [scale0, scale1, min0, min1] = bytes(SIX, split(self.scales([s0, s1, s2])), 0);
        let scales = [(scale0, min0), (scale1, min1)];
        let group = |(q, (scale, min))| Group { q, scale: Some(d * scale), offset: Some(less * min) };
        codes.into_iter().zip(scales).map(group).collect()
    }
}

impl<'k> Fragment<'k> for Q4<'k> {
    /// The pair's 64 weights start at `64 (lane / 4)`, the lane's eight `8 (lane % 4)` later.
    fn first(&self) -> U32<'k> {
        (self.lane + (self.lane & 12)) << 3
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.lane, 8)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = addresses[0].at(bytes).cast::<u32>().ld4();
        let codes = addresses[1].at(bytes + 16).stream().cast::<u32>().ld2();
        [&header[..], &codes].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, s0, s1, s2, low, high] = words else { unreachable!("six words are loaded") };
        let codes = [split(low), split(high)];
        let q = |at| codes.iter().flat_map(|&w| bytes(NIBBLE, w, at)).collect();
        self.groups([d, s0, s1, s2], [q(0), q(4)])
    }
}

/// [`Q4`] with a fifth bit: those of the lane's two groups are neighbours in eight bytes that four lanes share.
struct Q5<'k>(Q4<'k>);

impl<'k> Fragment<'k> for Q5<'k> {
    fn first(&self) -> U32<'k> {
        self.0.first()
    }
    fn addresses(&self, block: Bytes<'k>) -> Vec<Bytes<'k>> {
        vec![block, block.row(self.0.lane & 3, 8), block.row(self.0.lane, 8)]
    }
    fn load(&self, addresses: &[Bytes<'k>], bytes: u32) -> Vec<U32<'k>> {
        let header = addresses[0].at(bytes).cast::<u32>().ld4();
        let fifth = addresses[1].at(bytes + 16).cast::<u32>().ld2();
        let codes = addresses[2].at(bytes + 48).stream().cast::<u32>().ld2();
        [&header[..], &fifth, &codes].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, s0, s1, s2, h0, h1, low, high] = words else { unreachable!("eight words are loaded") };
        let first = (self.0.lane >> 2) << 1;
        let halves = [(low, h0 >> first), (high, h1 >> first)];
        let q = |group: u32| {
            let codes = halves.map(|(low, fifth)| {
                let fifth = (fifth << (4 - group)) & 0x1010_1010;
                split((low >> (4 * group)).lop3(fifth, 0x0f0f_0f0f, SELECT))
            });
            codes.into_iter().flat_map(|w| bytes(FIVE, w, 0)).collect()
        };
        self.0.groups([d, s0, s1, s2], [q(0), q(1)])
    }
}

/// Four consecutive weights of each 32 in half a block. Blocks are 210 bytes, so only halfwords are aligned.
struct Q6<'k> {
    /// Which half.
    half: U32<'k>,
    /// Which four.
    four: U32<'k>,
}

impl<'k> Q6<'k> {
    fn new(lane: U32<'k>) -> Self {
        Q6 { half: lane >> 3, four: lane & 7 }
    }
}

impl<'k> Fragment<'k> for Q6<'k> {
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
        let &[block, low, high, scale] = addresses else { unreachable!("four addresses are given") };
        let lows = [0, 2, 32, 34].map(|at| halfword(low, bytes + at));
        let highs = [128, 130].map(|at| halfword(high, bytes + at));
        let scales = [192, 194, 196, 198].map(|at| scale.at(bytes + at).ld());
        [&[halfword(block, bytes + 208)][..], &lows, &highs, &scales].concat()
    }
    fn unpack(&self, words: &[U32<'k>]) -> Vec<Group<'k>> {
        let &[d, a, b, c, e, f, g, ref scales @ ..] = words else { unreachable!("eleven words are loaded") };
        let d = halves(d)[0];
        let (low0, low1, high) = (join(a, b), join(c, e), join(f, g));
        let codes = [(low0, high << 4), (low1, high << 2), (low0 >> 4, high), (low1 >> 4, high >> 2)];
        let group = |((low, high), &scale): ((U32<'k>, U32<'k>), &U32<'k>)| Group {
            q: bytes(SIX_LESS_32, split(low.lop3(high, 0x0f0f_0f0f, SELECT)), 0).into(),
            scale: Some(d * BYTE.at(scale, 0)),
            offset: None,
        };
        codes.into_iter().zip(scales).map(group).collect()
    }
}

/// The truth table of `c ? a : b`, bit by bit, for `lop3`.
pub(crate) const SELECT: u8 = (0xaa & 0xf0) | (!0xaa & 0xcc);
/// The truth table of `(a & b) ^ c`.
const AND_XOR: u8 = (0xf0 & 0xcc) ^ 0xaa;

/// What a field of bits stands for: its value after inverting the bits in `flip`, less `bias`.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    bits: u32,
    flip: u32,
    bias: u32,
}

pub(crate) const NIBBLE: Code = Code { bits: 4, flip: 0, bias: 0 };
pub(crate) const NIBBLE_LESS_8: Code = Code { bits: 4, flip: 0, bias: 8 };
pub(crate) const FIVE: Code = Code { bits: 5, flip: 0, bias: 0 };
const FIVE_LESS_16: Code = Code { bits: 5, flip: 0, bias: 16 };
pub(crate) const SIX: Code = Code { bits: 6, flip: 0, bias: 0 };
pub(crate) const SIX_LESS_32: Code = Code { bits: 6, flip: 0, bias: 32 };
/// Two's complement, its sign bit inverted, is the number plus 128.
pub(crate) const BYTE: Code = Code { bits: 8, flip: 0x80, bias: 128 };

impl Code {
    /// The number in the bits of `w` from bit `at` on, which end below bit 23: see the top of this file.
    pub(crate) fn at<'k>(&self, w: U32<'k>, at: u32) -> F32<'k> {
        let unit = (1 << (23 - at)) as f32;
        let mask = ((1 << self.bits) - 1) << at;
        let float: F32 = w.lop3(mask, unit.to_bits() | (self.flip << at), AND_XOR).bits();
        float - (unit + self.bias as f32)
    }
}

/// A word and its upper half, so that each byte is at bit 0 or 8 of one of them.
pub(crate) fn split(w: U32<'_>) -> [U32<'_>; 2] {
    [w, w >> 16]
}

/// The numbers from bit `at` on of each of four bytes.
pub(crate) fn bytes<'k>(code: Code, [w, upper]: [U32<'k>; 2], at: u32) -> [F32<'k>; 4] {
    [code.at(w, at), code.at(w, at + 8), code.at(upper, at), code.at(upper, at + 8)]
}

/// The two binary16 values of a word.
pub(crate) fn halves(w: U32<'_>) -> [F32<'_>; 2] {
    w.bits::<f16x2>().unpack().map(|h| h.cvt())
}

/// The 16 bits at byte `at`.
pub(crate) fn halfword(p: Bytes<'_>, at: u32) -> U32<'_> {
    p.at(at).cast::<u16>().ld()
}

/// Two halfwords as a word.
pub(crate) fn join<'k>(low: U32<'k>, high: U32<'k>) -> U32<'k> {
    low.prmt(high, 0x5410)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_whole_blocks() {
        for format in Format::ALL {
            let LaneSplit { len, bytes, lanes, float4s } = LaneSplit::of(format);
            assert_eq!(len % format.block_len(), 0, "{}", format.name());
            assert_eq!(format.row_bytes(len as usize), bytes as usize, "{}", format.name());
            assert_eq!(lanes * 4 * float4s.len() as u32, len, "{}", format.name());
        }
    }
}
