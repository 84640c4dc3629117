//! `f64` arithmetic in every rounding mode, computed with 128-bit integers.
//!
//! A number is `mantissa * 2^exponent`. A result is an integer with more bits than an `f64`, and a
//! flag that tells whether any lower bits were cut off. One function can therefore round the
//! results of all operations. Results that are exactly zero or not finite do not depend on the
//! rounding mode, so the host's arithmetic computes them.

use crate::module::isa::arithmetic::float_number::Round;

/// The width of an aligned mantissa. A product of two `f64` has 106 bits, and two of them can be
/// added.
const WIDE: i32 = 126;
/// The exponent of the last bit of the smallest subnormal.
const LEAST: i32 = -1074;

/// A finite number except zero, with the value `mantissa * 2^exponent` and a 53-bit mantissa.
#[derive(Clone, Copy)]
struct Parts {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

fn parts(x: f64) -> Parts {
    let bits = x.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let low = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if field == 0 {
        (low, LEAST)
    } else {
        (low | 1 << 52, field - 1075)
    };
    let shift = mantissa.leading_zeros() as i32 - 11;
    Parts {
        negative: x.is_sign_negative(),
        mantissa: mantissa << shift,
        exponent: exponent - shift,
    }
}

/// The value `mantissa * 2^exponent`, plus less than one unit if something was `cut` off.
#[derive(Clone, Copy)]
struct ExactValue {
    negative: bool,
    mantissa: u128,
    exponent: i32,
    cut: bool,
}

impl ExactValue {
    fn product(a: f64, b: f64) -> ExactValue {
        let a = parts(a);
        let b = parts(b);
        let mantissa = u128::from(a.mantissa) * u128::from(b.mantissa);
        ExactValue {
            negative: a.negative != b.negative,
            mantissa,
            exponent: a.exponent + b.exponent,
            cut: false,
        }
    }

    fn of(a: f64) -> ExactValue {
        let Parts {
            negative,
            mantissa,
            exponent,
        } = parts(a);
        ExactValue {
            negative,
            mantissa: mantissa.into(),
            exponent,
            cut: false,
        }
    }

    /// Returns the same value with its first bit at a fixed position. Nothing may have been cut
    /// off.
    fn aligned(self) -> ExactValue {
        let shift = self.mantissa.leading_zeros() as i32 - (128 - WIDE);
        ExactValue {
            mantissa: self.mantissa << shift,
            exponent: self.exponent - shift,
            ..self
        }
    }

    /// Increases the exponent by `by` and records whether bits were cut off.
    fn lowered(self, by: i32) -> ExactValue {
        if by >= 128 {
            return ExactValue {
                mantissa: 0,
                exponent: self.exponent + by,
                cut: true,
                ..self
            };
        }
        let mantissa = self.mantissa >> by;
        ExactValue {
            mantissa,
            exponent: self.exponent + by,
            cut: mantissa << by != self.mantissa,
            ..self
        }
    }

    /// Returns the sum, or `None` if it is exactly zero.
    fn plus(self, other: ExactValue) -> Option<ExactValue> {
        let a = self.aligned();
        let b = other.aligned();
        let larger = (a.exponent, a.mantissa) >= (b.exponent, b.mantissa);
        let (a, b) = if larger { (a, b) } else { (b, a) };
        let b = b.lowered(a.exponent - b.exponent);
        let mantissa = if a.negative == b.negative {
            a.mantissa + b.mantissa
        } else {
            // The part that was cut off `b` is missing from the difference, too.
            a.mantissa - b.mantissa - u128::from(b.cut)
        };
        (mantissa != 0 || b.cut).then_some(ExactValue {
            mantissa,
            cut: b.cut,
            ..a
        })
    }

    /// Rounds to an `f64` in a rounding mode.
    fn round(self, round: Round) -> f64 {
        let bits = 128 - self.mantissa.leading_zeros() as i32;

        // The result keeps 53 bits, or fewer if it is subnormal.
        let spare = (bits - 53).max(LEAST - self.exponent);
        let (kept, lost) = match spare {
            ..=0 => (self.mantissa << -spare, self.cut.into()),
            1..128 => {
                let kept = self.mantissa >> spare;
                (kept, half(self.mantissa - (kept << spare), spare, self.cut))
            }
            _ => (0, RoundingRemainder::Less),
        };
        let up = match (lost, round) {
            (RoundingRemainder::Nothing, _) | (_, Round::Zero) => false,
            (_, Round::Down) => self.negative,
            (_, Round::Up) => !self.negative,
            (RoundingRemainder::Less, Round::Nearest) => false,
            // Ties go to the even mantissa.
            (RoundingRemainder::Half, Round::Nearest) => kept & 1 != 0,
            (RoundingRemainder::More, Round::Nearest) => true,
        };
        pack(
            self.negative,
            kept as u64 + u64::from(up),
            self.exponent + spare,
            toward_zero(round, self.negative),
        )
    }
}

/// The part that rounding removes, relative to half of the last bit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoundingRemainder {
    Nothing,
    Less,
    Half,
    More,
}

impl From<bool> for RoundingRemainder {
    fn from(cut: bool) -> RoundingRemainder {
        if cut {
            RoundingRemainder::Less
        } else {
            RoundingRemainder::Nothing
        }
    }
}

fn half(rest: u128, bits: i32, cut: bool) -> RoundingRemainder {
    match rest.cmp(&(1 << (bits - 1))) {
        std::cmp::Ordering::Greater => RoundingRemainder::More,
        std::cmp::Ordering::Equal if cut => RoundingRemainder::More,
        std::cmp::Ordering::Equal => RoundingRemainder::Half,
        std::cmp::Ordering::Less if rest == 0 => cut.into(),
        std::cmp::Ordering::Less => RoundingRemainder::Less,
    }
}

