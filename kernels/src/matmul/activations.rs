//! The activations of matmuls with many tokens: `f16` values in the layout that shared memory
//! needs.
//!
//! A row is a token. Its `n` columns, in a [`ColumnOrder`](crate::format::dequantize::ColumnOrder),
//! are divided into panels of [`PANEL`] columns. A panel contains all tokens: `[n / 64, capacity,
//! 64]`. The 128 bytes of a token in a panel consist of eight units of 16 bytes, which are
//! swizzled: unit `u` of token `i` is at `u ^ (i mod 8)`. Eight tokens, aligned to eight, are
//! therefore a 128-byte swizzle atom of `wgmma`. One bulk copy loads a panel of as many tokens as a
//! block wants.
//!
//! The activations of a token are multiplied by a power of two, so that the largest is just below
//! 2^14. This is necessary because the largest `f16` value is 65504. The epilogue of a matmul
//! multiplies by the reciprocal.

use ptx_gen::*;

/// The number of columns of a panel: 128 bytes.
pub const PANEL: u32 = 64;
/// The unit of a buffer's capacity in tokens.
pub const TOKENS: u32 = 8;

/// Returns the index of the activation of a token at a slot, in elements.
pub const fn index(capacity: usize, token: usize, slot: usize) -> usize {
    let panel = slot / PANEL as usize;
    let unit = slot % PANEL as usize / 8;
    let rest = slot % 8;
    (panel * capacity + token) * PANEL as usize + (unit ^ (token % 8)) * 8 + rest
}

/// Returns the address of the activation of a token in a kernel, for an even slot.
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

/// Returns the power of two, from 2^-126 to 2^126, that brings a value of this magnitude below
/// 2^14, and its reciprocal.
///
/// Zero counts as the smallest number. A value that is not finite counts as the largest.
pub(crate) fn unit<'k>(largest: F32<'k>) -> [F32<'k>; 2] {
    let exponent = largest.bits::<u32>() >> 23;
    // The biased exponent of 2^13 is 140. The bounds keep the power and its reciprocal normal.
    let unit = ((exponent.min(266) * u32::MAX) + (140 + 127))
        .max(1)
        .min(253);
    [(unit << 23).bits(), ((unit * u32::MAX + 254) << 23).bits()]
}

/// Returns the power of two on the CPU.
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
