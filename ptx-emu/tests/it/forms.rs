//! Forms that compilers write and hand-written kernels seldom do: the manual's semantics of each, by cases.

use half::f16;

use crate::machine::{Row, SETUP, Setup, check, f, s, words};

const ONE: &str = "32 = 32";
const TWO: &str = "32 = 32 32";
const THREE: &str = "32 = 32 32 32";
const H2: &str = "16 = 16 16";

#[test]
fn integers() {
    let rows: &[Row] = &[
        // The manual's own examples.
        (THREE, "fns.b32 %d, %a, %b, %c", &[0xaaaa_aaaa, 3, 1], 3),
        (THREE, "fns.b32 %d, %a, %b, %c", &[0xaaaa_aaaa, 3, s(-1)], 3),
        (THREE, "fns.b32 %d, %a, %b, %c", &[0xaaaa_aaaa, 2, 1], 3),
        (THREE, "fns.b32 %d, %a, %b, %c", &[0xaaaa_aaaa, 2, s(-1)], 1),
        (
            THREE,
            "fns.b32 %d, %a, %b, %c",
            &[0xaaaa_aaaa, 2, 0],
            u32::MAX.into(),
        ),
        (THREE, "fns.b32 %d, %a, %b, %c", &[0xaaaa_aaaa, 3, 0], 3),
        (
            THREE,
            "fns.b32 %d, %a, %b, %c",
            &[0xaaaa_aaaa, 0, 17],
            u32::MAX.into(),
        ),
        (
            THREE,
            "fns.b32 %d, %a, %b, %c",
            &[0xaaaa_aaaa, 31, s(-16)],
            1,
        ),
        (TWO, "szext.clamp.s32 %d, %a, %b", &[0x18, 5], s(-8)),
        (TWO, "szext.wrap.u32 %d, %a, %b", &[0xffff_ffff, 0], 0),
        (TWO, "szext.wrap.u32 %d, %a, %b", &[0xffff_ffff, 33], 1),
        (
            TWO,
            "szext.clamp.u32 %d, %a, %b",
            &[0xffff_fff0, 77],
            0xffff_fff0,
        ),
        (
            TWO,
            "szext.clamp.s32 %d, %a, %b",
            &[0x8000_0000, 32],
            0x8000_0000,
        ),
        (
            THREE,
            "dp2a.lo.s32.u32 %d, %a, %b, %c",
            &[0xffff_0002, 0x0102_03ff, 10],
            10 + 510 - 3,
        ),
        (
            THREE,
            "dp2a.hi.u32.u32 %d, %a, %b, %c",
            &[0xffff_0002, 0x0102_03ff, 10],
            10 + 4 + 65535,
        ),
        (
            THREE,
            "dp2a.lo.u32.s32 %d, %a, %b, %c",
            &[0x0001_0002, 0x0102_03ff, 0],
            1,
        ),
        (
            THREE,
            "mad24.hi.u32 %d, %a, %b, %c",
            &[0xff80_0000, 0x0100_0200, 5],
            0x1_0000 + 5,
        ),
        (
            THREE,
            "mad24.hi.sat.s32 %d, %a, %b, %c",
            &[0x7f_ffff, 0x7f_ffff, 0x7fff_ffff],
            0x7fff_ffff,
        ),
        (TWO, "add.u16x2 %d, %a, %b", &[0xffff_ffff, 0x0001_0002], 1),
        (
            TWO,
            "min.s16x2 %d, %a, %b",
            &[0x8000_0005, 0x7fff_fffe],
            0x8000_fffe,
        ),
        (
            TWO,
            "max.u16x2 %d, %a, %b",
            &[0x8000_0005, 0x7fff_fffe],
            0x8000_fffe,
        ),
        (
            TWO,
            "max.s16x2.relu %d, %a, %b",
            &[0x8000_0005, 0xffff_fffe],
            5,
        ),
        (
            TWO,
            "min.relu.s16x2 %d, %a, %b",
            &[0x8000_0005, 0x0001_0007],
            5,
        ),
        (
            THREE,
            "cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c",
            &[300, s(-300), 0xaa55],
            0xaa55_7f80,
        ),
        (
            THREE,
            "cvt.pack.sat.u4.s32.b32 %d, %a, %b, %c",
            &[s(-3), 99, 0x1234],
            0x12_340f,
        ),
        (
            TWO,
            "cvt.pack.sat.u16.s32 %d, %a, %b",
            &[70000, s(-1)],
            0xffff_0000,
        ),
    ];
    check(rows);
}

