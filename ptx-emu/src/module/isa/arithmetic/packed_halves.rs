//! Rare forms on 16-bit floats: saturation, `.ftz` with other suffixes, `.xorsign.abs` (PTX ISA,
//! "Half Precision Floating-Point Instructions").

use half::{bf16, f16};

use crate::module::context::row::{ArithmeticRow, seldom};
use crate::module::isa::arithmetic::directed_rounding::signed;
use crate::module::isa::arithmetic::float_number::{Half, max32, min32};
use crate::module::isa::arithmetic::half_floats::*;
use crate::module::registers::Two;

fn min_signed<H: Half>(a: H, b: H, nan: bool) -> H {
    H::round(signed(a.wide(), b.wide(), nan, min32).into())
}

fn max_signed<H: Half>(a: H, b: H, nan: bool) -> H {
    H::round(signed(a.wide(), b.wide(), nan, max32).into())
}

/// Defines the scalar and the packed row of each operation.
macro_rules! both {
    ($ty:ident $one:literal $two:literal; $($name:literal |$($arg:ident),+| $value:expr;)*) => { &[$(*seldom! {
        concat!($name, $one) => |$($arg: $ty),+| -> $ty { $value }
        concat!($name, $two) => |$($arg: Two<$ty>),+| -> Two<$ty> {
            let f = |$($arg: $ty),+| $value;
            Two(f($($arg.0),+), f($($arg.1),+))
        }
    }),*] };
}

pub(crate) const F16: &[[ArithmeticRow; 2]] = both! { f16 ".f16" ".f16x2";
    "add{,.rn}.sat" |a, b| sat(add(a, b));
    "add{,.rn}.ftz.sat" |a, b| sat(ftz16(add(ftz16(a), ftz16(b))));
    "sub{,.rn}.sat" |a, b| sat(sub(a, b));
    "sub{,.rn}.ftz.sat" |a, b| sat(ftz16(sub(ftz16(a), ftz16(b))));
    "mul{,.rn}.sat" |a, b| sat(mul(a, b));
    "mul{,.rn}.ftz.sat" |a, b| sat(mul_ftz(a, b));
    "fma.rn.sat" |a, b, c| sat(fma(a, b, c));
    "fma.rn.ftz.sat" |a, b, c| sat(ftz16(fma(ftz16(a), ftz16(b), ftz16(c))));
    "fma.rn.ftz.relu" |a, b, c| relu(ftz16(fma(ftz16(a), ftz16(b), ftz16(c))));
    "neg.ftz" |a| ftz16(flip(a));
    "abs.ftz" |a| ftz16(magnitude(a));
    "min.ftz" |a, b| min(ftz16(a), ftz16(b));
    "max.ftz" |a, b| max(ftz16(a), ftz16(b));
    "min.ftz.NaN" |a, b| min_nan(ftz16(a), ftz16(b));
    "max.ftz.NaN" |a, b| max_nan(ftz16(a), ftz16(b));
    "min.xorsign.abs" |a, b| min_signed(a, b, false);
    "max.xorsign.abs" |a, b| max_signed(a, b, false);
    "min.NaN.xorsign.abs" |a, b| min_signed(a, b, true);
    "max.NaN.xorsign.abs" |a, b| max_signed(a, b, true);
    "min.ftz.xorsign.abs" |a, b| min_signed(ftz16(a), ftz16(b), false);
    "max.ftz.xorsign.abs" |a, b| max_signed(ftz16(a), ftz16(b), false);
    "min.ftz.NaN.xorsign.abs" |a, b| min_signed(ftz16(a), ftz16(b), true);
    "max.ftz.NaN.xorsign.abs" |a, b| max_signed(ftz16(a), ftz16(b), true);
};

pub(crate) const BF16: &[[ArithmeticRow; 2]] = both! { bf16 ".bf16" ".bf16x2";
    "min.xorsign.abs" |a, b| min_signed(a, b, false);
    "max.xorsign.abs" |a, b| max_signed(a, b, false);
    "min.NaN.xorsign.abs" |a, b| min_signed(a, b, true);
    "max.NaN.xorsign.abs" |a, b| max_signed(a, b, true);
};
