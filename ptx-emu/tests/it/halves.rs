//! Manual, "Half Precision Floating-Point Instructions"; conversions over all 65,536 values.

use half::{bf16, f16};

use crate::machine::{Row, SETUP, Setup, check, words};

const TWO: &str = "16 = 16 16";
const PAIR: &str = "32 = 32 32";

fn h(x: f32) -> u64 {
    f16::from_f32(x).to_bits().into()
}

fn b(x: f32) -> u64 {
    bf16::from_f32(x).to_bits().into()
}

#[test]
fn arithmetic() {
    let (one, two, three, ten) = (h(1.0), h(2.0), h(3.0), h(10.0));
    let rows: &[Row] = &[
        (TWO, "add.f16 %d, %a, %b", &[one, two], three),
        (TWO, "add.rn.f16 %d, %a, %b", &[h(2048.0), one], h(2048.0)),
        (TWO, "add.f16 %d, %a, %b", &[h(65504.0), h(65504.0)], 0x7c00),
        (TWO, "add.ftz.f16 %d, %a, %b", &[1, 1], 0),
        (TWO, "add.f16 %d, %a, %b", &[1, 1], 2),
        (TWO, "add.sat.f16 %d, %a, %b", &[one, two], one),
        (TWO, "sub.f16 %d, %a, %b", &[one, two], h(-1.0)),
        (TWO, "mul.f16 %d, %a, %b", &[three, h(-2.0)], h(-6.0)),
        (TWO, "mul.f16 %d, %a, %b", &[0x7c00, 0], 0x7fff),
        (
            "16 = 16 16 16",
            "fma.rn.f16 %d, %a, %b, %c",
            &[three, three, one],
            ten,
        ),
        (
            "16 = 16 16 16",
            "fma.rn.relu.f16 %d, %a, %b, %c",
            &[three, h(-3.0), one],
            0,
        ),
        // 1 + 2^-11 is a tie, which 2^-24 of the smallest subnormal decides.
        (
            "16 = 16 16 16",
            "fma.rn.f16 %d, %a, %b, %c",
            &[h(1.0 + 2f32.powi(-11) * 0.0), h(2f32.powi(-11)), one],
            one,
        ),
        (
            "16 = 16 16 16",
            "fma.rn.f16 %d, %a, %b, %c",
            &[0x3c01, h(2f32.powi(-11)), one],
            0x3c01,
        ),
        ("16 = 16", "neg.f16 %d, %a", &[one], h(-1.0)),
        ("16 = 16", "abs.f16 %d, %a", &[h(-1.0)], one),
        (TWO, "min.f16 %d, %a, %b", &[0x7e00, one], one),
        (TWO, "max.NaN.f16 %d, %a, %b", &[0x7e00, one], 0x7fff),
        (TWO, "max.f16 %d, %a, %b", &[0x8000, 0], 0),
        (TWO, "add.bf16 %d, %a, %b", &[b(1.0), b(2.0)], b(3.0)),
        (TWO, "mul.bf16 %d, %a, %b", &[b(1e38), b(1e38)], 0x7f80),
        (TWO, "sub.bf16 %d, %a, %b", &[b(256.0), b(1.0)], b(255.0)),
        (
            "16 = 16 16 16",
            "fma.rn.bf16 %d, %a, %b, %c",
            &[b(3.0), b(3.0), b(1.0)],
            b(10.0),
        ),
        (TWO, "max.bf16 %d, %a, %b", &[b(-1.0), b(1.0)], b(1.0)),
        ("16 = 16", "ex2.approx.f16 %d, %a", &[three], h(8.0)),
        ("16 = 16", "tanh.approx.f16 %d, %a", &[0x7c00], one),
    ];
    check(rows);
}

