//! The bits of a field, in the blocks of a file and in a tile.

/// A field of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    /// The code of this weight.
    Code(usize),
    /// The scale of this group of weights, an integer.
    Scale(usize),
    /// The minimum of this group of weights, an integer.
    Min(usize),
    /// The scale of the block.
    D,
    /// The minimum of the block, or the scale of its minima.
    Dmin,
}

/// The positions of a field's bits, the lowest first.
pub(crate) type Bits = [BitRange; 3];

/// `len` bits starting at bit `at`. Bit 0 of byte 0 is the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitRange {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl BitRange {
    /// A range without bits.
    pub(crate) const NONE: BitRange = BitRange { at: 0, len: 0 };

    /// Returns the `len` bits starting at bit `bit` of byte `byte`.
    pub(crate) fn new(byte: usize, bit: usize, len: usize) -> BitRange {
        BitRange {
            at: 8 * byte + bit,
            len,
        }
    }

    /// Returns the bytes that contain the bits.
    fn bytes(self) -> std::ops::Range<usize> {
        self.at / 8..(self.at + self.len).div_ceil(8)
    }

    /// Reads the bits.
    fn get(self, bytes: &[u8]) -> u32 {
        let word = bytes[self.bytes()]
            .iter()
            .rev()
            .fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        ((word >> (self.at % 8)) & ((1 << self.len) - 1)) as u32
    }

    /// Sets the bits, which must be zero.
    fn put(self, bytes: &mut [u8], v: u32) {
        let v = (u64::from(v) & ((1 << self.len) - 1)) << (self.at % 8);
        for (byte, v) in bytes[self.bytes()].iter_mut().zip(v.to_le_bytes()) {
            *byte |= v;
        }
    }
}

/// Returns `len` bits in one place.
pub(crate) fn one(byte: usize, bit: usize, len: usize) -> Bits {
    [
        BitRange::new(byte, bit, len),
        BitRange::NONE,
        BitRange::NONE,
    ]
}

/// Returns low bits in one place and high bits in another.
pub(crate) fn two(low: BitRange, high: BitRange) -> Bits {
    [low, high, BitRange::NONE]
}

/// Reads the field in these bits.
pub(crate) fn get(bytes: &[u8], bits: Bits) -> u32 {
    bits.into_iter().rev().fold(0u64, |v, range| {
        v << range.len | u64::from(range.get(bytes))
    }) as u32
}

/// Sets a field's bits, which must be zero.
pub(crate) fn put(bytes: &mut [u8], bits: Bits, mut v: u32) {
    for range in bits {
        range.put(bytes, v);
        v = v.checked_shr(range.len as u32).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_put_together_from_its_bits() {
        let bits = [
            BitRange::new(1, 4, 4),
            BitRange::new(0, 6, 2),
            BitRange::new(2, 0, 9),
        ];
        let mut bytes = [0; 4];
        put(&mut bytes, bits, 0x40e5);
        assert_eq!(bytes, [0b1000_0000, 0b0101_0000, 0b0000_0011, 0b0000_0001]);
        assert_eq!(get(&bytes, bits), 0x40e5);
        assert_eq!(get(&[0xff; 4], one(0, 0, 32)), u32::MAX);
    }
}
