//! Conversions to and from pairs of 4-bit and 6-bit floats, and of exponents (PTX ISA, "cvt",
//! "Alternate Floating-Point Data Formats").

use half::f16;

use crate::module::code::Op;
use crate::module::context::operands::Decode;
use crate::module::isa::arithmetic::float_number::*;
use crate::module::registers::{Alu, OperandSlots, Regs, Undefined};
use crate::syntax::Parsed;
use crate::syntax::types::Type;

/// A format without infinities and NaN.
#[derive(Clone, Copy, Debug)]
struct Tiny {
    ty: Type,
    mantissa: i32,
    /// The exponent of the smallest normal number.
    least: i32,
    largest: f64,
    /// The width of a number, and of the half of a pair that contains it.
    bits: u32,
    half: u32,
}

const FORMATS: [Tiny; 3] = [
    Tiny {
        ty: Type::E2m1x2,
        mantissa: 1,
        least: 0,
        largest: 6.0,
        bits: 4,
        half: 4,
    },
    Tiny {
        ty: Type::E2m3x2,
        mantissa: 3,
        least: 0,
        largest: 7.5,
        bits: 6,
        half: 8,
    },
    Tiny {
        ty: Type::E3m2x2,
        mantissa: 2,
        least: -2,
        largest: 28.0,
        bits: 6,
        half: 8,
    },
];

impl Tiny {
    /// Returns the nearest number. A value beyond the range, and NaN, become the largest number.
    fn narrow(self, x: f32, relu: bool) -> u32 {
        let x = if relu && x <= 0.0 { 0.0 } else { f64::from(x) };

        // The format has neither NaN nor infinity, so both become the largest value.
        let x = if x.is_nan() {
            self.largest
        } else {
            x.clamp(-self.largest, self.largest)
        };
        let sign = u32::from(x.is_sign_negative()) << (self.bits - 1);
        let rounded = narrow(x, self.mantissa, self.least, Round::Nearest).abs();
        let magnitude = if rounded < power_of_two(self.least) {
            (rounded * power_of_two(self.mantissa - self.least)) as u32
        } else {
            // The exponent is rebiased from 1023, and the smallest normal number has the field 1.
            let exponent = i64::from(1022 + self.least) << self.mantissa;
            ((rounded.to_bits() >> (52 - self.mantissa)) as i64 - exponent) as u32
        };
        sign | magnitude
    }

    /// Returns the value of a number.
    fn wide(self, bits: u32) -> f64 {
        let mantissa = f64::from(bits & ((1 << self.mantissa) - 1)) * power_of_two(-self.mantissa);
        let exponent =
            (bits >> self.mantissa & ((1 << (self.bits - 1 - self.mantissa as u32)) - 1)) as i32;
        let magnitude = match exponent {
            0 => mantissa * power_of_two(self.least),
            _ => (1.0 + mantissa) * power_of_two(exponent - 1 + self.least),
        };
        if bits >> (self.bits - 1) & 1 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }
}

/// Decodes a conversion to or from one of these formats.
pub(crate) fn cvt(d: &mut Decode<'_, '_>) -> Parsed<Option<Op>> {
    let has = |name: &str| d.inst.mods.iter().any(|(m, _)| *m == name);
    if has(".ue8m0x2") {
        return exponents(d).map(Some);
    }
    let Some(i) = FORMATS.iter().position(|format| has(format.ty.name())) else {
        return Ok(None);
    };

    d.require(&[(".rn", ())])?;

    // ptxas accepts `.relu` on either side of `.satfinite`.
    let mut relu = d.eat(".relu");
    let satfinite = d.eat(".satfinite");
    relu = d.eat(".relu") || relu;
    let tiny = FORMATS[i].ty;
    let to = d.ty(&[tiny, Type::F16x2])?;
    let from = d.ty(&[if to == tiny { Type::F32 } else { tiny }])?;
    if satfinite != (to == tiny) {
        return d.error(format!(
            "`{}`: .satfinite goes with conversions to {tiny}, and must",
            d.name()
        ));
    }

    let (run, sources): (Alu, usize) = if to == tiny {
        (narrow_pair, 2)
    } else {
        (widen_pair, 1)
    };
    d.operands(1 + sources, 1 + sources)?;
    let b = if sources == 2 { d.src(2, from)? } else { 0 };
    let x = i as u32 | u32::from(relu) << 4;
    Ok(Some(Op::Alu(
        run,
        OperandSlots {
            d: d.dst(0, to)?,
            a: d.src(1, from)?,
            b,
            x,
            ..OperandSlots::default()
        },
    )))
}

