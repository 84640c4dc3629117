//! Manual, "cvt": saturation, rounding, extension.

use crate::machine::{Row, check, f, g, s};

const ONE: &str = "32 = 32";
const NAN: u64 = f(f32::NAN);

#[test]
fn integers() {
    let rows: &[Row] = &[
        ("64 = 32", "cvt.u64.u32 %d, %a", &[0xffff_ffff], 0xffff_ffff),
        ("64 = 32", "cvt.s64.s32 %d, %a", &[s(-2)], -2i64 as u64),
        (
            "32 = 64",
            "cvt.u32.u64 %d, %a",
            &[0x1_2345_6789],
            0x2345_6789,
        ),
        ("32 = 32", "cvt.s32.s8 %d, %a", &[0x1280], s(-128)),
        ("32 = 32", "cvt.u32.u8 %d, %a", &[0x1280], 0x80),
        ("32 = 32", "cvt.s8.s32 %d, %a", &[0x1280], s(-128)),
        ("16 = 32", "cvt.s8.s32 %d, %a", &[0x1280], 0xff80),
        ("16 = 32", "cvt.u16.u32 %d, %a", &[0x1_2345], 0x2345),
        ("32 = 16", "cvt.s32.s16 %d, %a", &[0x8000], 0xffff_8000),
        ("32 = 16", "cvt.u32.u16 %d, %a", &[0x8000], 0x8000),
        ("32 = 32", "cvt.sat.s8.s32 %d, %a", &[200], 127),
        ("32 = 32", "cvt.sat.u8.s32 %d, %a", &[s(-1)], 0),
        ("32 = 32", "cvt.sat.u32.s32 %d, %a", &[s(-1)], 0),
        (
            "32 = 32",
            "cvt.sat.s32.u32 %d, %a",
            &[0xffff_ffff],
            0x7fff_ffff,
        ),
        ("32 = 64", "cvt.sat.u32.u64 %d, %a", &[1 << 40], 0xffff_ffff),
        (
            "64 = 32",
            "cvt.s64.s16 %d, %a",
            &[0x8000],
            0xffff_ffff_ffff_8000,
        ),
    ];
    check(rows);
}

/// Float to integer rounds as told, saturates, and takes NaN to 0.
#[test]
fn floats_to_integers() {
    let rows: &[Row] = &[
        (ONE, "cvt.rni.s32.f32 %d, %a", &[f(2.5)], 2),
        (ONE, "cvt.rni.s32.f32 %d, %a", &[f(3.5)], 4),
        (ONE, "cvt.rzi.s32.f32 %d, %a", &[f(-2.9)], s(-2)),
        (ONE, "cvt.rmi.s32.f32 %d, %a", &[f(-2.1)], s(-3)),
        (ONE, "cvt.rpi.s32.f32 %d, %a", &[f(2.1)], 3),
        (ONE, "cvt.rzi.s32.f32 %d, %a", &[f(3e9)], 0x7fff_ffff),
        (ONE, "cvt.rzi.s32.f32 %d, %a", &[f(-3e9)], 0x8000_0000),
        (ONE, "cvt.rzi.u32.f32 %d, %a", &[f(-1.0)], 0),
        (ONE, "cvt.rzi.u32.f32 %d, %a", &[f(5e9)], 0xffff_ffff),
        (ONE, "cvt.rzi.s32.f32 %d, %a", &[NAN], 0),
        (ONE, "cvt.rzi.u8.f32 %d, %a", &[f(300.0)], 255),
        (ONE, "cvt.rni.sat.s8.f32 %d, %a", &[f(-200.0)], s(-128)),
        (ONE, "cvt.rpi.ftz.s32.f32 %d, %a", &[f(1e-40)], 0),
        (ONE, "cvt.rpi.s32.f32 %d, %a", &[f(1e-40)], 1),
        (
            "64 = 32",
            "cvt.rzi.s64.f32 %d, %a",
            &[f(-1e10)],
            -10_000_000_000i64 as u64,
        ),
        ("64 = 64", "cvt.rzi.u64.f64 %d, %a", &[g(1e30)], u64::MAX),
        ("32 = 16", "cvt.rni.s32.f16 %d, %a", &[0x4100], 2),
    ];
    check(rows);
}

