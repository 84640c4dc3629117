//! `f32` and `f64` arithmetic (PTX ISA, "Floating-Point Instructions").

use crate::module::context::row::{ArithmeticRow, rows};
use crate::module::isa::arithmetic::float_number::Round::{Down, Up, Zero};
use crate::module::isa::arithmetic::float_number::{Round, *};
use crate::module::registers::{OperandSlots, Regs, Undefined};
use crate::syntax::types::Type;

/// Returns the sine. The argument is reduced in double precision.
fn sin(x: f32) -> f32 {
    approx(x, f64::sin)
}

fn cos(x: f32) -> f32 {
    approx(x, f64::cos)
}

fn rsqrt(x: f32) -> f32 {
    approx(x, |x| 1.0 / x.sqrt())
}

fn recip(x: f32, round: Round) -> f32 {
    div32(1.0, x, round)
}

/// `fma.rn.f32`, the most frequent instruction, which has its own fast path.
pub(crate) const FUSED: &[ArithmeticRow] = &[
    ArithmeticRow {
        names: "{fma,mad}.rn.f32",
        dst: Type::F32,
        src: &[Type::F32; 3],
        run: fma_lanes,
    },
    ArithmeticRow {
        names: "{fma,mad}.rn.ftz.f32",
        dst: Type::F32,
        src: &[Type::F32; 3],
        run: fma_lanes_ftz,
    },
];

fn fma_lanes(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    fused(regs, mask, s, |x| x)
}

fn fma_lanes_ftz(regs: &mut Regs, mask: u32, s: &OperandSlots) -> Result<(), Undefined> {
    fused(regs, mask, s, ftz)
}

/// Computes `fma` in all lanes. `flush` flushes operands and results.
#[inline(always)]
fn fused(
    regs: &mut Regs,
    mask: u32,
    s: &OperandSlots,
    flush: impl Fn(f32) -> f32 + Copy,
) -> Result<(), Undefined> {
    let take = |slot| regs.get::<u32>(slot, mask);
    let sums = fma32_many(take(s.a)?, take(s.b)?, take(s.c)?, flush);
    regs.set(s.d, mask, &sums);
    Ok(())
}