#[test]
fn flushed_and_saturated_singles() {
    let ulp = f32::EPSILON;
    let rows: &[Row] = &[
        (
            TWO,
            "add.rz.ftz.f32 %d, %a, %b",
            &[f(1e-40), f(1e-30)],
            f(1e-30),
        ),
        (
            TWO,
            "add.rp.sat.f32 %d, %a, %b",
            &[f(1.0), f(1e-20)],
            f(1.0),
        ),
        (
            TWO,
            "add.rp.sat.f32 %d, %a, %b",
            &[f(0.5), f(1e-20)],
            f(0.5 + ulp / 2.0),
        ),
        (TWO, "mul.rm.ftz.sat.f32 %d, %a, %b", &[f(0.5), f(-3.0)], 0),
        (
            TWO,
            "sub.rm.ftz.f32 %d, %a, %b",
            &[f(1.0), f(1e-20)],
            f(1.0 - ulp / 2.0),
        ),
        (
            THREE,
            "fma.rp.ftz.f32 %d, %a, %b, %c",
            &[f(1.0), f(1.0), f(1e-20)],
            f(1.0 + ulp),
        ),
        (
            THREE,
            "fma.rz.sat.f32 %d, %a, %b, %c",
            &[f(2.0), f(2.0), f(1.0)],
            f(1.0),
        ),
        (TWO, "div.rm.ftz.f32 %d, %a, %b", &[f(1e-40), f(2.0)], 0),
        (ONE, "rcp.rp.ftz.f32 %d, %a", &[f(3.0)], f(0.333_333_34)),
        (ONE, "rcp.rm.ftz.f32 %d, %a", &[f(3.0)], f(0.333_333_3)),
        (ONE, "sqrt.rp.ftz.f32 %d, %a", &[f(1e-40)], 0),
        (
            TWO,
            "min.xorsign.abs.f32 %d, %a, %b",
            &[f(-1.0), f(3.0)],
            f(-1.0),
        ),
        (
            TWO,
            "max.xorsign.abs.f32 %d, %a, %b",
            &[f(-1.0), f(-3.0)],
            f(3.0),
        ),
        (
            TWO,
            "max.NaN.xorsign.abs.f32 %d, %a, %b",
            &[f(f32::NAN), f(-3.0)],
            0x7fff_ffff,
        ),
        (
            TWO,
            "max.xorsign.abs.f32 %d, %a, %b",
            &[0x7fc0_0000, f(-3.0)],
            f(-3.0),
        ),
    ];
    check(rows);
}

fn h(x: f32) -> u64 {
    f16::from_f32(x).to_bits().into()
}

fn hh(high: f32, low: f32) -> u64 {
    h(high) << 16 | h(low)
}