/// Returns true if a magnitude that is too large becomes the largest finite `f64`.
fn toward_zero(round: Round, negative: bool) -> bool {
    match round {
        Round::Nearest => false,
        Round::Zero => true,
        Round::Down => !negative,
        Round::Up => negative,
    }
}

/// Returns `mantissa * 2^exponent`. The mantissa has at most 53 bits, or 54 bits of which the last
/// 53 are zero.
fn pack(negative: bool, mantissa: u64, exponent: i32, finite: bool) -> f64 {
    let (mantissa, exponent) = if mantissa >> 53 != 0 {
        (mantissa >> 1, exponent + 1)
    } else {
        (mantissa, exponent)
    };
    let bits = match mantissa >> 52 {
        0 => mantissa,
        _ if exponent > 971 && finite => f64::MAX.to_bits(),
        _ if exponent > 971 => f64::INFINITY.to_bits(),
        _ => ((exponent + 1075) as u64) << 52 | mantissa & ((1 << 52) - 1),
    };
    f64::from_bits(bits | u64::from(negative) << 63)
}

/// Returns the zero that is the sum of opposite numbers.
fn cancelled(round: Round) -> f64 {
    if round == Round::Down { -0.0 } else { 0.0 }
}

fn ordinary(x: f64) -> bool {
    x.is_finite() && x != 0.0
}

/// Returns `a + b` in a rounding mode.
pub(crate) fn add64(a: f64, b: f64, round: Round) -> f64 {
    if ordinary(a) && ordinary(b) {
        return ExactValue::of(a)
            .plus(ExactValue::of(b))
            .map_or(cancelled(round), |sum| sum.round(round));
    }
    // Two zeros of opposite signs cancel. In all other cases with a zero, the host's sum is exact.
    if a == 0.0 && b == 0.0 && a.to_bits() != b.to_bits() {
        cancelled(round)
    } else {
        a + b
    }
}

/// Returns `a * b` in a rounding mode.
pub(crate) fn mul64(a: f64, b: f64, round: Round) -> f64 {
    if ordinary(a) && ordinary(b) {
        ExactValue::product(a, b).round(round)
    } else {
        a * b
    }
}

/// Returns `a * b + c` in a rounding mode.
pub(crate) fn fma64(a: f64, b: f64, c: f64, round: Round) -> f64 {
    match (a.is_finite() && b.is_finite(), c.is_finite()) {
        (false, _) => return a.mul_add(b, c),
        // The product may be too large for an `f64`, and must not become infinite before `c` is
        // added.
        (true, false) => return c + 0.0,
        (true, true) if a == 0.0 || b == 0.0 => return add64(a * b, c, round),
        (true, true) => {}
    }
    let product = ExactValue::product(a, b);
    if ordinary(c) {
        product
            .plus(ExactValue::of(c))
            .map_or(cancelled(round), |sum| sum.round(round))
    } else {
        product.round(round)
    }
}

/// Returns `a / b` in a rounding mode.
pub(crate) fn div64(a: f64, b: f64, round: Round) -> f64 {
    if !ordinary(a) || !ordinary(b) {
        return a / b;
    }

    let a = parts(a);
    let b = parts(b);
    let dividend = u128::from(a.mantissa) << 66;
    let divisor = u128::from(b.mantissa);
    let mantissa = dividend / divisor;
    let cut = dividend % divisor != 0;
    ExactValue {
        negative: a.negative != b.negative,
        mantissa,
        exponent: a.exponent - b.exponent - 66,
        cut,
    }
    .round(round)
}

/// Returns `sqrt(a)` in a rounding mode.
pub(crate) fn sqrt64(a: f64, round: Round) -> f64 {
    if !ordinary(a) || a < 0.0 {
        return a.sqrt();
    }

    let Parts {
        mantissa, exponent, ..
    } = parts(a);
    let odd = exponent & 1;
    let square = u128::from(mantissa) << (72 + odd);
    let root = square.isqrt();
    ExactValue {
        negative: false,
        mantissa: root,
        exponent: (exponent - 72 - odd) / 2,
        cut: root * root != square,
    }
    .round(round)
}

/// Returns the upper half of an `f64`, or a zero with its sign if it is subnormal.
fn upper(x: f64) -> f64 {
    let bits = x.to_bits();
    let flushed = if x.is_subnormal() {
        bits & 1 << 63
    } else {
        bits
    };
    f64::from_bits(flushed & 0xffff_ffff << 32)
}

/// The result of the gross approximations for a NaN.
const GROSS_NAN: f64 = f64::from_bits(0x7fff_ffff << 32);

/// Applies `f` to the upper half of an `f64` and keeps 20 bits of mantissa (PTX ISA,
/// "rcp.approx.ftz.f64").
fn gross(a: f64, f: impl Fn(f64) -> f64) -> f64 {
    let result = f(upper(a));
    match result {
        _ if result.is_nan() => GROSS_NAN,
        _ if result.is_infinite() => result,
        _ => upper(f64::from_bits(result.to_bits() + (1 << 31))),
    }
}

/// Returns `rcp.approx.ftz.f64`, with its last bit rounded to nearest.
pub(crate) fn rcp_gross(a: f64) -> f64 {
    gross(a, |a| 1.0 / a)
}

/// Returns `rsqrt.approx.ftz.f64`, with its last bit rounded to nearest.
pub(crate) fn rsqrt_gross(a: f64) -> f64 {
    gross(a, |a| 1.0 / a.sqrt())
}
