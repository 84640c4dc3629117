//! Rare floating-point arithmetic: directed rounding, with `.ftz` and `.sat`, and pairs of `f32`
//! (PTX ISA, "Floating-Point Instructions").

use crate::module::context::row::{ArithmeticRow, seldom};
use crate::module::isa::arithmetic::exact_sum::{
    add64, div64, fma64, mul64, rcp_gross, rsqrt_gross, sqrt64,
};
use crate::module::isa::arithmetic::float_number::Round::{Down, Nearest, Up, Zero};
use crate::module::isa::arithmetic::float_number::{Round, *};
use crate::module::registers::Two;

/// Defines the rows of an `f32` operation in the three directed modes, with `.ftz`, `.sat` and
/// both. Rows for the default mode are in [`float`](crate::module::isa::arithmetic::float).
macro_rules! singles {
    ($($op:literal |$($arg:ident),+; $round:ident| $value:expr;)*) => { &[$(singles!(@one $op [$($arg),+] $round $value)),*] };
    (@one $op:literal $args:tt $round:ident $value:expr) => {
        singles!(@rows $op $args $round $value; ".rz" Zero, ".rm" Down, ".rp" Up)
    };
    (@rows $op:literal $args:tt $round:ident $value:expr; $($mode:literal $direction:ident),*) => {
        singles!(@flat $([$op $args $round $value; $mode $direction])*)
    };
    (@flat $([$op:literal [$($arg:ident),+] $round:ident $value:expr; $mode:literal $direction:ident])*) => {
        *seldom! {
            $(
                concat!($op, $mode, ".ftz.f32") => |$($arg: f32),+| -> f32 {
                    let ($($arg,)+ $round) = ($(ftz($arg),)+ $direction);
                    ftz($value)
                }
                concat!($op, $mode, ".sat.f32") => |$($arg: f32),+| -> f32 { let $round = $direction; sat($value) }
                concat!($op, $mode, ".ftz.sat.f32") => |$($arg: f32),+| -> f32 {
                    let ($($arg,)+ $round) = ($(ftz($arg),)+ $direction);
                    sat(ftz($value))
                }
            )*
        }
    };
}

pub(crate) const SINGLES: &[[ArithmeticRow; 9]] = singles! {
    "add" |a, b; round| add32(a, b, round);
    "sub" |a, b; round| add32(a, -b, round);
    "mul" |a, b; round| mul32(a, b, round);
    "fma" |a, b, c; round| fma32_round(a, b, c, round);
    "mad" |a, b, c; round| fma32_round(a, b, c, round);
};

/// Defines the rows of an `f64` operation in the three directed modes.
macro_rules! doubles {
    ($($op:literal |$($arg:ident),+; $round:ident| $value:expr;)*) => {
        &[$(*seldom! {
            concat!($op, ".rz.f64") => |$($arg: f64),+| -> f64 { let $round = Zero; $value }
            concat!($op, ".rm.f64") => |$($arg: f64),+| -> f64 { let $round = Down; $value }
            concat!($op, ".rp.f64") => |$($arg: f64),+| -> f64 { let $round = Up; $value }
        }),*]
    };
}

pub(crate) const DOUBLES: &[[ArithmeticRow; 3]] = doubles! {
    "add" |a, b; round| add64(a, b, round);
    "sub" |a, b; round| add64(a, -b, round);
    "mul" |a, b; round| mul64(a, b, round);
    "fma" |a, b, c; round| fma64(a, b, c, round);
    "mad" |a, b, c; round| fma64(a, b, c, round);
    "div" |a, b; round| div64(a, b, round);
    "rcp" |a; round| div64(1.0, a, round);
    "sqrt" |a; round| sqrt64(a, round);
};