#[test]
fn halves() {
    let three16 = "16 = 16 16 16";
    let rows: &[Row] = &[
        (
            TWO,
            "add.sat.f16x2 %d, %a, %b",
            &[hh(0.75, -1.0), hh(0.75, 0.5)],
            hh(1.0, 0.0),
        ),
        (
            TWO,
            "mul.rn.ftz.sat.f16x2 %d, %a, %b",
            &[0x0001_3c00, 0x7bff_3800],
            h(0.5),
        ),
        (
            H2,
            "sub.ftz.sat.f16 %d, %a, %b",
            &[h(1.0), h(0.25)],
            h(0.75),
        ),
        (
            three16,
            "fma.rn.ftz.sat.f16 %d, %a, %b, %c",
            &[1, h(2.0), h(0.5)],
            h(0.5),
        ),
        (
            three16,
            "fma.rn.ftz.relu.f16 %d, %a, %b, %c",
            &[h(-2.0), h(2.0), h(0.5)],
            0,
        ),
        (
            THREE,
            "fma.rn.sat.f16x2 %d, %a, %b, %c",
            &[hh(2.0, 0.5), hh(2.0, 0.5), 0],
            hh(1.0, 0.25),
        ),
        ("16 = 16", "neg.ftz.f16 %d, %a", &[1], 0x8000),
        (ONE, "abs.ftz.f16x2 %d, %a", &[0x8001_bc00], h(1.0)),
        (
            H2,
            "min.xorsign.abs.f16 %d, %a, %b",
            &[h(-1.0), h(3.0)],
            h(-1.0),
        ),
        (
            TWO,
            "max.ftz.NaN.xorsign.abs.f16x2 %d, %a, %b",
            &[0x7e00_8001, hh(1.0, -2.0)],
            0x7fff_0000 | h(2.0),
        ),
        (
            TWO,
            "max.xorsign.abs.bf16x2 %d, %a, %b",
            &[0xbf80_3f80, 0x4000_c000],
            0xc000_c000,
        ),
        (H2, "set.lt.f16.f16 %d, %a, %b", &[h(1.0), h(2.0)], h(1.0)),
        (H2, "set.gt.u16.f16 %d, %a, %b", &[h(1.0), h(2.0)], 0),
        (H2, "set.lt.u16.f16 %d, %a, %b", &[h(1.0), h(2.0)], 0xffff),
        (
            "32 = 16 16",
            "set.neu.s32.bf16 %d, %a, %b",
            &[0x7fc0, 0x3f80],
            u32::MAX.into(),
        ),
        ("16 = 32 32", "set.eq.bf16.s32 %d, %a, %b", &[5, 5], 0x3f80),
        (
            TWO,
            "set.le.f16x2.f16x2 %d, %a, %b",
            &[hh(1.0, 2.0), hh(1.0, 1.0)],
            hh(1.0, 0.0),
        ),
        (
            TWO,
            "set.geu.u32.f16x2 %d, %a, %b",
            &[0x7e00_3c00, hh(1.0, 2.0)],
            0xffff_0000,
        ),
        (
            TWO,
            "set.eq.ftz.s32.f16x2 %d, %a, %b",
            &[0x0001_0001, 0x8000_0002],
            u32::MAX.into(),
        ),
        (
            TWO,
            "set.ltu.bf16x2.bf16x2 %d, %a, %b",
            &[0x3f80_7fc0, 0x3f80_3f80],
            0x3f80,
        ),
    ];
    check(rows);
}

