//! Formats of a matrix's rows, byte for byte as GGUF files hold them, and what their bytes mean.
//!
//! A row is a whole number of blocks. The names, the numbers of the types and the layouts are those of ggml
//! (`ggml.h`, and `block_q4_0` to `block_q6_K` with their `dequantize_row_*` in `ggml-common.h` and `ggml-quants.c`).
//! [`Format::dequantize`] is the specification that kernels are held to.

pub(crate) mod fragment;
pub mod tile;

use crate::case::Random;
use ptx_gen::{bf16, f16};

/// How the weights of a row are stored.
#[allow(non_camel_case_types)] // ggml's names
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// 32 four-bit weights under one scale.
    Q4_0,
    /// 32 four-bit weights with a scale and a minimum.
    Q4_1,
    /// 32 five-bit weights under one scale.
    Q5_0,
    /// 32 five-bit weights with a scale and a minimum.
    Q5_1,
    /// 32 signed bytes under one scale.
    Q8_0,
    /// 256 four-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q4_K,
    /// 256 five-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q5_K,
    /// 256 six-bit weights: 16 groups of 16, each with an eight-bit scale.
    Q6_K,
}

use Format::*;

/// One row of the table: format, ggml's name and number, weights and bytes of a block.
type Row = (Format, &'static str, u32, u32, u32);

const TABLE: [Row; 11] = [
    (F32, "F32", 0, 1, 4),
    (F16, "F16", 1, 1, 2),
    (BF16, "BF16", 30, 1, 2),
    (Q4_0, "Q4_0", 2, 32, 18),
    (Q4_1, "Q4_1", 3, 32, 20),
    (Q5_0, "Q5_0", 6, 32, 22),
    (Q5_1, "Q5_1", 7, 32, 24),
    (Q8_0, "Q8_0", 8, 32, 34),
    (Q4_K, "Q4_K", 12, 256, 144),
    (Q5_K, "Q5_K", 13, 256, 176),
    (Q6_K, "Q6_K", 14, 256, 210),
];

impl Format {
    /// Every format.
    pub const ALL: [Format; 11] = [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K];

    fn row(self) -> Row {
        TABLE[self as usize]
    }

    /// ggml's name: `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The name as kernels end on it: `q4_k`.
    pub(crate) fn suffix(self) -> String {
        self.name().to_lowercase()
    }

    /// The type's number in a GGUF file.
    pub fn ggml_type(self) -> u32 {
        self.row().2
    }

    /// The format of this number in a GGUF file; `None` for those that no kernel reads.
    pub fn from_ggml_type(number: u32) -> Option<Format> {
        Format::ALL.into_iter().find(|f| f.ggml_type() == number)
    }

    /// Weights in a block; a row's length is a multiple of it.
    pub fn block_len(self) -> u32 {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.row().4
    }

    /// Bytes of a row of `n` weights, a multiple of [`block_len`](Format::block_len).
    pub fn row_bytes(self, n: usize) -> usize {
        n / self.block_len() as usize * self.block_bytes() as usize
    }

    /// The weights that whole blocks stand for, the obvious way; bytes past the last whole block are left out.
    pub fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let block = match self {
            F32 => |b: &[u8], y: &mut Vec<f32>| y.push(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            F16 => |b: &[u8], y: &mut Vec<f32>| y.push(half(b)),
            BF16 => |b: &[u8], y: &mut Vec<f32>| y.push(bf16(u16::from_le_bytes([b[0], b[1]])).to_f32()),
            Q4_0 => q4_0,
            Q4_1 => q4_1,
            Q5_0 => q5_0,
            Q5_1 => q5_1,
            Q8_0 => q8_0,
            Q4_K => q4_k,
            Q5_K => q5_k,
            Q6_K => q6_k,
        };
        let mut y = Vec::with_capacity(bytes.len() / self.block_bytes() as usize * self.block_len() as usize);
        bytes.chunks_exact(self.block_bytes() as usize).for_each(|b| block(b, &mut y));
        y
    }

    /// The bytes of `blocks` random blocks: any codes, scales that give weights from about `-size` to `size`.
    pub fn random(self, blocks: usize, size: f32, random: &mut Random) -> Vec<u8> {
        let mut bytes = vec![0; blocks * self.block_bytes() as usize];
        bytes.chunks_exact_mut(self.block_bytes() as usize).for_each(|b| self.random_block(b, size, random));
        bytes
    }

    fn random_block(self, b: &mut [u8], size: f32, random: &mut Random) {
        b.fill_with(|| random.bits() as u8);
        let v = size * random.unit();
        let mut put = |at: usize, v: f32| b[at..at + 2].copy_from_slice(&f16::from_f32(v).0.to_le_bytes());
        match self {
            F32 => b.copy_from_slice(&v.to_le_bytes()),
            F16 => put(0, v),
            BF16 => b.copy_from_slice(&bf16::from_f32(v).0.to_le_bytes()),
            Q4_0 => put(0, v / 8.0),
            Q4_1 => {
                put(0, v / 16.0);
                put(2, size * random.unit() / 2.0);
            }
            Q5_0 => put(0, v / 16.0),
            Q5_1 => {
                put(0, v / 32.0);
                put(2, size * random.unit() / 2.0);
            }
            Q8_0 => put(0, v / 128.0),
            Q4_K => {
                put(0, v / 1024.0);
                put(2, size * random.unit() / 128.0);
            }
            Q5_K => {
                put(0, v / 2048.0);
                put(2, size * random.unit() / 128.0);
            }
            Q6_K => put(208, v / 4096.0),
        }
    }
}

/// The binary16 value in the first two bytes.
fn half(b: &[u8]) -> f32 {
    f16(u16::from_le_bytes([b[0], b[1]])).to_f32()
}

/// The codes of 32 weights: low nibbles, then high nibbles; bit `j` of `qh` is the fifth bit of code `j`.
fn codes(qs: &[u8], qh: u32) -> impl Iterator<Item = f32> {
    let code = move |j: usize| ((qs[j % 16] >> (4 * (j / 16))) & 15) | ((((qh >> j) & 1) as u8) << 4);
    (0..32).map(move |j| f32::from(code(j)))
}

/// The 32-bit number in the first four bytes.
fn word(b: &[u8]) -> u32 {
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

/// `d: f16, qs: [u8; 16]`, `w = d * (q - 8)`.
fn q4_0(b: &[u8], y: &mut Vec<f32>) {
    let d = half(b);
    y.extend(codes(&b[2..], 0).map(|q| d * (q - 8.0)));
}

/// `d, m: f16, qs: [u8; 16]`, `w = d * q + m`.
fn q4_1(b: &[u8], y: &mut Vec<f32>) {
    let (d, m) = (half(b), half(&b[2..]));
    y.extend(codes(&b[4..], 0).map(|q| d * q + m));
}

/// `d: f16, qh: u32, qs: [u8; 16]`, `w = d * (q - 16)`.
fn q5_0(b: &[u8], y: &mut Vec<f32>) {
    let d = half(b);
    y.extend(codes(&b[6..], word(&b[2..])).map(|q| d * (q - 16.0)));
}

/// `d, m: f16, qh: u32, qs: [u8; 16]`, `w = d * q + m`.
fn q5_1(b: &[u8], y: &mut Vec<f32>) {
    let (d, m) = (half(b), half(&b[2..]));
    y.extend(codes(&b[8..], word(&b[4..])).map(|q| d * q + m));
}

/// `d: f16, qs: [i8; 32]`, `w = d * q`.
fn q8_0(b: &[u8], y: &mut Vec<f32>) {
    let d = half(b);
    y.extend(b[2..].iter().map(|&q| d * f32::from(q as i8)));
}

/// `d, dmin: f16, scales: [u8; 12], qs: [u8; 128]`, `w = d * scale * q - dmin * min`.
fn q4_k(b: &[u8], y: &mut Vec<f32>) {
    q45_k(b, &[0; 32], &b[16..], y)
}

/// `d, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`, `w = d * scale * q - dmin * min`.
fn q5_k(b: &[u8], y: &mut Vec<f32>) {
    q45_k(b, &b[16..48], &b[48..], y)
}

/// Each 32 bytes of `qs` hold 64 weights: the first 32 in the low nibbles, the next 32 in the high ones. Bit `j` of
/// `qh[l]` is the fifth bit of weight `l` of group `j`.
fn q45_k(b: &[u8], qh: &[u8], qs: &[u8], y: &mut Vec<f32>) {
    let (d, dmin) = (half(b), half(&b[2..]));
    for (j, qs) in qs.chunks_exact(32).flat_map(|qs| [qs; 2]).enumerate() {
        let (scale, min) = scale_min_k4(&b[4..16], j);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        let code = |(q, h): (&u8, &u8)| ((q >> (4 * (j % 2))) & 15) | (((h >> j) & 1) << 4);
        y.extend(qs.iter().zip(qh).map(|bits| scale * f32::from(code(bits)) - min));
    }
}

/// The six-bit scale and minimum of group `j`: ggml's `get_scale_min_k4`.
///
/// Groups 0 to 3 have theirs in the low bits of bytes `j` and `j + 4`; the four low bits of the others share bytes
/// 8 to 11, and their two high bits fill the first eight.
fn scale_min_k4(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (s[j] & 63, s[j + 4] & 63);
    }
    ((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4))
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`, `w = d * scale * (q - 32)`.
///
/// Each half of a block is 128 weights: weight `32 k + l` has its four low bits in a nibble of
/// `ql[32 (k mod 2) + l]` (high for k > 1), its two high bits in `qh[l]` from bit `2 k` on.
fn q6_k(b: &[u8], y: &mut Vec<f32>) {
    let d = half(&b[208..]);
    for half in 0..2 {
        let (ql, qh, scales) = (&b[64 * half..], &b[128 + 32 * half..], &b[192 + 8 * half..]);
        for i in 0..128 {
            let (k, l) = (i / 32, i % 32);
            let low = (ql[32 * (k % 2) + l] >> (4 * (k / 2))) & 15;
            let high = (qh[l] >> (2 * k)) & 3;
            let q = i32::from(low | (high << 4)) - 32;
            y.push(d * f32::from(scales[i / 16] as i8) * q as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_formats() {
        for (i, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(TABLE[i].0, format);
            assert_eq!(Format::from_ggml_type(format.ggml_type()), Some(format));
        }
        assert_eq!(Format::from_ggml_type(10), None, "Q2_K has no kernel");
    }

    #[test]
    fn sizes() {
        let sizes = [
            (F32, 3, 12),
            (F16, 3, 6),
            (BF16, 3, 6),
            (Q4_0, 64, 36),
            (Q4_1, 64, 40),
            (Q5_0, 64, 44),
            (Q5_1, 64, 48),
            (Q8_0, 64, 68),
            (Q4_K, 512, 288),
            (Q5_K, 512, 352),
            (Q6_K, 256, 210),
        ];
        for (format, n, bytes) in sizes {
            assert_eq!(format.row_bytes(n), bytes, "{}", format.name());
            assert_eq!(format.dequantize(&vec![0; bytes]).len(), n, "{}", format.name());
        }
    }

    const ONE: [u8; 2] = [0x00, 0x3c];
    const TWO: [u8; 2] = [0x00, 0x40];

    #[test]
    fn plain() {
        assert_eq!(F32.dequantize(&[0, 0, 0xc0, 0xbf]), [-1.5]);
        assert_eq!(F16.dequantize(&[0x00, 0xbe]), [-1.5]);
        assert_eq!(BF16.dequantize(&[0xc0, 0xbf]), [-1.5]);
    }

    #[test]
    fn q8_0_is_scale_times_byte() {
        let mut b = [&TWO[..], &[0; 32]].concat();
        b[2] = 127;
        b[33] = 0x80;
        let y = Q8_0.dequantize(&b);
        assert_eq!((y[0], y[1], y[31]), (254.0, 0.0, -256.0));
    }

    /// Bytes of a block that are set, the index of a weight, and what it must be.
    type Field = (&'static [(usize, u8)], usize, f32);

    #[test]
    fn q4_0_to_q5_1_fields() {
        // d = 1, m = 2 where there is one, all else zero
        #[rustfmt::skip] // one field a line
        let cases: [(Format, Field); 15] = [
            (Q4_0, (&[], 0, -8.0)),
            (Q4_0, (&[(2, 0x0f)], 0, 7.0)),                // first low nibble
            (Q4_0, (&[(2, 0xa0)], 16, 2.0)),               // first high nibble
            (Q4_0, (&[(17, 0x90)], 31, 1.0)),              // last
            (Q4_1, (&[], 31, 2.0)),
            (Q4_1, (&[(4, 0x0f)], 0, 17.0)),               // first low nibble
            (Q4_1, (&[(19, 0xf0)], 31, 17.0)),             // last
            (Q5_0, (&[], 1, -16.0)),
            (Q5_0, (&[(6, 0x0f)], 0, -1.0)),               // first low nibble
            (Q5_0, (&[(2, 0x02), (7, 0x03)], 1, 3.0)),     // fifth bit of code 1
            (Q5_0, (&[(5, 0x80), (21, 0xf0)], 31, 15.0)),  // fifth bit of the last
            (Q5_0, (&[(4, 0x01), (6, 0x50)], 16, 5.0)),    // fifth bit of code 16
            (Q5_1, (&[(8, 0x0f)], 0, 17.0)),               // first low nibble
            (Q5_1, (&[(4, 0x01)], 0, 18.0)),               // first fifth bit
            (Q5_1, (&[(7, 0x80), (23, 0xf0)], 31, 33.0)),  // last
        ];
        for (format, (fields, i, wanted)) in cases {
            let mut b = vec![0; format.block_bytes() as usize];
            b[..2].copy_from_slice(&ONE);
            if matches!(format, Q4_1 | Q5_1) {
                b[2..4].copy_from_slice(&TWO);
            }
            fields.iter().for_each(|&(at, v)| b[at] = v);
            assert_eq!(format.dequantize(&b)[i], wanted, "{format:?} {fields:?}");
        }
    }

    /// One bit or field of a block is set, and the weights that must follow are counted by hand.
    #[test]
    fn q4_k_fields() {
        // d = 1, dmin = 2, all else zero
        #[rustfmt::skip] // one field a line
        let cases: [Field; 9] = [
            (&[(4, 3), (16, 0x0b)], 0, 33.0),                 // scale 0, first low nibble
            (&[(5, 3), (16, 0xb0)], 32, 33.0),                // scale 1, first high nibble
            (&[(7, 63), (16 + 63, 0xf0)], 127, 945.0),        // scale 3, last of the second 32 bytes
            (&[(8, 5)], 0, -10.0),                            // min 0
            (&[(12, 0x07), (16 + 64, 0x02)], 128, 14.0),      // scale 4, four low bits
            (&[(4, 0xc0), (16 + 64, 0x01)], 128, 48.0),       // scale 4, two high bits
            (&[(15, 0x90)], 255, -18.0),                      // min 7, four low bits
            (&[(11, 0x80)], 255, -64.0),                      // min 7, two high bits
            (&[(7, 0x40), (15, 1), (143, 0x10)], 255, 17.0),  // scale 7 of both parts, last nibble
        ];
        for (fields, i, wanted) in cases {
            let mut b = [&ONE[..], &TWO, &[0; 140]].concat();
            fields.iter().for_each(|&(at, v)| b[at] = v);
            assert_eq!(Q4_K.dequantize(&b)[i], wanted, "{fields:?}");
        }
    }

    #[test]
    fn q5_k_fields() {
        // d = 1, dmin = 2, all else zero
        #[rustfmt::skip] // one field a line
        let cases: [Field; 7] = [
            (&[(4, 3), (48, 0x0b)], 0, 33.0),                 // scale 0, first low nibble
            (&[(4, 3), (16, 0x01)], 0, 48.0),                 // first fifth bit
            (&[(5, 3), (17, 0x02), (49, 0x10)], 33, 51.0),    // fifth bit of group 1
            (&[(12, 0x07), (47, 0x10)], 159, 112.0),          // fifth bit of group 4
            (&[(8, 5)], 0, -10.0),                            // min 0
            (&[(15, 0x90)], 255, -18.0),                      // min 7
            (&[(7, 0x40), (15, 1), (47, 0x80), (175, 0xf0)], 255, 527.0),  // scale 7, last of both
        ];
        for (fields, i, wanted) in cases {
            let mut b = [&ONE[..], &TWO, &[0; 172]].concat();
            fields.iter().for_each(|&(at, v)| b[at] = v);
            assert_eq!(Q5_K.dequantize(&b)[i], wanted, "{fields:?}");
        }
    }

    #[test]
    fn q6_k_fields() {
        // d = 2, all else zero
        #[rustfmt::skip] // one field a line
        let cases: [Field; 7] = [
            (&[(192, 1)], 0, -64.0),                                   // all bits zero: q = -32
            (&[(192, 1), (0, 0x0f)], 0, -34.0),                        // low nibble
            (&[(192, 1), (128, 0x02)], 0, 0.0),                        // high bits alone
            (&[(193, 0xff), (31, 0x01), (159, 0x03)], 31, -34.0),      // q = 17, scale -1
            (&[(195, 2), (63, 0x05), (159, 0x0c)], 63, 84.0),          // second 32: q = 21
            (&[(196, 1), (0, 0x30), (128, 0x20)], 64, 6.0),            // third 32: high nibble, q = 3
            (&[(207, 0x80), (127, 0xf0), (191, 0xc0)], 255, -7936.0),  // last: q = 31, scale -128
        ];
        for (fields, i, wanted) in cases {
            let mut b = [&[0; 208][..], &TWO].concat();
            fields.iter().for_each(|&(at, v)| b[at] = v);
            assert_eq!(Q6_K.dequantize(&b)[i], wanted, "{fields:?}");
        }
    }

    #[test]
    fn random_blocks_are_finite() {
        for format in Format::ALL {
            let bytes = format.random(100, 1.0, &mut Random(1));
            let weights = format.dequantize(&bytes);
            assert!(weights.iter().all(|w| w.abs() < 2.0), "{}", format.name());
            assert!(weights.iter().any(|w| w.abs() > 0.5), "{}", format.name());
        }
    }
}
