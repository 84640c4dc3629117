//! The half types against the `half` crate: every bit pattern, and the edges of rounding.

use ptx_gen::{bf16, f16};

#[test]
fn every_half_widens_exactly() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (f16(bits).to_f32(), half::f16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "f16 {bits:#06x}"
        );
        let (ours, theirs) = (bf16(bits).to_f32(), half::bf16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "bf16 {bits:#06x}"
        );
    }
}

#[test]
fn narrowing_rounds_to_even() {
    // Around every half: the value, halfway to the next, and the floats beside both.
    for bits in 0..=u16::MAX {
        for next in [f16(bits).to_f32(), bf16(bits).to_f32()] {
            for f in [
                0u32, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0x1fff,
            ] {
                check(f32::from_bits(next.to_bits().wrapping_add(f)));
            }
        }
    }
}

fn check(v: f32) {
    let (ours, theirs) = (f16::from_f32(v), half::f16::from_f32(v));
    assert!(
        ours.0 == theirs.to_bits() || v.is_nan() && ours.to_f32().is_nan(),
        "f16 of {v:e}"
    );
    let (ours, theirs) = (bf16::from_f32(v), half::bf16::from_f32(v));
    assert!(
        ours.0 == theirs.to_bits() || v.is_nan() && ours.to_f32().is_nan(),
        "bf16 of {v:e}"
    );
}
