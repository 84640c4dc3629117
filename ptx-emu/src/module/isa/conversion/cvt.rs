//! `cvt` (PTX ISA, "cvt").
//!
//! Frequent pairs of types are table rows. All other conversions go through the exact value.

use half::{bf16, f16};

use crate::module::code::Op;
use crate::module::context::operands::{BrokenRule, Decode, Decoder, invalid, unknown};
use crate::module::context::row::{ArithmeticRow, rows};
pub(crate) use crate::module::isa::arithmetic::float_number::*;
use crate::module::registers::{Alu, OperandSlots, Raw, Regs, Two, Undefined};
use crate::syntax::Parsed;
use crate::syntax::types::{Type, TypeKind};

pub(crate) const DECODERS: &[(&str, Decoder)] = &[("cvt", cvt)];

/// The pairs that occur in inner loops, for registers of exactly these sizes.
pub(crate) const FAST: &[ArithmeticRow] = rows! {
    "cvt.{u64,s64}.u32" => |a: u32| -> u64 { a.into() }
    "cvt.{u64,s64}.s32" => |a: i32| -> i64 { a.into() }
    "cvt.{u32,s32}.{u64,s64}" => |a: u64| -> u32 { a as u32 }
    "cvt.{u32,s32}.u16" => |a: u16| -> u32 { a.into() }
    "cvt.{u32,s32}.s16" => |a: i16| -> i32 { a.into() }
    "cvt.{u16,s16}.{u32,s32}" => |a: u32| -> u16 { a as u16 }
    "cvt.rn.f32.s32" => |a: i32| -> f32 { a as f32 }
    "cvt.rn.f32.u32" => |a: u32| -> f32 { a as f32 }
    "cvt.f32.f16" => |a: f16| -> f32 { canon(a.wide()) }
    "cvt.f32.bf16" => |a: bf16| -> f32 { a.wide() }
    "cvt.rn.f16.f32" => |a: f32| -> f16 { f16::from_bits(narrow_single(a)) }
    "cvt.rn.f16x2.f32" => |a: f32, b: f32| -> Two<f16> { Two(f16::round(b.into()), f16::round(a.into())) }
    "cvt.rn.relu.f16x2.f32" => |a: f32, b: f32| -> Two<f16> { Two(f16::round(relu(b)), f16::round(relu(a))) }
    "cvt.rz.f16x2.f32" => |a: f32, b: f32| -> Two<f16> { Two(zero16(b), zero16(a)) }
    "cvt.rn.bf16.f32" => |a: f32| -> bf16 { bf16::round(a.into()) }
    "cvt.rn.bf16x2.f32" => |a: f32, b: f32| -> Two<bf16> { Two(bf16::round(b.into()), bf16::round(a.into())) }
    "cvt.rn.relu.bf16x2.f32" => |a: f32, b: f32| -> Two<bf16> { Two(bf16::round(relu(b)), bf16::round(relu(a))) }
    "cvt.rz.bf16x2.f32" => |a: f32, b: f32| -> Two<bf16> { Two(zero_bf16(b), zero_bf16(a)) }
    "cvt.f64.f32" => |a: f32| -> f64 { a.into() }
    "cvt.rn.f32.f64" => |a: f64| -> f32 { canon(a as f32) }
    "cvt.rna.tf32.f32" => |a: f32| -> u32 { tf32(a) }
};

fn relu(x: f32) -> f64 {
    if x <= 0.0 { 0.0 } else { x.into() }
}

fn zero16(x: f32) -> f16 {
    f16::from_bits(narrow16(x.into(), Round::Zero))
}

fn zero_bf16(x: f32) -> bf16 {
    bf16::from_bits(narrow_bf16(x.into(), Round::Zero))
}

/// The rounding to a float or to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Float(Round),
    Integer(Round),
}