/// Every comparison of pairs in both halves, for numbers below, equal, above and unordered.
#[test]
fn predicates_of_pairs() {
    type Holds = fn(f32, f32) -> bool;
    let ops: [(&str, Holds); 14] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a != b && !a.is_nan() && !b.is_nan()),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("equ", |a, b| a == b || a.is_nan() || b.is_nan()),
        ("neu", |a, b| a != b),
        ("ltu", |a, b| a < b || a.is_nan() || b.is_nan()),
        ("leu", |a, b| a <= b || a.is_nan() || b.is_nan()),
        ("gtu", |a, b| a > b || a.is_nan() || b.is_nan()),
        ("geu", |a, b| a >= b || a.is_nan() || b.is_nan()),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
        ("nan", |a, b| a.is_nan() || b.is_nan()),
    ];
    let values = [-1.0, -0.0, 0.0, 2.0, f32::NAN];
    let pairs: Vec<(f32, f32)> = values
        .iter()
        .flat_map(|a| values.map(|b| (*a, b)))
        .collect();
    let input: Vec<u32> = pairs
        .iter()
        .flat_map(|(a, b)| [hh(*b, *a) as u32, hh(*a, *b) as u32])
        .collect();
    for (op, holds) in ops {
        // The first result is that of the low halves; the third predicate is true, xor turns both.
        let body = format!(
            ".reg .pred %p, %q, %r; .reg .b32 %x<2>, %o; .reg .b64 %at;
            setp.eq.u32 %r, %t, %t;
            mad.wide.u32 %at, %t, 8, %in; ld.global.v2.b32 {{%x0, %x1}}, [%at];
            setp.{op}.xor.f16x2 %p|%q, %x0, %x1, %r;
            selp.b32 %o, 1, 0, %p; @%q or.b32 %o, %o, 2;
            mad.wide.u32 %at, %t, 4, %out; st.global.b32 [%at], %o;"
        );
        let found = words(
            &body,
            &input,
            pairs.len(),
            Setup {
                block: pairs.len() as u32,
                ..SETUP
            },
        );
        for (found, (a, b)) in found.iter().zip(&pairs) {
            let wanted = u32::from(!holds(*a, *b)) | u32::from(!holds(*b, *a)) << 1;
            assert_eq!(*found, wanted, "{op} of {a} and {b}");
        }
    }
}

/// What an 8-bit float stands for: sign, bits of exponent, mantissa; `None` for NaN.
fn small(bits: u32, e5m2: bool) -> Option<f64> {
    let (mantissa, bias) = if e5m2 { (2, 15) } else { (3, 7) };
    let (exponent, fraction) = ((bits & 0x7f) >> mantissa, bits & ((1 << mantissa) - 1));
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let value = match exponent {
        0 => f64::from(fraction) * 2f64.powi(1 - bias - mantissa),
        _ => f64::from(fraction + (1 << mantissa)) * 2f64.powi(exponent as i32 - bias - mantissa),
    };
    match (e5m2, exponent, fraction) {
        (true, 31, 0) => Some(sign * f64::INFINITY),
        (true, 31, _) | (false, 15, 7) => None,
        _ => Some(sign * value),
    }
}

/// The 8-bit float nearest to a number: of all finite ones, and of two as near the one with an even last bit.
fn nearest(x: f64, e5m2: bool) -> u32 {
    if x.is_nan() {
        return 0x7f;
    }

    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let distance = |bits: u32| {
        small(bits, e5m2)
            .filter(|v| v.is_finite())
            .map(|v| (v - x.abs().min(1e6)).abs())
    };
    let best = (0..0x80).filter_map(|bits| distance(bits).map(|d| (d, bits & 1, bits)));
    sign | best
        .min_by(|a, b| a.partial_cmp(b).expect("distances are numbers"))
        .map_or(0, |(.., bits)| bits)
}

