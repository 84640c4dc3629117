//! Arithmetic on 16-bit floats, scalar and packed (PTX ISA, "Half Precision Floating-Point
//! Instructions"). Rare forms are in [`packed`](crate::module::isa::arithmetic::packed_halves).
//!
//! Results are computed in double precision, rounded to odd if inexact, and then rounded once more.

use half::{bf16, f16};

use crate::module::context::row::{ArithmeticRow, rows};
use crate::module::isa::arithmetic::float_number::*;
use crate::module::registers::Two;

pub(crate) fn add<H: Half>(a: H, b: H) -> H {
    H::round(sum_to_odd(a.wide().into(), b.wide().into()))
}

pub(crate) fn sub<H: Half>(a: H, b: H) -> H {
    H::round(sum_to_odd(a.wide().into(), -f64::from(b.wide())))
}

pub(crate) fn mul<H: Half>(a: H, b: H) -> H {
    H::round(f64::from(a.wide()) * f64::from(b.wide()))
}

/// Multiplies with `.ftz`. A product that is subnormal before rounding becomes zero, as on an H200.
pub(crate) fn mul_ftz(a: f16, b: f16) -> f16 {
    let exact = f64::from(ftz16(a).wide()) * f64::from(ftz16(b).wide());
    f16::round(if exact.abs() < 1.0 / 16384.0 {
        0f64.copysign(exact)
    } else {
        exact
    })
}

pub(crate) fn fma<H: Half>(a: H, b: H, c: H) -> H {
    H::round(sum_to_odd(
        f64::from(a.wide()) * f64::from(b.wide()),
        c.wide().into(),
    ))
}

pub(crate) fn relu<H: Half>(x: H) -> H {
    let x = x.wide();
    // A NaN stays a NaN.
    if x <= 0.0 {
        H::round(0.0)
    } else {
        H::round(x.into())
    }
}

pub(crate) fn min<H: Half>(a: H, b: H) -> H {
    H::round(min32(a.wide(), b.wide()).into())
}

pub(crate) fn max<H: Half>(a: H, b: H) -> H {
    H::round(max32(a.wide(), b.wide()).into())
}

pub(crate) fn min_nan<H: Half>(a: H, b: H) -> H {
    if a.wide().is_nan() || b.wide().is_nan() {
        H::round(f64::NAN)
    } else {
        min(a, b)
    }
}

pub(crate) fn max_nan<H: Half>(a: H, b: H) -> H {
    if a.wide().is_nan() || b.wide().is_nan() {
        H::round(f64::NAN)
    } else {
        max(a, b)
    }
}

pub(crate) fn ftz16(x: f16) -> f16 {
    if x.to_bits() & 0x7c00 == 0 {
        f16::from_bits(x.to_bits() & 0x8000)
    } else {
        x
    }
}

fn ftz_bf(x: bf16) -> bf16 {
    if x.to_bits() & 0x7f80 == 0 {
        bf16::from_bits(x.to_bits() & 0x8000)
    } else {
        x
    }
}

pub(crate) fn sat<H: Half>(x: H) -> H {
    H::round(crate::module::isa::arithmetic::float_number::sat(x.wide()).into())
}

fn function<H: Half>(x: H, f: impl Fn(f64) -> f64) -> H {
    H::round(f(x.wide().into()))
}

/// The NaN of both 16-bit formats.
const NAN: u16 = 0x7fff;

pub(crate) fn flip(x: f16) -> f16 {
    f16::from_bits(if x.is_nan() {
        NAN
    } else {
        x.to_bits() ^ 0x8000
    })
}

fn flip_bf(x: bf16) -> bf16 {
    bf16::from_bits(if x.is_nan() {
        NAN
    } else {
        x.to_bits() ^ 0x8000
    })
}

pub(crate) fn magnitude(x: f16) -> f16 {
    f16::from_bits(if x.is_nan() {
        NAN
    } else {
        x.to_bits() & 0x7fff
    })
}

fn magnitude_bf(x: bf16) -> bf16 {
    bf16::from_bits(if x.is_nan() {
        NAN
    } else {
        x.to_bits() & 0x7fff
    })
}

fn one<H, D>(a: Two<H>, f: impl Fn(H) -> D) -> Two<D> {
    Two(f(a.0), f(a.1))
}

fn two<H, D>(a: Two<H>, b: Two<H>, f: impl Fn(H, H) -> D) -> Two<D> {
    Two(f(a.0, b.0), f(a.1, b.1))
}

fn three<H, D>(a: Two<H>, b: Two<H>, c: Two<H>, f: impl Fn(H, H, H) -> D) -> Two<D> {
    Two(f(a.0, b.0, c.0), f(a.1, b.1, c.1))
}

