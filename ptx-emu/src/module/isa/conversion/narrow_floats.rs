//! Conversions to and from pairs, 8-bit floats and `.tf32`, and `cvt.pack` (PTX ISA, "cvt",
//! "cvt.pack").

use half::f16;

use crate::module::code::Op;
use crate::module::context::operands::{BrokenRule, Decode, invalid, unknown};
use crate::module::isa::arithmetic::float_number::*;
use crate::module::registers::{Alu, OperandSlots, Regs, Undefined};
use crate::syntax::Parsed;
use crate::syntax::types::Type;

/// The destination formats of one number.
const FORMATS: &[(Type, NarrowFormat)] = &[
    (Type::F16, NarrowFormat::F16),
    (Type::F16x2, NarrowFormat::F16),
    (Type::Bf16, NarrowFormat::Bf16),
    (Type::Bf16x2, NarrowFormat::Bf16),
    (Type::Tf32, NarrowFormat::Tf32),
    (Type::E4m3x2, NarrowFormat::E4m3),
    (Type::E5m2x2, NarrowFormat::E5m2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NarrowFormat {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
}

impl NarrowFormat {
    /// Returns the largest finite number.
    fn largest(self) -> f64 {
        match self {
            NarrowFormat::F16 => 65504.0,
            NarrowFormat::Bf16 => f32::from_bits(0x7f7f_0000).into(),
            NarrowFormat::Tf32 => f32::from_bits(0x7f7f_e000).into(),
            NarrowFormat::E4m3 => 448.0,
            NarrowFormat::E5m2 => 57344.0,
        }
    }
}

/// A conversion of one number to a narrow format.
#[derive(Clone, Copy, Debug)]
struct Narrowing {
    format: NarrowFormat,
    round: Round,
    /// Whether `.rna` rounds ties away from zero.
    away: bool,
    relu: bool,
    satfinite: bool,
}

impl Narrowing {
    fn pack(self) -> u32 {
        let flags =
            u32::from(self.away) | u32::from(self.relu) << 1 | u32::from(self.satfinite) << 2;
        self.format as u32 | u32::from(self.round == Round::Zero) << 4 | flags << 8
    }

    fn unpack(x: u32) -> Narrowing {
        let formats = [
            NarrowFormat::F16,
            NarrowFormat::Bf16,
            NarrowFormat::Tf32,
            NarrowFormat::E4m3,
            NarrowFormat::E5m2,
        ];
        Narrowing {
            format: formats[x as usize & 15],
            round: if x >> 4 & 1 != 0 {
                Round::Zero
            } else {
                Round::Nearest
            },
            away: x >> 8 & 1 != 0,
            relu: x >> 9 & 1 != 0,
            satfinite: x >> 10 & 1 != 0,
        }
    }

    /// Returns the bits of a number after the conversion.
    fn bits(self, x: f64) -> u32 {
        let x = if self.relu && x <= 0.0 { 0.0 } else { x };
        let most = self.format.largest();

        // A NaN is not clamped, because each format has its own NaN.
        let x = if self.satfinite && !x.is_nan() {
            x.clamp(-most, most)
        } else {
            x
        };
        match self.format {
            NarrowFormat::F16 => narrow16(x, self.round).into(),
            NarrowFormat::Bf16 => narrow_bf16(x, self.round).into(),
            NarrowFormat::Tf32 if self.away => tf32_away(x as f32, self.satfinite),
            NarrowFormat::Tf32 => narrow_tf32(x, self.round),
            NarrowFormat::E4m3 => narrow8(x, 3, -6).into(),
            NarrowFormat::E5m2 => narrow8(x, 2, -14).into(),
        }
    }
}

/// Rounds to ten mantissa bits with ties away from zero. A clamped number stays finite.
fn tf32_away(x: f32, satfinite: bool) -> u32 {
    let bits = crate::module::isa::arithmetic::float_number::tf32(x);
    if satfinite && bits & 0x7fff_ffff == 0x7f80_0000 {
        bits & 0x8000_0000 | 0x7f7f_e000
    } else {
        bits
    }
}

/// Returns the `.tf32` bits of an `f64`.
fn narrow_tf32(x: f64, round: Round) -> u32 {
    if x.is_nan() {
        return 0x7fff_ffff;
    }

    let rounded = narrow(x, 10, -126, round);
    let most = NarrowFormat::Tf32.largest();
    let rounded = if round == Round::Zero && x.is_finite() {
        rounded.clamp(-most, most)
    } else {
        rounded
    };
    (rounded as f32).to_bits()
}

/// Returns the 8-bit float of a number that was clamped to the range of the format. NaN is `0x7f`.
fn narrow8(x: f64, mantissa: i32, least: i32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }

    let sign = u8::from(x.is_sign_negative()) << 7;
    let rounded = narrow(x, mantissa, least, Round::Nearest).abs();
    let magnitude = if rounded < power_of_two(least) {
        (rounded * power_of_two(mantissa - least)) as u8
    } else {
        ((rounded.to_bits() >> (52 - mantissa)) as i64 - (i64::from(1022 + least) << mantissa))
            as u8
    };
    sign | magnitude
}

/// Returns the `f16` bits of an 8-bit float. Both 8-bit formats widen exactly.
fn widen8(format: NarrowFormat, bits: u8, relu: bool) -> u16 {
    let value = match format {
        NarrowFormat::E4m3 => small_float(bits.into(), 4),
        _ => small_float(bits.into(), 5),
    };
    narrow16(
        if relu && value <= 0.0 {
            0.0
        } else {
            value.into()
        },
        Round::Nearest,
    )
}

/// Decodes a conversion for which [`convert`](crate::module::isa::conversion::cvt) has no general
/// rule.
pub(crate) fn cvt(d: &mut Decode<'_, '_>) -> Parsed<Option<Op>> {
    let has = |d: &Decode<'_, '_>, suffix: &str| d.inst.mods.iter().any(|(m, _)| *m == suffix);
    if d.eat(".pack") {
        return pack(d).map(Some);
    }
    if let Some(op) = crate::module::isa::conversion::tiny_floats::cvt(d)? {
        return Ok(Some(op));
    }

    let special = [
        ".satfinite",
        ".rna",
        ".tf32",
        ".f16x2",
        ".bf16x2",
        ".e4m3x2",
        ".e5m2x2",
    ]
    .iter()
    .any(|s| has(d, s));
    if !special {
        return Ok(None);
    }

    let (round, away) = d.require(&[
        (".rn", (Round::Nearest, false)),
        (".rz", (Round::Zero, false)),
        (".rna", (Round::Nearest, true)),
    ])?;

    // ptxas accepts `.relu` on either side of `.satfinite`.
    let mut relu = d.eat(".relu");
    let satfinite = d.eat(".satfinite");
    relu = d.eat(".relu") || relu;
    let types: Vec<Type> = FORMATS.iter().map(|(ty, _)| *ty).collect();
    let to = d.ty(&types)?;
    let from = d.ty(&[Type::F32, Type::F16x2, Type::E4m3x2, Type::E5m2x2])?;
    let format = FORMATS
        .iter()
        .find(|(ty, _)| *ty == to)
        .map_or(NarrowFormat::F16, |(_, f)| *f);
    let n = Narrowing {
        format,
        round,
        away,
        relu,
        satfinite,
    };
    if let Some(rule) = illegal(&n, to, from) {
        return d.breaks(rule);
    }

    conversion(d, n, to, from).map(Some)
}

fn eight(ty: Type) -> bool {
    matches!(ty, Type::E4m3x2 | Type::E5m2x2)
}

/// Returns the requirement that an illegal form does not meet.
fn illegal(n: &Narrowing, to: Type, from: Type) -> Option<BrokenRule> {
    let wrong = [
        (n.away && to != Type::Tf32, invalid(".rna is for .tf32")),
        (n.away && n.relu, invalid(".rna goes without .relu")),
        (
            eight(to) && !n.satfinite,
            invalid("conversions to 8-bit floats need .satfinite"),
        ),
        (
            (eight(to) || eight(from)) && n.round != Round::Nearest,
            invalid("8-bit floats are rounded with .rn"),
        ),
        (
            eight(from) && (to != Type::F16x2 || n.satfinite),
            unknown("8-bit floats are converted to .f16x2 only"),
        ),
        (
            from == Type::F16x2 && !eight(to),
            invalid("a pair of halves is converted to 8-bit floats only"),
        ),
    ];
    wrong
        .iter()
        .find(|(wrong, _)| *wrong)
        .map(|(_, rule)| *rule)
}

fn conversion(d: &mut Decode<'_, '_>, n: Narrowing, to: Type, from: Type) -> Parsed<Op> {
    let pair = matches!(to, Type::F16x2 | Type::Bf16x2) || eight(to);
    let (run, sources): (Alu, usize) = match (from, pair) {
        (Type::F32, false) => (one, 1),
        (Type::F32, true) => (two, 2),
        (Type::F16x2, _) => (halves_to_eight, 1),
        (Type::E4m3x2, _) => (from_e4m3, 1),
        _ => (from_e5m2, 1),
    };
    d.operands(1 + sources, 1 + sources)?;
    let b = if sources == 2 { d.src(2, from)? } else { 0 };

    // Registers have no `.tf32` type, so the bits are in a `.b32` register.
    let to = if to == Type::Tf32 { Type::B32 } else { to };
    Ok(Op::Alu(
        run,
        OperandSlots {
            d: d.dst(0, to)?,
            a: d.src(1, from)?,
            b,
            x: n.pack(),
            ..OperandSlots::default()
        },
    ))
}

fn single(bits: u32) -> f64 {
    f32::from_bits(bits).into()
}

fn one(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let n = Narrowing::unpack(s.x);
    let out = regs.get::<u32>(s.a, mask)?.map(|a| n.bits(single(a)));
    regs.set(s.d, mask, &out);
    Ok(())
}

/// Converts two sources. The first source becomes the upper half.
fn two(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let n = Narrowing::unpack(s.x);
    let a = regs.get::<u32>(s.a, mask)?;
    let b = regs.get::<u32>(s.b, mask)?;
    let width = if matches!(n.format, NarrowFormat::E4m3 | NarrowFormat::E5m2) {
        8
    } else {
        16
    };
    let out = std::array::from_fn(|i| n.bits(single(a[i])) << width | n.bits(single(b[i])));
    regs.set(s.d, mask, &out);
    Ok(())
}

fn halves_to_eight(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let n = Narrowing::unpack(s.x);
    let half = |bits: u32| n.bits(f16::from_bits(bits as u16).wide().into());
    let out = regs
        .get::<u32>(s.a, mask)?
        .map(|a| half(a >> 16) << 8 | half(a));
    regs.set(s.d, mask, &out);
    Ok(())
}

fn from_e4m3(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    from_eight(regs, mask, s, NarrowFormat::E4m3)
}

fn from_e5m2(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    from_eight(regs, mask, s, NarrowFormat::E5m2)
}

fn from_eight(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    format: NarrowFormat,
) -> Result<(), Undefined> {
    let relu = Narrowing::unpack(s.x).relu;
    let wide = |bits: u32| u32::from(widen8(format, bits as u8, relu));
    let out = regs
        .get::<u32>(s.a, mask)?
        .map(|a| wide(a >> 8) << 16 | wide(a));
    regs.set(s.d, mask, &out);
    Ok(())
}

/// The destination types of `cvt.pack`, with their range and width.
const PACKED: &[(&str, (i32, i32, u32))] = &[
    (".u16", (0, 65535, 16)),
    (".s16", (-32768, 32767, 16)),
    (".u8", (0, 255, 8)),
    (".s8", (-128, 127, 8)),
    (".u4", (0, 15, 4)),
    (".s4", (-8, 7, 4)),
    (".u2", (0, 3, 2)),
    (".s2", (-2, 1, 2)),
];

/// Decodes `cvt.pack.sat.type.s32 d, a, b` and `cvt.pack.sat.type.s32.b32 d, a, b, c`.
fn pack(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    d.require(&[(".sat", ())])?;
    let choices: Vec<(&str, usize)> = PACKED
        .iter()
        .enumerate()
        .map(|(i, (name, _))| (*name, i))
        .collect();
    let form = d.require(&choices)?;
    d.require(&[(".s32", ())])?;
    let bits = PACKED[form].1.2;
    if bits < 16 {
        d.require(&[(".b32", ())])?;
    }

    let n = if bits < 16 { 4 } else { 3 };
    d.operands(n, n)?;

    // Two values of 16 bits fill the result, so these forms have no `c`. The function for all forms
    // reads three sources, and `b` serves as the third.
    let c = if n == 4 {
        d.src(3, Type::B32)?
    } else {
        d.src(2, Type::S32)?
    };
    let to = d.dst(0, Type::B32)?;
    let a = d.src(1, Type::S32)?;
    let b = d.src(2, Type::S32)?;
    Ok(Op::Alu(
        pack_lanes,
        OperandSlots {
            d: to,
            a,
            b,
            c,
            x: form as u32,
            e: 0,
        },
    ))
}

/// Packs two saturated integers, with the first above the second. The low part of `c` moves above
/// both.
fn pack_lanes(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let (least, most, bits) = PACKED[s.x as usize].1;
    let field = |x: u32| (x as i32).clamp(least, most) as u32 & ((1 << bits) - 1);
    let a = regs.get::<u32>(s.a, mask)?;
    let b = regs.get::<u32>(s.b, mask)?;
    let c = regs.get::<u32>(s.c, mask)?;

    // Two fields of 16 bits leave no room for `c`, and a shift by 32 would overflow.
    let above = |c: u32| if bits < 16 { c << (2 * bits) } else { 0 };
    let out = std::array::from_fn(|i| above(c[i]) | field(a[i]) << bits | field(b[i]));
    regs.set(s.d, mask, &out);
    Ok(())
}
