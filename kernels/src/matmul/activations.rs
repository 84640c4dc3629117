//! The left operand of products with many tokens: activations as binary16, as shared memory wants them.
//!
//! A row is a token. Its `n` columns, in a [`ColumnOrder`](crate::format::dequantize::ColumnOrder), are cut into panels of
//! [`PANEL`], and a panel has all tokens: `[n / 64, capacity, 64]`. Within its 128 bytes, a token's eight units of 16
//! bytes are swizzled: unit `u` of token `i` is at `u ^ (i mod 8)`. So any eight tokens aligned to eight are what a
//! matrix instruction calls a 128-byte swizzle atom, and one bulk copy brings a panel of as many tokens as a block wants.
//!
//! A token's numbers are multiplied by a power of two, so that its largest is just below 2^14: binary16 ends at 65504.
//! The epilogue of a product multiplies by the reciprocal.

use ptx_gen::*;

/// Columns of a panel: 128 bytes.
pub const PANEL: u32 = 64;
/// The tokens of a buffer are a multiple of this.
pub const TOKENS: u32 = 8;

/// Where the activation of a token and slot is, in elements.
pub const fn index(capacity: usize, token: usize, slot: usize) -> usize {
    let (panel, unit, rest) = (slot / PANEL as usize, slot % PANEL as usize / 8, slot % 8);
    (panel * capacity + token) * PANEL as usize + (unit ^ (token % 8)) * 8 + rest
}

/// The same in a kernel, for a slot that is a multiple of 2.
pub(crate) fn place<'k, A: Space>(
    all: Ptr<'k, f16, A>,
    capacity: U32<'k>,
    token: U32<'k>,
    slot: U32<'k>,
) -> Ptr<'k, f16, A> {
    let row = (slot >> 6).mad(capacity, token);
    let unit = ((slot >> 3) ^ token) & 7;
    all.row(row, 2 * PANEL).row(unit, 16).row(slot & 7, 2)
}

/// The power of two, from 2^-126 to 2^126, that brings a number of this magnitude below 2^14, and its reciprocal.
///
/// Zero counts as the least number, and what is not finite as the largest.
pub(crate) fn unit<'k>(largest: F32<'k>) -> [F32<'k>; 2] {
    let exponent = largest.bits::<u32>() >> 23;
    // The exponent of 2^13 is 140.
    let unit = ((exponent.min(266) * u32::MAX) + (140 + 127))
        .max(1)
        .min(253);
    [(unit << 23).bits(), ((unit * u32::MAX + 254) << 23).bits()]
}

/// The same on the CPU.
pub fn unit_of(largest: f32) -> f32 {
    let exponent = (largest.to_bits() >> 23) as i32;
    f32::from_bits(((267 - exponent).clamp(1, 253) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_is_made_of_swizzle_atoms() {
        // The first eight units of tokens 0 and 1, as the PTX manual shows the 128-byte swizzle.
        let units = |token| {
            (0..8)
                .map(|u| index(16, token, 8 * u) / 8)
                .collect::<Vec<_>>()
        };
        assert_eq!(units(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(units(1), [9, 8, 11, 10, 13, 12, 15, 14]);
        assert_eq!(index(16, 3, 64), index(16, 3, 0) + 16 * 64);
    }

    #[test]
    fn every_activation_has_its_own_place() {
        let mut taken = vec![false; 3 * 64 * 16];
        for at in (0..16).flat_map(|token| (0..192).map(move |slot| index(16, token, slot))) {
            assert!(!std::mem::replace(&mut taken[at], true));
        }
    }

    #[test]
    fn units_bring_numbers_below_2_to_the_14() {
        for largest in [1.0, 1.5, 3e-30, 1e30, 65504.0, 8192.0] {
            let scaled = largest * unit_of(largest);
            assert!((8192.0..16384.0).contains(&scaled), "{largest}: {scaled}");
        }
        assert_eq!([0.0, f32::MAX].map(|x| unit_of(x).log2()), [126.0, -114.0]);
    }
}