pub(crate) const ROWS: &[ArithmeticRow] = rows! {
    "add{,.rn}.f16" => |a: f16, b: f16| -> f16 { add(a, b) }
    "add{,.rn}.ftz.f16" => |a: f16, b: f16| -> f16 { ftz16(add(ftz16(a), ftz16(b))) }
    "add{,.rn}.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, add) }
    "add{,.rn}.ftz.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, |a, b| ftz16(add(ftz16(a), ftz16(b)))) }
    "add{,.rn}.bf16" => |a: bf16, b: bf16| -> bf16 { add(a, b) }
    "add{,.rn}.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, add) }
    "sub{,.rn}.f16" => |a: f16, b: f16| -> f16 { sub(a, b) }
    "sub{,.rn}.ftz.f16" => |a: f16, b: f16| -> f16 { ftz16(sub(ftz16(a), ftz16(b))) }
    "sub{,.rn}.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, sub) }
    "sub{,.rn}.ftz.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, |a, b| ftz16(sub(ftz16(a), ftz16(b)))) }
    "sub{,.rn}.bf16" => |a: bf16, b: bf16| -> bf16 { sub(a, b) }
    "sub{,.rn}.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, sub) }
    "mul{,.rn}.f16" => |a: f16, b: f16| -> f16 { mul(a, b) }
    "mul{,.rn}.ftz.f16" => |a: f16, b: f16| -> f16 { mul_ftz(a, b) }
    "mul{,.rn}.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, mul) }
    "mul{,.rn}.ftz.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, mul_ftz) }
    "mul{,.rn}.bf16" => |a: bf16, b: bf16| -> bf16 { mul(a, b) }
    "mul{,.rn}.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, mul) }
    "fma.rn.f16" => |a: f16, b: f16, c: f16| -> f16 { fma(a, b, c) }
    "fma.rn.ftz.f16" => |a: f16, b: f16, c: f16| -> f16 { ftz16(fma(ftz16(a), ftz16(b), ftz16(c))) }
    "fma.rn.relu.f16" => |a: f16, b: f16, c: f16| -> f16 { relu(fma(a, b, c)) }
    "fma.rn.f16x2" => |a: Two<f16>, b: Two<f16>, c: Two<f16>| -> Two<f16> { three(a, b, c, fma) }
    "fma.rn.ftz.f16x2" => |a: Two<f16>, b: Two<f16>, c: Two<f16>| -> Two<f16> {
        three(a, b, c, |a, b, c| ftz16(fma(ftz16(a), ftz16(b), ftz16(c))))
    }
    "fma.rn.relu.f16x2" => |a: Two<f16>, b: Two<f16>, c: Two<f16>| -> Two<f16> { three(a, b, c, |a, b, c| relu(fma(a, b, c))) }
    "fma.rn.bf16" => |a: bf16, b: bf16, c: bf16| -> bf16 { fma(a, b, c) }
    "fma.rn.relu.bf16" => |a: bf16, b: bf16, c: bf16| -> bf16 { relu(fma(a, b, c)) }
    "fma.rn.bf16x2" => |a: Two<bf16>, b: Two<bf16>, c: Two<bf16>| -> Two<bf16> { three(a, b, c, fma) }
    "fma.rn.relu.bf16x2" => |a: Two<bf16>, b: Two<bf16>, c: Two<bf16>| -> Two<bf16> { three(a, b, c, |a, b, c| relu(fma(a, b, c))) }

    "neg.f16" => |a: f16| -> f16 { flip(a) }
    "neg.f16x2" => |a: Two<f16>| -> Two<f16> { one(a, flip) }
    "neg.bf16" => |a: bf16| -> bf16 { flip_bf(a) }
    "neg.bf16x2" => |a: Two<bf16>| -> Two<bf16> { one(a, flip_bf) }
    "abs.f16" => |a: f16| -> f16 { magnitude(a) }
    "abs.f16x2" => |a: Two<f16>| -> Two<f16> { one(a, magnitude) }
    "abs.bf16" => |a: bf16| -> bf16 { magnitude_bf(a) }
    "abs.bf16x2" => |a: Two<bf16>| -> Two<bf16> { one(a, magnitude_bf) }
    "min.f16" => |a: f16, b: f16| -> f16 { min(a, b) }
    "min.NaN.f16" => |a: f16, b: f16| -> f16 { min_nan(a, b) }
    "min.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, min) }
    "min.NaN.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, min_nan) }
    "min.bf16" => |a: bf16, b: bf16| -> bf16 { min(a, b) }
    "min.NaN.bf16" => |a: bf16, b: bf16| -> bf16 { min_nan(a, b) }
    "min.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, min) }
    "min.NaN.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, min_nan) }
    "max.f16" => |a: f16, b: f16| -> f16 { max(a, b) }
    "max.NaN.f16" => |a: f16, b: f16| -> f16 { max_nan(a, b) }
    "max.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, max) }
    "max.NaN.f16x2" => |a: Two<f16>, b: Two<f16>| -> Two<f16> { two(a, b, max_nan) }
    "max.bf16" => |a: bf16, b: bf16| -> bf16 { max(a, b) }
    "max.NaN.bf16" => |a: bf16, b: bf16| -> bf16 { max_nan(a, b) }
    "max.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, max) }
    "max.NaN.bf16x2" => |a: Two<bf16>, b: Two<bf16>| -> Two<bf16> { two(a, b, max_nan) }

    "ex2.approx.f16" => |a: f16| -> f16 { function(a, f64::exp2) }
    "ex2.approx.f16x2" => |a: Two<f16>| -> Two<f16> { one(a, |a| function(a, f64::exp2)) }
    "ex2.approx.ftz.bf16" => |a: bf16| -> bf16 { ftz_bf(function(ftz_bf(a), f64::exp2)) }
    "ex2.approx.ftz.bf16x2" => |a: Two<bf16>| -> Two<bf16> { one(a, |a| ftz_bf(function(ftz_bf(a), f64::exp2))) }
    "tanh.approx.f16" => |a: f16| -> f16 { function(a, f64::tanh) }
    "tanh.approx.f16x2" => |a: Two<f16>| -> Two<f16> { one(a, |a| function(a, f64::tanh)) }
    "tanh.approx.bf16" => |a: bf16| -> bf16 { function(a, f64::tanh) }
    "tanh.approx.bf16x2" => |a: Two<bf16>| -> Two<bf16> { one(a, |a| function(a, f64::tanh)) }
};
