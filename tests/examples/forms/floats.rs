//! Arithmetic on floats.

use super::case::Exact;
use super::scalar::{Form, Table, listed};

/// Instructions whose result is determined exactly.
const EXACT: &Table = &[
    ("{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64", "f64 = f64 f64", ""),
    (
        "{div.rn,div.rz,div.rm,div.rp,min,max,copysign}.f64",
        "f64 = f64 f64",
        "",
    ),
    ("{fma,mad}{.rn,.rz,.rm,.rp}.f64", "f64 = f64 f64 f64", ""),
    ("{rcp,sqrt}{.rn,.rz,.rm,.rp}.f64", "f64 = f64", ""),
    ("{abs,neg}.f64", "f64 = f64", ""),
    (
        "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
        "f32 = f32 f32",
        "",
    ),
    (
        "{fma,mad}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32",
        "f32 = f32 f32 f32",
        "",
    ),
    ("div{.rn,.rz,.rm,.rp}{,.ftz}.f32", "f32 = f32 f32", ""),
    ("{rcp,sqrt}{.rn,.rz,.rm,.rp}{,.ftz}.f32", "f32 = f32", ""),
    ("{abs,neg}{,.ftz}.f32", "f32 = f32", ""),
    ("copysign.f32", "f32 = f32 f32", ""),
    (
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32",
        "f32 = f32 f32",
        "",
    ),
    ("{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16", "f16 = f16 f16", ""),
    (
        "{add,sub,mul}{,.rn}{,.ftz}{,.sat}.f16x2",
        "f16x2 = f16x2 f16x2",
        "",
    ),
    ("{add,sub,mul}{,.rn}.bf16", "bf16 = bf16 bf16", ""),
    ("{add,sub,mul}{,.rn}.bf16x2", "bf16x2 = bf16x2 bf16x2", ""),
    ("fma.rn{,.ftz}{,.sat,.relu}.f16", "f16 = f16 f16 f16", ""),
    (
        "fma.rn{,.ftz}{,.sat,.relu}.f16x2",
        "f16x2 = f16x2 f16x2 f16x2",
        "",
    ),
    ("fma.rn{,.relu}.bf16", "bf16 = bf16 bf16 bf16", ""),
    ("fma.rn{,.relu}.bf16x2", "bf16x2 = bf16x2 bf16x2 bf16x2", ""),
    ("{abs,neg}{,.ftz}.f16", "f16 = f16", ""),
    ("{abs,neg}{,.ftz}.f16x2", "f16x2 = f16x2", ""),
    ("{abs,neg}.bf16", "bf16 = bf16", ""),
    ("{abs,neg}.bf16x2", "bf16x2 = bf16x2", ""),
    (
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f16",
        "f16 = f16 f16",
        "",
    ),
    (
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f16x2",
        "f16x2 = f16x2 f16x2",
        "",
    ),
    (
        "{min,max}{,.NaN}{,.xorsign.abs}.bf16",
        "bf16 = bf16 bf16",
        "",
    ),
    (
        "{min,max}{,.NaN}{,.xorsign.abs}.bf16x2",
        "bf16x2 = bf16x2 bf16x2",
        "",
    ),
];

/// A power of two.
fn two(exponent: f64) -> f64 {
    exponent.exp2()
}

/// Approximations, with the relative and absolute error that the manual allows. The absolute error
/// also covers the rounding of the emulator, and results that one side flushes to zero.
fn approximate() -> Vec<Form> {
    let smallest = two(-126.0);
    let all: [(&Table, f64, f64); 9] = [
        // The last of its 20 bits is not documented.
        (
            &[("{rcp,rsqrt}.approx.ftz.f64", "f64 = f64", "")],
            two(-19.0),
            0.0,
        ),
        (&[("rsqrt.approx.f64", "f64 = f64", "")], two(-51.0), 0.0),
        (
            &[("div{.full,.approx}{,.ftz}.f32", "f32 = mid mid", "")],
            two(-22.0),
            smallest,
        ),
        (
            &[("{rcp,sqrt,rsqrt,ex2}.approx{,.ftz}.f32", "f32 = f32", "")],
            two(-22.0),
            smallest,
        ),
        (
            &[("lg2.approx{,.ftz}.f32", "f32 = f32", "")],
            two(-22.0),
            two(-22.0),
        ),
        (
            &[("{sin,cos}.approx{,.ftz}.f32", "f32 = angle", "")],
            0.0,
            two(-20.5) + two(-25.0),
        ),
        (
            &[("tanh.approx.f32", "f32 = f32", "")],
            two(-11.0) + two(-24.0),
            smallest,
        ),
        (
            &[
                ("tanh.approx.f16", "f16 = f16", ""),
                ("tanh.approx.f16x2", "f16x2 = f16x2", ""),
            ],
            0.0,
            two(-10.987) + two(-12.0),
        ),
        (
            &[
                ("tanh.approx.bf16", "bf16 = bf16", ""),
                ("tanh.approx.bf16x2", "bf16x2 = bf16x2", ""),
            ],
            0.0,
            two(-8.0) + two(-9.0),
        ),
    ];
    let forms = all
        .into_iter()
        .flat_map(|(table, relative, bound)| listed(table, Exact::Near(relative, bound)));
    forms.chain(powers()).collect()
}

/// Powers of two of halves.
fn powers() -> Vec<Form> {
    let halves: &Table = &[
        ("ex2.approx.f16", "f16 = f16", ""),
        ("ex2.approx.f16x2", "f16x2 = f16x2", ""),
    ];
    let brains: &Table = &[
        ("ex2.approx.ftz.bf16", "bf16 = bf16", ""),
        ("ex2.approx.ftz.bf16x2", "bf16x2 = bf16x2", ""),
    ];
    let mut all = listed(halves, Exact::Near(two(-9.9) + two(-11.0), two(-24.0)));
    all.extend(listed(
        brains,
        Exact::Near(two(-7.0) + two(-8.0), two(-126.0)),
    ));
    all
}

pub(crate) fn forms() -> Vec<Form> {
    let mut all = listed(EXACT, Exact::Bits);
    all.extend(approximate());
    all
}