fn of_every_half(inst: &str) -> Vec<u32> {
    let body = format!(
        ".reg .b32 %i, %w; .reg .f32 %x; .reg .b16 %h; .reg .b64 %at;
        mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 1024, %t; cvt.u16.u32 %h, %i;
        {inst};
        mad.wide.u32 %at, %i, 4, %out; st.global.b32 [%at], %w;"
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
fn every_half_and_every_8_bit_float_is_converted() {
    for e5m2 in [false, true] {
        let ty = if e5m2 { "e5m2x2" } else { "e4m3x2" };
        let from_half = of_every_half(&format!(
            "mov.b32 %w, {{%h, %h}}; cvt.rn.satfinite.{ty}.f16x2 %h, %w; cvt.u32.u16 %w, %h"
        ));
        let from_single = of_every_half(&format!(
            "cvt.f32.f16 %x, %h; cvt.rn.satfinite.relu.{ty}.f32 %h, %x, 0f3F800000; cvt.u32.u16 %w, %h"
        ));
        let wide = of_every_half(&format!("cvt.rn.f16x2.{ty} %w, %h"));
        let one = nearest(1.0, e5m2);
        for bits in 0..=u16::MAX {
            let (i, x) = (usize::from(bits), f64::from(f16::from_bits(bits).to_f32()));
            let wanted = nearest(x, e5m2);
            assert_eq!(from_half[i], wanted << 8 | wanted, "{ty} of {x}");
            let wanted = if x <= 0.0 { 0 } else { wanted };
            assert_eq!(from_single[i], wanted << 8 | one, "{ty} of {x}, relu");
            let half = |bits: u32| small(bits, e5m2).map_or(0x7fff, |v| f16::from_f64(v).to_bits());
            let wanted = u32::from(half(u32::from(bits) & 0xff))
                | u32::from(half(u32::from(bits) >> 8)) << 16;
            assert_eq!(wide[i], wanted, "f16x2 of {bits:#x}");
        }
    }
}

#[test]
fn singles_to_tf32_and_finite_halves() {
    let rows: &[Row] = &[
        (ONE, "cvt.rn.tf32.f32 %d, %a", &[0x3f80_1000], 0x3f80_0000),
        (ONE, "cvt.rn.tf32.f32 %d, %a", &[0x3f80_3000], 0x3f80_4000),
        (ONE, "cvt.rz.tf32.f32 %d, %a", &[0x3f80_3fff], 0x3f80_2000),
        (ONE, "cvt.rn.relu.tf32.f32 %d, %a", &[0xbf80_3fff], 0),
        (ONE, "cvt.rn.tf32.f32 %d, %a", &[0x7f7f_ffff], 0x7f80_0000),
        (ONE, "cvt.rz.tf32.f32 %d, %a", &[0xff7f_ffff], 0xff7f_e000),
        (
            ONE,
            "cvt.rna.satfinite.tf32.f32 %d, %a",
            &[0xff7f_ffff],
            0xff7f_e000,
        ),
        (
            ONE,
            "cvt.rna.satfinite.tf32.f32 %d, %a",
            &[0x7f80_0000],
            0x7f7f_e000,
        ),
        (
            "16 = 32",
            "cvt.rn.satfinite.f16.f32 %d, %a",
            &[f(1e6)],
            0x7bff,
        ),
        (
            "16 = 32",
            "cvt.rn.relu.satfinite.f16.f32 %d, %a",
            &[f(-1e6)],
            0,
        ),
        (
            TWO,
            "cvt.rz.satfinite.bf16x2.f32 %d, %a, %b",
            &[0xff80_0000, f(1.0)],
            0xff7f_3f80,
        ),
        (
            TWO,
            "cvt.rn.relu.satfinite.f16x2.f32 %d, %a, %b",
            &[0x7fc0_0000, f(-2.0)],
            0x7fff_0000,
        ),
        ("16 = 16", "cvt.rn.bf16.f16 %d, %a", &[0x3c01], 0x3f80),
        ("16 = 16", "cvt.bf16.f16 %d, %a", &[0x3c0c], 0x3f82),
        (
            "16 = 64",
            "cvt.rp.bf16.f64 %d, %a",
            &[1f64.to_bits() + 1],
            0x3f81,
        ),
    ];
    check(rows);
}

#[test]
fn video() {
    let rows: &[Row] = &[
        (
            TWO,
            "vadd.s32.u32.s32.sat %d, %a.b3, %b.h0",
            &[0xff00_0000, 0x8000],
            s(255 - 32768),
        ),
        (
            THREE,
            "vsub.s32.s32.s32.sat.add %d, %a, %b, %c",
            &[0x8000_0000, 1, 7],
            0x8000_0007,
        ),
        (
            THREE,
            "vadd.s32.s32.s32.sat %d.b1, %a, %b, %c",
            &[100, 100, 0x1122_3344],
            0x1122_7f44,
        ),
        (THREE, "vmin.u32.u32.u32.max %d, %a, %b, %c", &[5, 9, 7], 7),
        (
            TWO,
            "vabsdiff.u32.s32.s32 %d, %a.h1, %b.h1",
            &[0x8000_0000, 0x7fff_0000],
            0xffff,
        ),
        (TWO, "vshl.u32.u32.u32.clamp %d, %a, %b", &[3, 40], 0),
        (TWO, "vshl.u32.u32.u32.wrap %d, %a, %b", &[3, 33], 6),
        (
            TWO,
            "vshr.s32.s32.u32.clamp %d, %a, %b",
            &[0x8000_0000, 77],
            u32::MAX.into(),
        ),
        (
            THREE,
            "vmad.s32.s32.s32.shr7 %d, %a, %b, %c",
            &[s(-256), 3, 128],
            s(-5),
        ),
        (
            THREE,
            "vmad.u32.u32.u32.po.sat %d, %a, %b, %c",
            &[0x1_0000, 0x1_0000, 0],
            u32::MAX.into(),
        ),
        (
            THREE,
            "vset.s32.u32.lt.add %d, %a, %b, %c",
            &[s(-1), 0, 10],
            11,
        ),
        (
            THREE,
            "vadd2.s32.s32.s32.sat %d, %a, %b, %c",
            &[0x7fff_0001, 0x0001_0002, 9],
            0x7fff_0003,
        ),
        (
            THREE,
            "vsub2.u32.u32.u32.sat %d.h0, %a, %b, %c",
            &[0x7fff_0001, 0x0001_0002, 0x1234_5678],
            0x1234_0000,
        ),
        (
            THREE,
            "vavrg2.s32.s32.s32 %d, %a, %b, %c",
            &[0x0001_ffff, 0x0002_fffe, 0],
            0x0002_fffe,
        ),
        (
            THREE,
            "vmax2.s32.s32.s32 %d, %a.h01, %b.h22, %c",
            &[0x0005_ffff, 0x0007_0001, 0],
            0x0001_0005,
        ),
        (
            THREE,
            "vset2.u32.u32.ne.add %d, %a, %b, %c",
            &[0x0005_ffff, 0x0007_0001, 3],
            5,
        ),
        (
            THREE,
            "vabsdiff4.u32.u32.u32.add %d, %a, %b, %c",
            &[0x01ff_0010, 0x0200_0005, 100],
            100 + 1 + 255 + 11,
        ),
        (
            THREE,
            "vadd4.u32.u32.u32.sat %d, %a, %b, %c",
            &[0xff01_0203, 0x0101_0101, 0],
            0xff02_0304,
        ),
        (
            THREE,
            "vmin4.s32.s32.s32 %d.b20, %a, %b, %c",
            &[0x80ff_0102, 0x7f01_0203, 0x1122_3344],
            0x11ff_3302,
        ),
        (
            THREE,
            "vadd4.u32.u32.u32 %d, %a.b3210, %b.b0123, %c",
            &[0x0102_0304, 0, 0],
            0x0505_0505,
        ),
    ];
    check(rows);
    let wrong = [
        (
            "vadd.s32.s32.s32 %x.h0, %x, %x;",
            "a third source goes with",
        ),
        (
            "vadd2.s32.s32.s32 %x, %x.h04, %x, %x;",
            "does not select elements",
        ),
        (
            "vadd4.s32.s32.s32 %x.b02, %x, %x, %x;",
            "does not select elements",
        ),
        ("vshl.s32.s32.s32.wrap %x, %x, %x;", "distance is .u32"),
        ("vadd.s32.s32.s32 %x, %x.b4, %x;", "is not a part"),
    ];
    for (inst, what) in wrong {
        let text = crate::machine::kernel(&format!(".reg .b32 %x; {inst}"));
        let error = ptx_emu::Module::parse(&text)
            .and_then(ptx_emu::Module::complete)
            .expect_err(inst)
            .to_string();
        assert!(error.contains(what), "{inst}: {error}");
    }
}

/// What an H200 gave where the manual is silent or says otherwise: operands and results are those that were seen.
#[test]
fn as_on_an_h200() {
    let rows: &[Row] = &[
        (
            TWO,
            "vadd.u32.u32.u32.sat %d, %a, %b",
            &[0x7c0b_b8dc, 0xffff_ffff],
            0x7c0b_b8db,
        ),
        (
            TWO,
            "vadd.u32.s32.u32.sat %d, %a, %b",
            &[0x7c0b_b8dc, 0xffff_ffff],
            0x7c0b_b8db,
        ),
        (
            TWO,
            "vabsdiff.u32.s32.u32.sat %d, %a, %b",
            &[0xaed0_e21f, 0xaed8_8637],
            0x7a418,
        ),
        (
            THREE,
            "vshl.s32.s32.u32.sat.wrap.max %d, %a, %b, %c",
            &[0x7c0b_b8dc, 0xffff_ffff, 0x1f],
            0x1f,
        ),
        (
            THREE,
            "vmad.u32.u32.u32.shr7 %d, %a, %b, %c",
            &[0x7c0b_b8dc, 0xffff_ffff, 0x1f],
            0xff07_e88e,
        ),
        (
            THREE,
            "vmad.s32.u32.s32.shr7 %d, %a, %b, %c",
            &[0x8000_0000, 0x2a89_18d0, 0x722d_1965],
            0x30e4_5a32,
        ),
        (
            THREE,
            "vmad.u32.s32.u32.shr7 %d, %a, %b, %c",
            &[0x7c0b_b8dc, 0xffff_ffff, 0x1f],
            0xff07_e88e,
        ),
        (
            THREE,
            "vmad.u32.u32.u32.po.sat.shr15 %d, %a.h0, %b.h1, %c",
            &[0x6663_1268, 0xdf0b_38cc, 0xd708_2538],
            0xffff_ffff,
        ),
        (
            "32 = 32 32",
            "div.rp.ftz.f32 %d, %a, %b",
            &[0x80_0000, 0x3f80_0001],
            0,
        ),
        ("16 = 16 16", "mul.ftz.f16 %d, %a, %b", &[0x3bff, 0x400], 0),
        (
            "16 = 16 16",
            "mul.ftz.sat.f16 %d, %a, %b",
            &[0x3bff, 0x400],
            0,
        ),
        ("16 = 16", "neg.f16 %d, %a", &[0x7e00], 0x7fff),
        ("16 = 16", "abs.bf16 %d, %a", &[0x7fc0], 0x7fff),
        (
            "64 = 64",
            "cvt.rzi.s64.f64 %d, %a",
            &[0x7ff8_0000_0000_0000],
            1 << 63,
        ),
        (
            "64 = 32",
            "cvt.rni.ftz.u64.f32 %d, %a",
            &[0x7fc0_0000],
            1 << 63,
        ),
        // The manual: zero where neither type has 64 bits.
        (
            "32 = 64",
            "cvt.rzi.u32.f64 %d, %a",
            &[0x7ff8_0000_0000_0000],
            1 << 31,
        ),
        ("32 = 32", "cvt.rzi.s32.f32 %d, %a", &[0x7fc0_0000], 0),
    ];
    check(rows);
}

/// Atomics on vectors, in any order of the suffixes, and on bf16.
#[test]
fn vectors_of_atomics() {
    let body = "
        .reg .b32 %x<4>; .reg .f32 %f<4>; .reg .b16 %h<2>; .reg .b64 %at;
        mov.b32 %x0, 0x3f803f80; mov.b16 %h0, 0x3c00; mov.b16 %h1, 0xbc00; mov.f32 %f0, 0f3F800000;
        red.global.add.noftz.bf16x2 [%in], %x0;
        red.global.add.v2.f32 [%in+8], {%f0, %f0};
        red.global.v2.f16.max.noftz [%in+4], {%h0, %h1};
        atom.global.gpu.relaxed.v4.f32.add {%f0, %f1, %f2, %f3}, [%in+16], {%f0, %f0, %f0, %f0};
        bar.sync 0;
        mad.wide.u32 %at, %t, 4, %in; ld.global.b32 %x0, [%at];
        mad.wide.u32 %at, %t, 4, %out; st.global.b32 [%at], %x0;";

    // Each of eight threads adds one; the last line would overwrite %f0 before it is the second source.
    let broken = ptx_emu::Module::parse(&crate::machine::kernel(body))
        .and_then(ptx_emu::Module::complete)
        .expect_err("overlap")
        .to_string();
    assert!(broken.contains("a later element of b"), "{broken}");
    let body = body.replace(
        "{%f0, %f1, %f2, %f3}, [%in+16]",
        "{%f1, %f2, %f3, _}, [%in+16]",
    );
    let input = [0u32, 0, 0, f(2.0) as u32, 0, f(1.0) as u32, 0, 0];
    let found = words(&body, &input, 8, Setup { block: 8, ..SETUP });
    let eight = f(8.0) as u32;
    assert_eq!(
        found,
        [
            0x4100_4100,
            0x3c00,
            eight,
            f(10.0) as u32,
            eight,
            f(9.0) as u32,
            eight,
            eight
        ]
    );
}

/// Manual, "red.async": with `.release` it acts on global memory.
#[test]
fn asynchronous_reductions_of_global_memory() {
    let body = "red.async.release.gpu.global.add.u32 [%in], 5; red.async.mmio.release.sys.global.max.s32 [%in+4], -7;
        red.async.release.sys.add.s64 [%in+8], -1; bar.sync 0; .reg .b64 %at; .reg .b32 %x;
        mad.wide.u32 %at, %t, 4, %in; ld.global.b32 %x, [%at]; mad.wide.u32 %at, %t, 4, %out; st.global.b32 [%at], %x;";
    let text = crate::machine::kernel(body)
        .replace("8.6", "8.7")
        .replace("sm_90", "sm_100");
    let input: Vec<u8> = [1i32, -9, 2, 0]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let setup = Setup { block: 4, ..SETUP };
    let (out, _) =
        crate::machine::launch(&text, &input, 16, setup).unwrap_or_else(|fault| panic!("{fault}"));
    let wanted: Vec<u8> = [21i32, -7, -2, -1]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    assert_eq!(out, wanted);
    for older in [text.replace("8.7", "8.6"), text.replace("sm_100", "sm_90")] {
        assert!(
            ptx_emu::Module::parse(&older)
                .and_then(ptx_emu::Module::complete)
                .is_err(),
            "{older}"
        );
    }
}

/// The reason why a form does not run is a field of the error. It must not depend on the text.
#[test]
fn a_form_that_is_not_implemented_is_not_called_ill_formed() {
    let forms = [
        "mbarrier.complete_tx.b64 [%l1], %r1;",
        "mbarrier.pending_count.b64 %r1, %l1;",
        "ldmatrix.sync.aligned.m8n16.x1.b8x16.b4x16_p64 {%r1}, [%r2];",
        "st.async.weak.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.s32 [%r1], [%r2], %r3, [%r4];",
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%l1, {%r1, %r2, %r3}], [%r4];",
        "fence.proxy.alias;",
    ];
    for form in forms {
        let text = format!(
            ".version 9.0\n.target sm_100a\n.address_size 64\n\
             .visible .entry k() {{ .reg .b32 %r<9>; .reg .b64 %l<9>;\n{form}\nret; }}\n"
        );
        let module = ptx_emu::Module::parse(&text).expect(form);
        let refused = module.refused().next().expect(form);
        let error = &refused.errors.0[0];
        assert!(
            matches!(error.kind, ptx_emu::ErrorKind::Unsupported(_)),
            "{form}: {error}"
        );
    }
}