#[test]
fn integers_to_floats() {
    let rows: &[Row] = &[
        (ONE, "cvt.rn.f32.s32 %d, %a", &[s(-7)], f(-7.0)),
        (
            ONE,
            "cvt.rn.f32.u32 %d, %a",
            &[0xffff_ffff],
            f(4_294_967_296.0),
        ),
        (
            ONE,
            "cvt.rz.f32.u32 %d, %a",
            &[0xffff_ffff],
            f(4_294_967_040.0),
        ),
        (ONE, "cvt.rn.f32.s32 %d, %a", &[16_777_217], f(16_777_216.0)),
        (ONE, "cvt.rp.f32.s32 %d, %a", &[16_777_217], f(16_777_218.0)),
        (ONE, "cvt.rn.f32.u8 %d, %a", &[0x1ff], f(255.0)),
        (ONE, "cvt.rn.f32.s8 %d, %a", &[0xff], f(-1.0)),
        (
            "32 = 64",
            "cvt.rn.f32.u64 %d, %a",
            &[(1 << 40) + (1 << 16) + 1],
            f(((1u64 << 40) + (1 << 17)) as f32),
        ),
        (
            "64 = 64",
            "cvt.rz.f64.u64 %d, %a",
            &[u64::MAX],
            g(18_446_744_073_709_549_568.0),
        ),
        ("64 = 64", "cvt.rn.f64.s64 %d, %a", &[u64::MAX], g(-1.0)),
        ("16 = 32", "cvt.rn.f16.s32 %d, %a", &[100_000], 0x7c00),
        ("16 = 32", "cvt.rz.f16.s32 %d, %a", &[100_000], 0x7bff),
        ("16 = 32", "cvt.rn.f16.s8 %d, %a", &[0xfe], 0xc000),
        ("16 = 32", "cvt.rn.bf16.u32 %d, %a", &[257], 0x4380),
    ];
    check(rows);
}

#[test]
fn floats_to_floats() {
    let rows: &[Row] = &[
        (
            "64 = 32",
            "cvt.f64.f32 %d, %a",
            &[f(1.1)],
            g(f64::from(1.1f32)),
        ),
        ("32 = 64", "cvt.rn.f32.f64 %d, %a", &[g(1.1)], f(1.1)),
        ("32 = 64", "cvt.rz.f32.f64 %d, %a", &[g(1.1)], 0x3f8c_cccc),
        (
            "32 = 64",
            "cvt.rn.f32.f64 %d, %a",
            &[g(1e300)],
            f(f32::INFINITY),
        ),
        ("32 = 64", "cvt.rm.f32.f64 %d, %a", &[g(1e300)], f(f32::MAX)),
        (ONE, "cvt.rni.f32.f32 %d, %a", &[f(2.5)], f(2.0)),
        (ONE, "cvt.rmi.f32.f32 %d, %a", &[f(-0.5)], f(-1.0)),
        (ONE, "cvt.sat.f32.f32 %d, %a", &[f(1.5)], f(1.0)),
        (ONE, "cvt.ftz.f32.f32 %d, %a", &[f(1e-40)], 0),
        ("16 = 32", "cvt.rn.f16.f32 %d, %a", &[f(65520.0)], 0x7c00),
        ("16 = 32", "cvt.rz.f16.f32 %d, %a", &[f(65520.0)], 0x7bff),
        ("16 = 32", "cvt.rn.f16.f32 %d, %a", &[f(2f32.powi(-25))], 0),
        (
            "16 = 32",
            "cvt.rn.f16.f32 %d, %a",
            &[f(2f32.powi(-25) * 1.01)],
            1,
        ),
        ("16 = 32", "cvt.rp.f16.f32 %d, %a", &[f(1e-30)], 1),
        ("16 = 32", "cvt.rn.relu.f16.f32 %d, %a", &[f(-1.0)], 0),
        ("16 = 32", "cvt.rn.bf16.f32 %d, %a", &[0x3f80_8000], 0x3f80),
        ("16 = 32", "cvt.rn.bf16.f32 %d, %a", &[0x3f81_8000], 0x3f82),
        ("16 = 32", "cvt.rz.bf16.f32 %d, %a", &[0x3f81_ffff], 0x3f81),
        ("32 = 16", "cvt.f32.f16 %d, %a", &[1], f(2f32.powi(-24))),
        ("64 = 16", "cvt.f64.f16 %d, %a", &[0x3c00], g(1.0)),
        // The first source becomes the upper half.
        (
            "32 = 32 32",
            "cvt.rn.f16x2.f32 %d, %a, %b",
            &[f(1.0), f(2.0)],
            0x3c00_4000,
        ),
        (
            "32 = 32 32",
            "cvt.rn.bf16x2.f32 %d, %a, %b",
            &[f(1.0), f(2.0)],
            0x3f80_4000,
        ),
        (
            "32 = 32 32",
            "cvt.rn.relu.f16x2.f32 %d, %a, %b",
            &[f(-1.0), f(2.0)],
            0x4000,
        ),
        (
            "32 = 32 32",
            "cvt.rz.bf16x2.f32 %d, %a, %b",
            &[0x3f81_ffff, f(2.0)],
            0x3f81_4000,
        ),
        (ONE, "cvt.rna.tf32.f32 %d, %a", &[0x3f80_1000], 0x3f80_2000),
        (ONE, "cvt.rna.tf32.f32 %d, %a", &[0x3f80_0fff], 0x3f80_0000),
    ];
    check(rows);
}