const MODES: &[(&str, Mode)] = &[
    (".rn", Mode::Float(Round::Nearest)),
    (".rz", Mode::Float(Round::Zero)),
    (".rm", Mode::Float(Round::Down)),
    (".rp", Mode::Float(Round::Up)),
    (".rni", Mode::Integer(Round::Nearest)),
    (".rzi", Mode::Integer(Round::Zero)),
    (".rmi", Mode::Integer(Round::Down)),
    (".rpi", Mode::Integer(Round::Up)),
];

const TYPES: &[Type] = &[
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::S8,
    Type::S16,
    Type::S32,
    Type::S64,
    Type::F16,
    Type::Bf16,
    Type::F32,
    Type::F64,
];

/// Any conversion.
#[derive(Clone, Copy, Debug)]
struct AnyConversion {
    mode: Option<Mode>,
    ftz: bool,
    sat: bool,
    relu: bool,
    to: Type,
    from: Type,
    /// The width of the destination register in bits, to which integers are extended.
    bits: u32,
}

fn fast(name: &str) -> Option<&'static ArithmeticRow> {
    FAST.iter().find(|row| {
        crate::module::context::row::expand(row.names)
            .iter()
            .any(|n| n == name)
    })
}

fn is_float(ty: Type) -> bool {
    matches!(ty.kind(), TypeKind::Float | TypeKind::Alternate)
}

fn cvt(d: &mut Decode<'_, '_>) -> Parsed<Op> {
    let name = d.name();
    let row = fast(&name);
    if let Some(row) =
        row.filter(|row| row.src.len() == 2 || row.dst == Type::U32 && name.contains("tf32"))
    {
        return d.row(row);
    }

    // Narrow formats have suffixes of their own, so they are recognized before the general ones are
    // consumed.
    if let Some(op) = crate::module::isa::conversion::narrow_floats::cvt(d)? {
        return Ok(op);
    }

    let mode = d.choose(MODES);
    let ftz = d.eat(".ftz");
    let sat = d.eat(".sat");
    let relu = d.eat(".relu");
    let to = d.ty(TYPES)?;
    let from = d.ty(TYPES)?;
    d.operands(2, 2)?;
    let c = AnyConversion {
        mode,
        ftz,
        sat,
        relu,
        to,
        from,
        bits: 0,
    };
    if let Some(rule) = illegal(&c) {
        return d.breaks(rule);
    }

    // A row applies only if the registers have exactly the widths of its types.
    if let Some(op) = row.and_then(|row| d.attempt(row)) {
        return Ok(op);
    }

    general(d, c)
}

/// Returns the reason why a pair of types does not allow the rounding mode or the flags.
fn illegal(c: &AnyConversion) -> Option<BrokenRule> {
    let narrows = is_float(c.from)
        && is_float(c.to)
        && (c.to.bits() < c.from.bits() || c.to.bits() == 16 && c.to != c.from);
    let wrong = [
        (
            // ptxas accepts `cvt.bf16.f16` and treats it as `.rn`.
            c.mode.is_none()
                && is_float(c.to)
                && (!is_float(c.from) || narrows)
                && (c.to, c.from) != (Type::Bf16, Type::F16),
            unknown("a rounding mode such as .rn is required"),
        ),
        (
            c.mode.is_none() && !is_float(c.to) && is_float(c.from),
            invalid("an integer rounding mode such as .rzi is required"),
        ),
        (
            c.mode.is_some() && !is_float(c.to) && !is_float(c.from),
            invalid("integers convert without rounding mode"),
        ),
        (
            matches!(c.mode, Some(Mode::Float(_))) && !is_float(c.to),
            invalid("an integer rounding mode such as .rzi is required"),
        ),
        (
            matches!(c.mode, Some(Mode::Integer(_))) && is_float(c.to) && c.to != c.from,
            unknown("a rounding mode such as .rn is required"),
        ),
        (
            matches!(c.mode, Some(Mode::Float(_)))
                && is_float(c.from)
                && is_float(c.to)
                && !narrows,
            unknown("widening is exact and takes no rounding mode"),
        ),
        (
            c.ftz && c.to != Type::F32 && c.from != Type::F32,
            invalid(".ftz applies to .f32 only"),
        ),
        (
            c.sat
                && (c.to == Type::Bf16
                    || c.from == Type::Bf16
                        && !matches!((c.to, c.ftz), (Type::F32, false) | (Type::F64, _))),
            invalid("`.sat` does not go with .bf16"),
        ),
        (
            c.relu && !(narrows && c.to.bits() == 16),
            invalid(".relu applies when narrowing to .f16 or .bf16"),
        ),
    ];
    wrong
        .iter()
        .find(|(wrong, _)| *wrong)
        .map(|(_, rule)| *rule)
}