#[test]
fn pairs() {
    let two = |low: u64, high: u64| low | high << 16;
    let rows: Vec<Row> = vec![
        (PAIR, "add.f16x2 %d, %a, %b", &[0, 0], 0),
        (
            PAIR,
            "add.bf16x2 %d, %a, %b",
            &[0x3f80_4000, 0x3f80_3f80],
            0x4000_4040,
        ),
        (
            PAIR,
            "add.f16x2 %d, %a, %b",
            &[0x3c00_4000, 0x3c00_3c00],
            0x4000_4200,
        ),
        (
            PAIR,
            "sub.f16x2 %d, %a, %b",
            &[0x3c00_4000, 0x3c00_3c00],
            0x0000_3c00,
        ),
        (
            PAIR,
            "mul.f16x2 %d, %a, %b",
            &[0x3c00_4000, 0x4200_4200],
            0x4200_4600,
        ),
        (
            "32 = 32 32 32",
            "fma.rn.f16x2 %d, %a, %b, %c",
            &[0x3c00_4000, 0x4200_4200, 0x3c00_3c00],
            0x4400_4700,
        ),
        (
            "32 = 32 32 32",
            "fma.rn.bf16x2 %d, %a, %b, %c",
            &[0x3f80_4000, 0x4040_4040, 0x3f80_3f80],
            0x4080_40e0,
        ),
        ("32 = 32", "neg.f16x2 %d, %a", &[0x3c00_4000], 0xbc00_c000),
        (
            PAIR,
            "max.f16x2 %d, %a, %b",
            &[0x3c00_4000, 0x4000_3c00],
            0x4000_4000,
        ),
        (
            PAIR,
            "min.bf16x2 %d, %a, %b",
            &[0x3f80_4000, 0x4000_3f80],
            0x3f80_3f80,
        ),
    ];
    check(&rows);
    assert_eq!(two(1, 2), 0x2_0001);
}

/// Runs a conversion of 16-bit values to words over all inputs.
fn all_halves(inst: &str) -> Vec<u32> {
    let body = format!(
        ".reg .b32 %i, %w; .reg .b16 %h; .reg .b64 %at;
        mov.u32 %i, %ctaid.x;
        mad.lo.u32 %i, %i, 1024, %t;
        cvt.u16.u32 %h, %i;
        {inst};
        mad.wide.u32 %at, %i, 4, %out;
        st.global.b32 [%at], %w;"
    );
    words(
        &body,
        &[],
        65536,
        Setup {
            grid: 64,
            block: 1024,
            ..SETUP
        },
    )
}

#[test]
fn every_f16_and_bf16_widens_as_half_says() {
    let canon = |x: f32| if x.is_nan() { 0x7fff_ffff } else { x.to_bits() };
    let f16s: Vec<u32> = (0..=u16::MAX)
        .map(|h| canon(f16::from_bits(h).to_f32()))
        .collect();
    // A bf16 is the upper half of a single, NaNs included.
    let bf16s: Vec<u32> = (0..=u16::MAX).map(|h| u32::from(h) << 16).collect();
    assert!(all_halves("cvt.f32.f16 %w, %h") == f16s);
    assert!(all_halves("cvt.f32.bf16 %w, %h") == bf16s);
}

/// Every f16 widened and narrowed again is itself, and so is each value a little beside it; between two
/// neighbours the tie goes to the even one.
#[test]
fn every_f16_narrows_as_half_says() {
    let steps = [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff];
    for step in steps {
        let inst = format!(
            "cvt.f32.f16 %w, %h; add.u32 %w, %w, {step}; cvt.rn.f16.f32 %h, %w; cvt.u32.u16 %w, %h"
        );
        let wanted = |h: u16| {
            let wide = f16::from_bits(h).to_f32();
            let bits = if wide.is_nan() {
                0x7fff_ffff
            } else {
                wide.to_bits()
            };
            let narrow = f16::from_f32(f32::from_bits(bits.wrapping_add(step)));
            u32::from(if narrow.is_nan() {
                0x7fff
            } else {
                narrow.to_bits()
            })
        };
        let found = all_halves(&inst);
        let wrong = (0..=u16::MAX).find(|h| found[usize::from(*h)] != wanted(*h));
        assert_eq!(
            wrong.map(|h| (h, step, found[usize::from(h)], wanted(h))),
            None
        );
    }
}

#[test]
fn every_bf16_narrows_as_half_says() {
    for step in [0u32, 0x7fff, 0x8000, 0x8001] {
        let inst = format!(
            "cvt.f32.bf16 %w, %h; add.u32 %w, %w, {step}; cvt.rn.bf16.f32 %h, %w; cvt.u32.u16 %w, %h"
        );
        let wanted = |h: u16| {
            let narrow = bf16::from_f32(f32::from_bits((u32::from(h) << 16).wrapping_add(step)));
            u32::from(if narrow.is_nan() {
                0x7fff
            } else {
                narrow.to_bits()
            })
        };
        let found = all_halves(&inst);
        let wrong = (0..=u16::MAX).find(|h| found[usize::from(*h)] != wanted(*h));
        assert_eq!(
            wrong.map(|h| (h, step, found[usize::from(h)], wanted(h))),
            None
        );
    }
}