/// Converts two sources. The first source becomes the upper half.
fn narrow_pair(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let format = FORMATS[s.x as usize & 15];
    let relu = s.x >> 4 != 0;
    let a = regs.get::<u32>(s.a, mask)?;
    let b = regs.get::<u32>(s.b, mask)?;
    let one = |x: u32| format.narrow(f32::from_bits(x), relu);
    let out = std::array::from_fn(|i| one(a[i]) << format.half | one(b[i]));
    regs.set(s.d, mask, &out);
    Ok(())
}

fn widen_pair(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let format = FORMATS[s.x as usize & 15];
    let relu = s.x >> 4 != 0;
    let one = |bits: u32| {
        let value = format.wide(bits);
        u32::from(f16::from_f64(if relu && value <= 0.0 { 0.0 } else { value }).to_bits())
    };
    let out = regs
        .get::<u32>(s.a, mask)?
        .map(|a| one(a >> format.half) << 16 | one(a));
    regs.set(s.d, mask, &out);
    Ok(())
}

/// Decodes `cvt{.rz,.rp}{.satfinite}.ue8m0x2{.f32,.bf16x2}` and `cvt.rn.bf16x2.ue8m0x2`.
fn exponents(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let up = d.require(&[(".rz", Some(false)), (".rp", Some(true)), (".rn", None)])?;
    let Some(up) = up else {
        d.ty(&[Type::Bf16x2])?;
        d.ty(&[Type::Ue8m0x2])?;
        d.operands(2, 2)?;
        let to = d.dst(0, Type::Bf16x2)?;
        let a = d.src(1, Type::Ue8m0x2)?;
        return Ok(Op::Alu(
            powers,
            OperandSlots {
                d: to,
                a,
                ..OperandSlots::default()
            },
        ));
    };

    let satfinite = d.eat(".satfinite");
    d.ty(&[Type::Ue8m0x2])?;
    let from = d.ty(&[Type::F32, Type::Bf16x2])?;
    let sources = if from == Type::F32 { 2 } else { 1 };
    d.operands(1 + sources, 1 + sources)?;
    let a = d.src(1, from)?;

    // A pair of `bf16` values is one source, which both halves of the result use.
    let b = if sources == 2 { d.src(2, from)? } else { a };
    let x = u32::from(up) | u32::from(satfinite) << 1 | u32::from(sources == 1) << 2;
    Ok(Op::Alu(
        exponent_pair,
        OperandSlots {
            d: d.dst(0, Type::Ue8m0x2)?,
            a,
            b,
            x,
            ..OperandSlots::default()
        },
    ))
}

/// Returns the exponent of the power of two at or below a magnitude, or at or above it if `up` is
/// set. The sign is ignored. All ones are NaN.
fn exponent(x: u32, up: bool, satfinite: bool) -> u32 {
    let x = x & 0x7fff_ffff;
    // Zero and everything below the smallest power, 2^-127, become that power.
    let above = up && x & 0x007f_ffff != 0 && x > 0x0040_0000 && x < 0x7f80_0000;
    let found = (x >> 23) + u32::from(above);
    if satfinite && found == 255 && x <= 0x7f80_0000 {
        254
    } else {
        found
    }
}

/// Converts a pair of floats to `ue8m0x2`, the first to the upper byte.
fn exponent_pair(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let a = regs.get::<u32>(s.a, mask)?;
    let b = regs.get::<u32>(s.b, mask)?;
    let one = |x: u32| exponent(x, s.x & 1 != 0, s.x & 2 != 0);

    // With bit 2 of `x`, both sources are `bf16` values packed in one register. A `bf16` value is
    // the upper half of the `f32` value.
    let low = |b: u32| if s.x & 4 != 0 { b << 16 } else { b };
    let high = |a: u32| if s.x & 4 != 0 { a & 0xffff_0000 } else { a };
    let out = std::array::from_fn(|i| one(high(a[i])) << 8 | one(low(b[i])));
    regs.set(s.d, mask, &out);
    Ok(())
}

fn powers(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    let one = |bits: u32| match bits & 255 {
        0 => 0x0040,
        255 => 0x7fff,
        exponent => exponent << 7,
    };
    let out = regs
        .get::<u32>(s.a, mask)?
        .map(|a| one(a >> 8) << 16 | one(a));
    regs.set(s.d, mask, &out);
    Ok(())
}