pub(crate) const ROWS: &[ArithmeticRow] = rows! {
    "add{,.rn}.f32" => |a: f32, b: f32| -> f32 { canon(a + b) }
    "add{,.rn}.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(canon(ftz(a) + ftz(b))) }
    "add{,.rn}.sat.f32" => |a: f32, b: f32| -> f32 { sat(a + b) }
    "add{,.rn}.ftz.sat.f32" => |a: f32, b: f32| -> f32 { sat(ftz(ftz(a) + ftz(b))) }
    "add.rz.f32" => |a: f32, b: f32| -> f32 { add32(a, b, Zero) }
    "add.rm.f32" => |a: f32, b: f32| -> f32 { add32(a, b, Down) }
    "add.rp.f32" => |a: f32, b: f32| -> f32 { add32(a, b, Up) }
    "add{,.rn}.f64" => |a: f64, b: f64| -> f64 { a + b }
    "sub{,.rn}.f32" => |a: f32, b: f32| -> f32 { canon(a - b) }
    "sub{,.rn}.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(canon(ftz(a) - ftz(b))) }
    "sub{,.rn}.sat.f32" => |a: f32, b: f32| -> f32 { sat(a - b) }
    "sub{,.rn}.ftz.sat.f32" => |a: f32, b: f32| -> f32 { sat(ftz(ftz(a) - ftz(b))) }
    "sub.rz.f32" => |a: f32, b: f32| -> f32 { add32(a, -b, Zero) }
    "sub.rm.f32" => |a: f32, b: f32| -> f32 { add32(a, -b, Down) }
    "sub.rp.f32" => |a: f32, b: f32| -> f32 { add32(a, -b, Up) }
    "sub{,.rn}.f64" => |a: f64, b: f64| -> f64 { a - b }
    "mul{,.rn}.f32" => |a: f32, b: f32| -> f32 { canon(a * b) }
    "mul{,.rn}.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(canon(ftz(a) * ftz(b))) }
    "mul{,.rn}.sat.f32" => |a: f32, b: f32| -> f32 { sat(a * b) }
    "mul{,.rn}.ftz.sat.f32" => |a: f32, b: f32| -> f32 { sat(ftz(ftz(a) * ftz(b))) }
    "mul.rz.f32" => |a: f32, b: f32| -> f32 { mul32(a, b, Zero) }
    "mul.rm.f32" => |a: f32, b: f32| -> f32 { mul32(a, b, Down) }
    "mul.rp.f32" => |a: f32, b: f32| -> f32 { mul32(a, b, Up) }
    "mul{,.rn}.f64" => |a: f64, b: f64| -> f64 { a * b }
    "{fma,mad}.rn.sat.f32" => |a: f32, b: f32, c: f32| -> f32 { sat(fma32(a, b, c)) }
    "{fma,mad}.rn.ftz.sat.f32" => |a: f32, b: f32, c: f32| -> f32 { sat(ftz(fma32(ftz(a), ftz(b), ftz(c)))) }
    "{fma,mad}.rz.f32" => |a: f32, b: f32, c: f32| -> f32 { fma32_round(a, b, c, Zero) }
    "{fma,mad}.rm.f32" => |a: f32, b: f32, c: f32| -> f32 { fma32_round(a, b, c, Down) }
    "{fma,mad}.rp.f32" => |a: f32, b: f32, c: f32| -> f32 { fma32_round(a, b, c, Up) }
    "{fma,mad}.rn.f64" => |a: f64, b: f64, c: f64| -> f64 { a.mul_add(b, c) }

    "div.rn.f32" => |a: f32, b: f32| -> f32 { canon(a / b) }
    "div.rn.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(canon(ftz(a) / ftz(b))) }
    "div.rz.f32" => |a: f32, b: f32| -> f32 { div32(a, b, Zero) }
    "div.rm.f32" => |a: f32, b: f32| -> f32 { div32(a, b, Down) }
    "div.rp.f32" => |a: f32, b: f32| -> f32 { div32(a, b, Up) }
    "div.full.f32" => |a: f32, b: f32| -> f32 { canon(a / b) }
    "div.full.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(canon(ftz(a) / ftz(b))) }
    "div.approx.f32" => |a: f32, b: f32| -> f32 { div_approx(a, b) }
    "div.approx.ftz.f32" => |a: f32, b: f32| -> f32 { ftz(div_approx(ftz(a), ftz(b))) }
    "div.rn.f64" => |a: f64, b: f64| -> f64 { a / b }

    "copysign.f32" => |a: f32, b: f32| -> f32 { b.copysign(a) }
    "copysign.f64" => |a: f64, b: f64| -> f64 { b.copysign(a) }
    "abs.f32" => |a: f32| -> f32 { a.abs() }
    "abs.ftz.f32" => |a: f32| -> f32 { ftz(a.abs()) }
    "abs.f64" => |a: f64| -> f64 { a.abs() }
    "neg.f32" => |a: f32| -> f32 { -a }
    "neg.ftz.f32" => |a: f32| -> f32 { ftz(-a) }
    "neg.f64" => |a: f64| -> f64 { -a }
    "min.f32" => |a: f32, b: f32| -> f32 { min32(a, b) }
    "min.ftz.f32" => |a: f32, b: f32| -> f32 { min32(ftz(a), ftz(b)) }
    "min.NaN.f32" => |a: f32, b: f32| -> f32 { if a.is_nan() || b.is_nan() { NAN32 } else { min32(a, b) } }
    "min.ftz.NaN.f32" => |a: f32, b: f32| -> f32 { if a.is_nan() || b.is_nan() { NAN32 } else { min32(ftz(a), ftz(b)) } }
    "min.f64" => |a: f64, b: f64| -> f64 { min64(a, b) }
    "max.f32" => |a: f32, b: f32| -> f32 { max32(a, b) }
    "max.ftz.f32" => |a: f32, b: f32| -> f32 { max32(ftz(a), ftz(b)) }
    "max.NaN.f32" => |a: f32, b: f32| -> f32 { if a.is_nan() || b.is_nan() { NAN32 } else { max32(a, b) } }
    "max.ftz.NaN.f32" => |a: f32, b: f32| -> f32 { if a.is_nan() || b.is_nan() { NAN32 } else { max32(ftz(a), ftz(b)) } }
    "max.f64" => |a: f64, b: f64| -> f64 { max64(a, b) }

    "rcp.rn.f32" => |a: f32| -> f32 { canon(1.0 / a) }
    "rcp.rn.ftz.f32" => |a: f32| -> f32 { ftz(canon(1.0 / ftz(a))) }
    "rcp.rz.f32" => |a: f32| -> f32 { recip(a, Zero) }
    "rcp.rm.f32" => |a: f32| -> f32 { recip(a, Down) }
    "rcp.rp.f32" => |a: f32| -> f32 { recip(a, Up) }
    "rcp.rn.f64" => |a: f64| -> f64 { 1.0 / a }
    "rcp.approx.f32" => |a: f32| -> f32 { canon(1.0 / a) }
    "rcp.approx.ftz.f32" => |a: f32| -> f32 { ftz(canon(1.0 / ftz(a))) }
    "sqrt.rn.f32" => |a: f32| -> f32 { canon(a.sqrt()) }
    "sqrt.rn.ftz.f32" => |a: f32| -> f32 { canon(ftz(a).sqrt()) }
    "sqrt.rz.f32" => |a: f32| -> f32 { sqrt32(a, Zero) }
    "sqrt.rm.f32" => |a: f32| -> f32 { sqrt32(a, Down) }
    "sqrt.rp.f32" => |a: f32| -> f32 { sqrt32(a, Up) }
    "sqrt.rn.f64" => |a: f64| -> f64 { a.sqrt() }
    "sqrt.approx.f32" => |a: f32| -> f32 { canon(a.sqrt()) }
    "sqrt.approx.ftz.f32" => |a: f32| -> f32 { canon(ftz(a).sqrt()) }
    "rsqrt.approx.f32" => |a: f32| -> f32 { rsqrt(a) }
    "rsqrt.approx.ftz.f32" => |a: f32| -> f32 { rsqrt(ftz(a)) }
    "rsqrt.approx.f64" => |a: f64| -> f64 { 1.0 / a.sqrt() }
    "sin.approx.f32" => |a: f32| -> f32 { sin(a) }
    "sin.approx.ftz.f32" => |a: f32| -> f32 { ftz(sin(ftz(a))) }
    "cos.approx.f32" => |a: f32| -> f32 { cos(a) }
    "cos.approx.ftz.f32" => |a: f32| -> f32 { ftz(cos(ftz(a))) }
    "lg2.approx.f32" => |a: f32| -> f32 { approx(a, f64::log2) }
    "lg2.approx.ftz.f32" => |a: f32| -> f32 { ftz(approx(ftz(a), f64::log2)) }
    "ex2.approx.f32" => |a: f32| -> f32 { approx(a, f64::exp2) }
    "ex2.approx.ftz.f32" => |a: f32| -> f32 { ftz(approx(ftz(a), f64::exp2)) }
    "tanh.approx.f32" => |a: f32| -> f32 { approx(a, f64::tanh) }
};
