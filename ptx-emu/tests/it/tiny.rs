//! Manual, "cvt" and "Alternate Floating-Point Data Formats": floats of four and six bits, and exponents alone.

use half::f16;

use crate::machine::{check, f};

/// Suffix, exponent bits, mantissa bits, and the bits of a half of a pair.
const FORMATS: [(&str, u32, u32, u32); 3] = [
    ("e2m1x2", 2, 1, 4),
    ("e2m3x2", 2, 3, 8),
    ("e3m2x2", 3, 2, 8),
];

/// The magnitudes of a format in order of their bits.
fn magnitudes((_, exponents, mantissas, _): (&str, u32, u32, u32)) -> Vec<f64> {
    let bias = (1 << (exponents - 1)) - 1;
    let steps = 1 << mantissas;
    let value = |code: u32| match (code / steps, f64::from(code % steps) / f64::from(steps)) {
        (0, part) => part * 2f64.powi(1 - bias),
        (e, part) => (1.0 + part) * 2f64.powi(e as i32 - bias),
    };
    (0..1 << (exponents + mantissas)).map(value).collect()
}

/// The nearest magnitude's bits, of two the even ones.
fn nearest(all: &[f64], x: f64) -> u32 {
    let far = |i: &usize| ((all[*i] - x).abs(), i % 2);
    (0..all.len())
        .min_by(|a, b| far(a).partial_cmp(&far(b)).expect("finite"))
        .expect("some") as u32
}

/// An instruction and the bytes that go through `.b8` for a format of four bits.
fn narrowing(ty: &str, relu: &str) -> String {
    match ty {
        "e2m1x2" => format!(
            ".reg .b8 %n; cvt.rn.satfinite{relu}.{ty}.f32 %n, %a, %b; mov.b16 %d, {{%n, 0}}"
        ),
        _ => format!("cvt.rn.satfinite{relu}.{ty}.f32 %d, %a, %b"),
    }
}

fn widening(ty: &str, relu: &str) -> String {
    match ty {
        "e2m1x2" => {
            format!(".reg .b8 %n, %z; mov.b16 {{%n, %z}}, %a; cvt.rn{relu}.f16x2.{ty} %d, %n")
        }
        _ => format!("cvt.rn{relu}.f16x2.{ty} %d, %a"),
    }
}

#[test]
fn values_are_the_nearest_and_back() {
    for format in FORMATS {
        let (ty, exponents, mantissas, half) = format;
        let (all, sign) = (magnitudes(format), 1u32 << (exponents + mantissas));
        let most = *all.last().expect("some");
        let bits16 = |x: f64| u64::from(f16::from_f64(x).to_bits());
        let (to, back) = (narrowing(ty, ""), widening(ty, ""));
        for (code, x) in all.iter().enumerate() {
            let (code, between) = (code as u32, x + most / 37.0);
            let low = nearest(&all, between.min(most)) | sign;
            check(&[
                (
                    "16 = 32 32",
                    &to,
                    &[f(*x as f32), f(-between as f32)],
                    u64::from(code << half | low),
                ),
                (
                    "32 = 16",
                    &back,
                    &[u64::from(code << half | code | sign)],
                    bits16(*x) << 16 | bits16(-x),
                ),
            ]);
        }

        // Halfway, too large, infinite, no number, and the sign of zero.
        let largest = (sign - 1) as u64;
        let middle = (all[2] + all[3]) / 2.0;
        let relu = narrowing(ty, ".relu");
        check(&[
            (
                "16 = 32 32",
                &to,
                &[f(middle as f32), f(1e9)],
                2 << half | largest,
            ),
            (
                "16 = 32 32",
                &to,
                &[f(f32::NEG_INFINITY), f(f32::NAN)],
                (u64::from(sign) | largest) << half | largest,
            ),
            (
                "16 = 32 32",
                &to,
                &[f(-0.0), f(-1e-30)],
                u64::from(sign << half | sign),
            ),
            (
                "16 = 32 32",
                &relu,
                &[f(-3.0), f(1.0)],
                u64::from(nearest(&all, 1.0)),
            ),
            (
                "32 = 16",
                &widening(ty, ".relu"),
                &[u64::from((sign | 3) << half | 3)],
                bits16(all[3]),
            ),
        ]);
    }
}

/// As NVIDIA's header of 8-bit floats computes them on the host: the sign is dropped, all ones are NaN.
#[test]
fn exponents_alone() {
    let (up, down) = (
        "cvt.rp.satfinite.ue8m0x2.f32 %d, %a, %b",
        "cvt.rz.satfinite.ue8m0x2.f32 %d, %a, %b",
    );
    let smallest = f(f32::from_bits(0x0040_0000));
    check(&[
        ("16 = 32 32", up, &[f(1.0), f(-1.5)], 0x7f80),
        ("16 = 32 32", down, &[f(1.999), f(-0.75)], 0x7f7e),
        ("16 = 32 32", up, &[smallest, smallest + 1], 0x0001),
        ("16 = 32 32", up, &[f(f32::MAX), f(f32::INFINITY)], 0xfefe),
        (
            "16 = 32 32",
            "cvt.rp.ue8m0x2.f32 %d, %a, %b",
            &[f(f32::MAX), f(0.0)],
            0xff00,
        ),
        ("16 = 32 32", down, &[f(f32::NAN), f(f32::MAX)], 0xfffe),
        (
            "16 = 32",
            "cvt.rp.satfinite.ue8m0x2.bf16x2 %d, %a",
            &[0x3f81_c000],
            0x8080,
        ),
        (
            "32 = 16",
            "cvt.rn.bf16x2.ue8m0x2 %d, %a",
            &[0x7f00],
            0x3f80_0040,
        ),
        (
            "32 = 16",
            "cvt.rn.bf16x2.ue8m0x2 %d, %a",
            &[0xff01],
            0x7fff_0080,
        ),
    ]);
}

#[test]
fn bytes_of_a_register() {
    let out = ".reg .b8 %n<4>; mov.b32 {%n0, %n1, %n2, %n3}, %a; mov.b32 %d, {%n3, %n1, 9, %n0}";
    check(&[("32 = 32", out, &[0x4433_2211], 0x1109_2244)]);
}