/// Defines the rows of an operation on pairs of `f32`.
macro_rules! pairs {
    ($($op:literal |$($arg:ident),+; $round:ident| $value:expr;)*) => { &[$(*seldom! {
        concat!($op, "{,.rn}.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@both Nearest $round $value; $($arg),+) }
        concat!($op, ".rz.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@both Zero $round $value; $($arg),+) }
        concat!($op, ".rm.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@both Down $round $value; $($arg),+) }
        concat!($op, ".rp.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@both Up $round $value; $($arg),+) }
        concat!($op, "{,.rn}.ftz.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@flushed Nearest $round $value; $($arg),+) }
        concat!($op, ".rz.ftz.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@flushed Zero $round $value; $($arg),+) }
        concat!($op, ".rm.ftz.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@flushed Down $round $value; $($arg),+) }
        concat!($op, ".rp.ftz.f32x2") => |$($arg: Two<f32>),+| -> Two<f32> { pairs!(@flushed Up $round $value; $($arg),+) }
    }),*] };
    (@both $direction:ident $round:ident $value:expr; $($arg:ident),+) => {{
        let f = |$($arg: f32),+| { let $round = $direction; $value };
        Two(f($($arg.0),+), f($($arg.1),+))
    }};
    (@flushed $direction:ident $round:ident $value:expr; $($arg:ident),+) => {{
        let f = |$($arg: f32),+| { let ($($arg,)+ $round) = ($(ftz($arg),)+ $direction); ftz($value) };
        Two(f($($arg.0),+), f($($arg.1),+))
    }};
}

pub(crate) const PAIRS: &[[ArithmeticRow; 8]] = pairs! {
    "add" |a, b; round| add32(a, b, round);
    "sub" |a, b; round| add32(a, -b, round);
    "mul" |a, b; round| mul32(a, b, round);
    "fma" |a, b, c; round| fma32_round(a, b, c, round);
};

/// Divides with `.ftz`. A quotient that is subnormal before rounding becomes zero, as on an H200.
fn div(a: f32, b: f32, round: Round) -> f32 {
    let a = ftz(a);
    let b = ftz(b);
    let cut = div32(a, b, Zero);
    if cut.abs() < f32::MIN_POSITIVE {
        ftz(cut)
    } else {
        div32(a, b, round)
    }
}

fn root(a: f32, round: Round) -> f32 {
    ftz(sqrt32(ftz(a), round))
}

/// Returns a minimum or maximum with the sign of the product. With `nan`, a NaN operand gives NaN.
pub(crate) fn signed(a: f32, b: f32, nan: bool, of: fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() && b.is_nan() || nan && (a.is_nan() || b.is_nan()) {
        return NAN32;
    }
    let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
    f32::from_bits(of(a.abs(), b.abs()).to_bits() & 0x7fff_ffff | sign)
}

pub(crate) const ROWS: &[ArithmeticRow] = seldom! {
    "div.rz.ftz.f32" => |a: f32, b: f32| -> f32 { div(a, b, Zero) }
    "div.rm.ftz.f32" => |a: f32, b: f32| -> f32 { div(a, b, Down) }
    "div.rp.ftz.f32" => |a: f32, b: f32| -> f32 { div(a, b, Up) }
    "rcp.rz.ftz.f32" => |a: f32| -> f32 { div(1.0, a, Zero) }
    "rcp.rm.ftz.f32" => |a: f32| -> f32 { div(1.0, a, Down) }
    "rcp.rp.ftz.f32" => |a: f32| -> f32 { div(1.0, a, Up) }
    "sqrt.rz.ftz.f32" => |a: f32| -> f32 { root(a, Zero) }
    "sqrt.rm.ftz.f32" => |a: f32| -> f32 { root(a, Down) }
    "sqrt.rp.ftz.f32" => |a: f32| -> f32 { root(a, Up) }
    "rcp.approx.ftz.f64" => |a: f64| -> f64 { rcp_gross(a) }
    "rsqrt.approx.ftz.f64" => |a: f64| -> f64 { rsqrt_gross(a) }

    "min.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(a, b, false, min32) }
    "max.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(a, b, false, max32) }
    "min.NaN.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(a, b, true, min32) }
    "max.NaN.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(a, b, true, max32) }
    "min.ftz.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(ftz(a), ftz(b), false, min32) }
    "max.ftz.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(ftz(a), ftz(b), false, max32) }
    "min.ftz.NaN.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(ftz(a), ftz(b), true, min32) }
    "max.ftz.NaN.xorsign.abs.f32" => |a: f32, b: f32| -> f32 { signed(ftz(a), ftz(b), true, max32) }
};
