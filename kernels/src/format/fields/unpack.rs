//! Conversion of packed codes to floats, `f16` values and bytes in registers.
//!
//! Codes are converted to floats without a conversion instruction, which is slow on most GPUs. The
//! exponent of a float determines the unit of its fraction: under the exponent of `2^(23 - s)`, bit
//! `s` counts one. A masked field that starts at bit `s`, with that exponent above it, is the float
//! `2^(23 - s) + field`. One exact subtraction yields the code.

use crate::format::lanes::fragment::Bytes;
use ptx_gen::*;

/// The truth table of `c ? a : b`, bit by bit, for `lop3`.
pub(crate) const SELECT: u8 = (0xaa & 0xf0) | (!0xaa & 0xcc);

/// The truth table of `(a & b) ^ c` for `lop3`.
const AND_XOR: u8 = (0xf0 & 0xcc) ^ 0xaa;

/// The value of a field of bits: the field with the bits in `flip` inverted, less `bias`.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    pub(crate) bits: u32,
    flip: u32,
    pub(crate) bias: u32,
}

pub(crate) const TWO: Code = Code {
    bits: 2,
    flip: 0,
    bias: 0,
};
pub(crate) const TWO_LESS_2: Code = Code {
    bits: 2,
    flip: 0,
    bias: 2,
};
pub(crate) const THREE_LESS_4: Code = Code {
    bits: 3,
    flip: 0,
    bias: 4,
};
pub(crate) const NIBBLE: Code = Code {
    bits: 4,
    flip: 0,
    bias: 0,
};
pub(crate) const NIBBLE_LESS_8: Code = Code {
    bits: 4,
    flip: 0,
    bias: 8,
};
pub(crate) const FIVE: Code = Code {
    bits: 5,
    flip: 0,
    bias: 0,
};
pub(crate) const FIVE_LESS_16: Code = Code {
    bits: 5,
    flip: 0,
    bias: 16,
};
pub(crate) const SIX: Code = Code {
    bits: 6,
    flip: 0,
    bias: 0,
};
pub(crate) const SIX_LESS_32: Code = Code {
    bits: 6,
    flip: 0,
    bias: 32,
};
/// A signed byte. Two's complement with an inverted sign bit is the value plus 128.
pub(crate) const BYTE: Code = Code {
    bits: 8,
    flip: 0x80,
    bias: 128,
};

impl Code {
    /// Returns the value in the bits of `w` that start at bit `at` and end below bit 23, as the
    /// module documentation describes.
    pub(crate) fn at<'k>(&self, w: U32<'k>, at: u32) -> F32<'k> {
        let unit = (1 << (23 - at)) as f32;
        let mask = ((1 << self.bits) - 1) << at;
        let float: F32 = w
            .lop3(mask, unit.to_bits() | (self.flip << at), AND_XOR)
            .bits();
        float - (unit + self.bias as f32)
    }
}

/// Returns a word and its upper half, so that each byte is at bit 0 or 8 of one of them.
pub(crate) fn split(w: U32<'_>) -> [U32<'_>; 2] {
    [w, w >> 16]
}

/// Returns the values that start at bit `at` of each of four bytes.
pub(crate) fn bytes<'k>(code: Code, [w, upper]: [U32<'k>; 2], at: u32) -> [F32<'k>; 4] {
    [
        code.at(w, at),
        code.at(w, at + 8),
        code.at(upper, at),
        code.at(upper, at + 8),
    ]
}

/// Returns the two `f16` values of a word as floats.
pub(crate) fn halves(w: U32<'_>) -> [F32<'_>; 2] {
    w.bits::<f16x2>().unpack().map(|h| h.cvt())
}

/// Loads the 16 bits at byte `at`.
pub(crate) fn halfword(p: Bytes<'_>, at: u32) -> U32<'_> {
    p.at(at).cast::<u16>().ld()
}

/// Joins two halfwords into a word.
pub(crate) fn join<'k>(low: U32<'k>, high: U32<'k>) -> U32<'k> {
    low.prmt(high, 0x5410)
}