fn general(d: &mut Decode<'_, '_>, mut c: AnyConversion) -> Parsed<Op> {
    let to = d.wider(d.operand(0), c.to)?;
    let (a, wide) = d.cvt_src(c.from)?;
    c.bits = to.ty.bits();

    // The function depends on the banks only. The types are in the packed constant.
    let run: Alu = match (to.ty.bits() == 64, wide) {
        (false, false) => convert::<u32, u32>,
        (false, true) => convert::<u64, u32>,
        (true, false) => convert::<u32, u64>,
        (true, true) => convert::<u64, u64>,
    };
    Ok(Op::Alu(
        run,
        OperandSlots {
            d: to.slot,
            a,
            x: c.pack(),
            ..OperandSlots::default()
        },
    ))
}

/// Conversion of the bits of a register to 64 bits and back.
trait Bits: Raw {
    fn wide(self) -> u64;
    fn narrow(wide: u64) -> Self;
}

impl Bits for u32 {
    fn wide(self) -> u64 {
        self.into()
    }
    fn narrow(wide: u64) -> u32 {
        wide as u32
    }
}

impl Bits for u64 {
    fn wide(self) -> u64 {
        self
    }
    fn narrow(wide: u64) -> u64 {
        wide
    }
}

fn convert<S: Bits, D: Bits>(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
) -> Result<(), Undefined> {
    let c = AnyConversion::unpack(s.x);
    let a = regs.get::<S>(s.a, mask)?;
    let out = std::array::from_fn(|i| D::narrow(c.lane(a[i].wide())));
    regs.set(s.d, mask, &out);
    Ok(())
}

impl AnyConversion {
    fn pack(&self) -> u32 {
        let mode = MODES
            .iter()
            .position(|(_, m)| Some(*m) == self.mode)
            .unwrap_or(8) as u32;
        let index = |ty| TYPES.iter().position(|t| *t == ty).unwrap_or(0) as u32;
        let flags = u32::from(self.ftz) | u32::from(self.sat) << 1 | u32::from(self.relu) << 2;
        mode | flags << 4 | index(self.to) << 8 | index(self.from) << 12 | self.bits << 16
    }

    fn unpack(x: u32) -> AnyConversion {
        let flag = |i: u32| x >> (4 + i) & 1 != 0;
        AnyConversion {
            mode: MODES.get(x as usize & 15).map(|(_, m)| *m),
            ftz: flag(0),
            sat: flag(1),
            relu: flag(2),
            to: TYPES[(x >> 8 & 15) as usize],
            from: TYPES[(x >> 12 & 15) as usize],
            bits: x >> 16,
        }
    }

    /// Converts the value of one lane from register bits to register bits.
    fn lane(&self, raw: u64) -> u64 {
        match (is_float(self.from), is_float(self.to)) {
            (false, false) => self.extend(self.clamp(self.integer(raw))),
            (false, true) => self.integer_to_float(self.integer(raw)),
            (true, false) => self.extend(self.float_to_integer(self.float(raw))),
            (true, true) => self.float_to_float(raw),
        }
    }

    fn integer(&self, raw: u64) -> i128 {
        let bits = self.from.bits();
        match self.from.kind() {
            TypeKind::Signed => i128::from((raw as i64) << (64 - bits) >> (64 - bits)),
            _ => i128::from(raw & u64::MAX >> (64 - bits)),
        }
    }

