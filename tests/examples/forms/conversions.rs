//! Conversions.

use super::case::{Exact, expand};
use super::scalar::{Form, Table, listed};

/// Between packed and small floats, and integers that are packed.
const PACKED: &Table = &[
    (
        "cvt.rn.satfinite{,.relu}{.e4m3x2,.e5m2x2}.f32",
        "b16 = f32 f32",
        "",
    ),
    (
        "cvt.rn.satfinite{,.relu}{.e4m3x2,.e5m2x2}.f16x2",
        "b16 = f16x2",
        "",
    ),
    ("cvt.rn{,.relu}.f16x2{.e4m3x2,.e5m2x2}", "f16x2 = b16", ""),
    (
        "cvt{.rn,.rz}{,.relu}{,.satfinite}.f16x2.f32",
        "f16x2 = f32 f32",
        "",
    ),
    (
        "cvt{.rn,.rz}{,.relu}{,.satfinite}.bf16x2.f32",
        "bf16x2 = f32 f32",
        "",
    ),
    ("cvt{.rn,.rz}{,.relu}{,.satfinite}.f16.f32", "f16 = f32", ""),
    (
        "cvt{.rn,.rz}{,.relu}{,.satfinite}.bf16.f32",
        "bf16 = f32",
        "",
    ),
    ("cvt{.rn,.rz}{,.relu}.tf32.f32", "f32 = f32", ""),
    ("cvt.rna{,.satfinite}.tf32.f32", "f32 = f32", ""),
    ("cvt.pack.sat{.u16,.s16}.s32", "b32 = b32 b32", ""),
    (
        "cvt.pack.sat{.u8,.s8,.u4,.s4,.u2,.s2}.s32.b32",
        "b32 = b32 b32 b32",
        "",
    ),
];

/// Between floats.
const FLOATS: &Table = &[
    ("cvt{.rm,.rp}{,.ftz}{,.sat}.f16.f32", "f16 = f32", ""),
    ("cvt{.rn,.rz}{.ftz,.ftz.sat,.sat}.f16.f32", "f16 = f32", ""),
    ("cvt{.rm,.rp}{,.ftz}.bf16.f32", "bf16 = f32", ""),
    ("cvt{.rn,.rz}.ftz.bf16.f32", "bf16 = f32", ""),
    (
        "cvt{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32.f64",
        "f32 = f64",
        "",
    ),
    ("cvt{.rn,.rz,.rm,.rp}{,.sat}.f16.f64", "f16 = f64", ""),
    ("cvt{.rn,.rz,.rm,.rp}.bf16.f64", "bf16 = f64", ""),
    ("cvt{,.rn,.rz,.rm,.rp}.bf16.f16", "bf16 = f16", ""),
    ("cvt{.rn,.rz,.rm,.rp}.f16.bf16", "f16 = bf16", ""),
    ("cvt{,.ftz}{,.sat}.f32.f16", "f32 = f16", ""),
    ("cvt{,.ftz}.f32.bf16", "f32 = bf16", ""),
    ("cvt{,.sat}.f64.f16", "f64 = f16", ""),
    ("cvt.f64.bf16", "f64 = bf16", ""),
    ("cvt{,.ftz}{,.sat}.f64.f32", "f64 = f32", ""),
    ("cvt{,.ftz}{,.sat}.f32.f32", "f32 = f32", ""),
    ("cvt{,.sat}.f16.f16", "f16 = f16", ""),
    ("cvt{,.sat}.f64.f64", "f64 = f64", ""),
    ("cvt.bf16.bf16", "bf16 = bf16", ""),
    ("cvt{.rni,.rzi,.rmi,.rpi}{,.sat}.f64.f64", "f64 = f64", ""),
    (
        "cvt{.rni,.rzi,.rmi,.rpi}{,.ftz}{,.sat}.f32.f32",
        "f32 = f32",
        "",
    ),
    ("cvt{.rni,.rzi,.rmi,.rpi}{,.sat}.f16.f16", "f16 = f16", ""),
    ("cvt{.rni,.rzi,.rmi,.rpi}.bf16.bf16", "bf16 = bf16", ""),
];

/// Integers, and the registers that hold them.
const INTEGERS: [(&str, &str); 4] = [
    ("{.u8,.s8}", "b16"),
    ("{.u16,.s16}", "b16"),
    ("{.u32,.s32}", "b32"),
    ("{.u64,.s64}", "b64"),
];

pub(crate) fn forms() -> Vec<Form> {
    let mut all = listed(PACKED, Exact::Bits);
    all.extend(listed(FLOATS, Exact::Bits));
    for (names, register) in INTEGERS {
        for (others, from) in INTEGERS {
            for (to, of) in expand(names)
                .iter()
                .flat_map(|to| expand(others).into_iter().map(move |of| (to, of)))
            {
                let sat = if clamps(to, &of) { "{,.sat}" } else { "" };
                push(
                    &mut all,
                    &format!("cvt{sat}{to}{of}"),
                    &format!("{register} = {from}"),
                );
            }
        }
        for (flags, name, float) in [
            ("{,.ftz}{,.sat}", ".f32", "f32"),
            ("{,.sat}", ".f16", "f16"),
            ("{,.sat}", ".f64", "f64"),
        ] {
            let from = format!("cvt{{.rn,.rz,.rm,.rp}}{flags}{name}{names}");
            push(&mut all, &from, &format!("{float} = {register}"));
            let to = format!("cvt{{.rni,.rzi,.rmi,.rpi}}{flags}{names}{name}");
            push(&mut all, &to, &format!("{register} = {float}"));
        }
        if names != INTEGERS[0].0 {
            push(
                &mut all,
                &format!("cvt{{.rn,.rz,.rm,.rp}}.bf16{names}"),
                &format!("bf16 = {register}"),
            );
            push(
                &mut all,
                &format!("cvt{{.rni,.rzi,.rmi,.rpi}}{names}.bf16"),
                &format!("{register} = bf16"),
            );
        }
    }

    all
}

/// Whether an integer type lacks numbers of another one, so that there is something to clamp.
fn clamps(to: &str, of: &str) -> bool {
    let of_type = |ty: &str| {
        (
            ty.starts_with(".s"),
            ty[2..].parse::<u32>().unwrap_or_default(),
        )
    };
    let ((to_signed, to_bits), (of_signed, of_bits)) = (of_type(to), of_type(of));
    match (to_signed, of_signed) {
        (false, true) => true,
        (true, false) => of_bits >= to_bits,
        _ => of_bits > to_bits,
    }
}

fn push(all: &mut Vec<Form>, pattern: &str, types: &str) {
    let form = |name| Form {
        text: format!("{name} %d, %a"),
        types: types.to_owned(),
        exact: Exact::Bits,
    };
    all.extend(expand(pattern).into_iter().map(form));
}