    /// Returns the range of the destination type.
    fn range(&self) -> (i128, i128) {
        let bits = self.to.bits();
        match self.to.kind() {
            TypeKind::Signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            _ => (0, (1 << bits) - 1),
        }
    }

    fn clamp(&self, value: i128) -> i128 {
        let (least, most) = self.range();
        if self.sat {
            value.clamp(least, most)
        } else {
            value
        }
    }

    /// Truncates to the destination type, and extends the result to the register.
    fn extend(&self, value: i128) -> u64 {
        let shift = 128 - self.to.bits();
        let value = match self.to.kind() {
            TypeKind::Signed => value << shift >> shift,
            _ => (value as u128) as i128 & ((1 << self.to.bits()) - 1),
        };
        value as u64 & u64::MAX >> (64 - self.bits)
    }

    fn float(&self, raw: u64) -> f64 {
        match self.from {
            Type::F16 => f16::from_bits(raw as u16).wide().into(),
            Type::Bf16 => bf16::from_bits(raw as u16).wide().into(),
            Type::F64 => f64::from_bits(raw),
            // An H100 flushes nothing in a conversion to a 16-bit float.
            _ if self.ftz && self.to != Type::F16 => ftz(f32::from_bits(raw as u32)).into(),
            _ => f32::from_bits(raw as u32).into(),
        }
    }

    /// Returns the integer for a NaN: only the sign bit if the source is `f64` or the result has 64
    /// bits, or else 0.
    fn not_a_number(&self) -> i128 {
        let wide = self.from == Type::F64 || self.to.bits() == 64;
        if wide { 1 << (self.to.bits() - 1) } else { 0 }
    }

    /// Converts a float to an integer, which always saturates.
    fn float_to_integer(&self, value: f64) -> i128 {
        if value.is_nan() {
            return self.not_a_number();
        }
        let round = match self.mode {
            Some(Mode::Integer(round) | Mode::Float(round)) => round,
            None => Round::Zero,
        };
        let (least, most) = self.range();
        (rounded(value, round) as i128).clamp(least, most)
    }

    fn integer_to_float(&self, value: i128) -> u64 {
        let near = value as f64;
        let lost = value - near as i128;
        let round = self.rounding();
        if self.to == Type::F64 {
            let down = lost < 0 && (round == Round::Down || round == Round::Zero && value > 0);
            let up = lost > 0 && (round == Round::Up || round == Round::Zero && value < 0);
            let moved = if down {
                near.next_down()
            } else if up {
                near.next_up()
            } else {
                near
            };
            return self.saturate64(moved).to_bits();
        }

        self.finish(to_odd(near, lost as f64))
    }

    fn rounding(&self) -> Round {
        match self.mode {
            Some(Mode::Float(round)) => round,
            _ => Round::Nearest,
        }
    }

    fn float_to_float(&self, raw: u64) -> u64 {
        let value = match self.mode {
            Some(Mode::Integer(round)) => rounded(self.float(raw), round),
            _ => self.float(raw),
        };
        let value = if self.relu && value <= 0.0 {
            0.0
        } else {
            value
        };
        match self.to {
            Type::F64 => self.saturate64(value).to_bits(),
            _ => self.finish(value),
        }
    }

    fn saturate64(&self, value: f64) -> f64 {
        if self.sat { sat64(value) } else { value }
    }

    /// Narrows an `f64`, which is exact or rounded to odd, to the destination type.
    fn finish(&self, value: f64) -> u64 {
        let value = self.saturate64(value);
        let round = self.rounding();
        match self.to {
            Type::F16 => narrow16(value, round).into(),
            Type::Bf16 => narrow_bf16(value, round).into(),
            _ => {
                let single = round32(value, round);
                let single = if self.ftz { ftz(single) } else { single };
                single.to_bits().into()
            }
        }
    }
}

/// Rounds to an integral value.
fn rounded(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => nearest(value),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}
