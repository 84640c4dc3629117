//! Numerics: rounding, flushing of subnormals, and the canonical NaN of the hardware.
//!
//! `.approx` functions are computed in double precision and rounded once, so they are more exact
//! than any device. Tests should rely only on the documented error bounds.

use half::{bf16, f16};

/// The NaN that `f32` instructions return.
pub(crate) const NAN32: f32 = f32::from_bits(0x7fff_ffff);

/// A rounding mode: `.rn` or a directed mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

/// Returns the canonical NaN for any NaN. The test uses the bits, because the compiler may
/// otherwise choose between NaNs.
#[inline(always)]
pub(crate) fn canon(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits as i32 & i32::MAX > 0x7f80_0000 {
        0x7fff_ffff
    } else {
        bits
    })
}

/// Flushes a subnormal to zero and keeps its sign (`.ftz`).
#[inline(always)]
pub(crate) fn ftz(x: f32) -> f32 {
    let flushed = f32::from_bits(x.to_bits() & 0x8000_0000);
    if x.abs() < f32::MIN_POSITIVE {
        flushed
    } else {
        x
    }
}

/// Clamps to [0, 1]. NaN becomes +0 (`.sat`).
#[inline(always)]
pub(crate) fn sat(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// Clamps an `f64` to [0, 1]. NaN becomes +0.
pub(crate) fn sat64(x: f64) -> f64 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// Returns the minimum as `minimumNumber` of IEEE 754-2019: a number wins over NaN, and -0 is less
/// than +0.
#[inline(always)]
pub(crate) fn min32(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NAN32,
        (true, false) => b,
        (false, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() | b.to_bits()),
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

/// Returns the maximum as `maximumNumber` of IEEE 754-2019: a number wins over NaN, and -0 is less
/// than +0.
#[inline(always)]
pub(crate) fn max32(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NAN32,
        (true, false) => b,
        (false, true) => a,
        _ if a == b => f32::from_bits(a.to_bits() & b.to_bits()),
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

/// Returns the minimum of two `f64` as `minimumNumber` of IEEE 754-2019.
pub(crate) fn min64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f64::from_bits(a.to_bits() | b.to_bits()),
        _ => a.min(b),
    }
}

/// Returns the maximum of two `f64` as `maximumNumber` of IEEE 754-2019.
pub(crate) fn max64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => f64::from_bits(a.to_bits() & b.to_bits()),
        _ => a.max(b),
    }
}

/// Returns `a * b + c`, rounded once to nearest.
///
/// The product of two `f32` is exact in double precision. The sum is rounded to odd, which keeps
/// enough information to round it again.
#[inline(always)]
pub(crate) fn fma32(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_feature = "fma") {
        return canon(a.mul_add(b, c));
    }
    canon(sum_to_odd(f64::from(a) * f64::from(b), f64::from(c)) as f32)
}

/// The upper half of the bits of the smallest normal `f32`, as an `f64`.
const LEAST: i32 = ((f32::MIN_POSITIVE as f64).to_bits() >> 32) as i32;

/// Computes [`fma32`] for several lanes.
///
/// The sum is rounded to double precision and then to single precision. The result is wrong only if
/// the first rounding ends halfway between two `f32`, or if the result is subnormal. Such lanes are
/// computed one by one.
#[inline(always)]
pub(crate) fn fma32_many(
    a: &[u32; 32],
    b: &[u32; 32],
    c: &[u32; 32],
    flush: impl Fn(f32) -> f32 + Copy,
) -> [u32; 32] {
    let single = |bits: u32| flush(f32::from_bits(bits));
    if cfg!(target_feature = "fma") {
        return fma32_one_by_one(a, b, c, flush);
    }

    let mut sums = [0f64; 32];
    let mut out = [0f32; 32];
    let mut doubt = 0;
    let mut low = [0i32; 32];
    let mut high = [0i32; 32];

    // Loops over arrays of one width each, which the compiler vectorizes.
    for i in 0..32 {
        sums[i] = f64::from(single(a[i])) * f64::from(single(b[i])) + f64::from(single(c[i]));
    }
    for i in 0..32 {
        out[i] = sums[i] as f32;
    }

    for i in 0..32 {
        low[i] = sums[i].to_bits() as i32;
        high[i] = (sums[i].to_bits() >> 32) as i32;
    }

    for i in 0..32 {
        // The upper halves of the bits are sufficient, because a sum other than 0 is at least
        // 2^-298.
        let high = high[i] & i32::MAX;
        let tiny = i32::from(high > 0) & i32::from(high < LEAST);
        doubt |= i32::from(low[i] & 0x1fff_ffff == 0x1000_0000) | tiny;
    }

    if doubt != 0 {
        fma32_one_by_one(a, b, c, flush)
    } else {
        out.map(|sum| flush(canon(sum)).to_bits())
    }
}

#[inline(never)]
fn fma32_one_by_one(
    a: &[u32; 32],
    b: &[u32; 32],
    c: &[u32; 32],
    flush: impl Fn(f32) -> f32,
) -> [u32; 32] {
    let single = |bits: u32| flush(f32::from_bits(bits));
    std::array::from_fn(|i| flush(fma32(single(a[i]), single(b[i]), single(c[i]))).to_bits())
}

/// Returns `a + b` in double precision, rounded to odd. An inexact result is the neighbor with an
/// odd last bit.
#[inline(always)]
pub(crate) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    to_odd(sum, lost)
}

/// Rounds to odd. `value` is the nearest result, and `lost` is the exact result minus `value`. NaN
/// and infinity stay.
#[inline(always)]
pub(crate) fn to_odd(value: f64, lost: f64) -> f64 {
    let bits = value.to_bits();
    let inexact = lost != 0.0 && lost.abs() < f64::INFINITY;
    let away = (lost > 0.0) == (value > 0.0);
    let step = if away { 1 } else { u64::MAX };
    let moved = if inexact && bits & 1 == 0 {
        bits.wrapping_add(step)
    } else {
        bits
    };
    f64::from_bits(moved)
}

/// Rounds an `f64`, which is exact or rounded to odd, to `f32`.
pub(crate) fn round32(x: f64, round: Round) -> f32 {
    let near = x as f32;
    let wide = f64::from(near);
    let zero_towards = match round {
        Round::Zero => wide.abs() > x.abs(),
        Round::Down => wide > x,
        Round::Up => wide < x,
        Round::Nearest => false,
    };
    canon(match (zero_towards, round) {
        (false, _) => near,
        (true, Round::Up) => near.next_up(),
        (true, Round::Down) => near.next_down(),
        (true, _) if near > 0.0 => near.next_down(),
        (true, _) => near.next_up(),
    })
}

/// Returns `a + b` in a rounding mode. With `.rm`, the sum of opposite numbers is -0.
pub(crate) fn add32(a: f32, b: f32, round: Round) -> f32 {
    let sum = round32(sum_to_odd(a.into(), b.into()), round);
    if round == Round::Down && sum == 0.0 && (a != 0.0 || b != 0.0 || a.to_bits() != b.to_bits()) {
        -0.0
    } else {
        sum
    }
}

/// Returns `a * b` in a rounding mode. The product is exact in double precision.
pub(crate) fn mul32(a: f32, b: f32, round: Round) -> f32 {
    round32(f64::from(a) * f64::from(b), round)
}

/// Returns `a * b + c` in a rounding mode.
pub(crate) fn fma32_round(a: f32, b: f32, c: f32, round: Round) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let sum = round32(sum_to_odd(product, c.into()), round);
    let cancels = sum == 0.0
        && product == -f64::from(c)
        && (product != 0.0 || product.to_bits() != f64::from(c).to_bits());
    if round == Round::Down && cancels {
        -0.0
    } else {
        sum
    }
}

/// Returns `a / b` in a rounding mode.
pub(crate) fn div32(a: f32, b: f32, round: Round) -> f32 {
    let a = f64::from(a);
    let b = f64::from(b);
    let quotient = a / b;
    let left = (-quotient).mul_add(b, a);
    let lost = if left == 0.0 || !quotient.is_finite() {
        0.0
    } else {
        left * b.signum()
    };
    round32(to_odd(quotient, lost), round)
}

/// Returns `sqrt(a)` in a rounding mode.
pub(crate) fn sqrt32(a: f32, round: Round) -> f32 {
    let a = f64::from(a);
    let root = a.sqrt();
    let lost = if root.is_finite() {
        (-root).mul_add(root, a)
    } else {
        0.0
    };
    round32(to_odd(root, lost), round)
}

/// Returns `f` in double precision, rounded once.
#[inline(always)]
pub(crate) fn approx(x: f32, f: impl Fn(f64) -> f64) -> f32 {
    canon(f(x.into()) as f32)
}

/// Computes `div.approx.f32`. Beyond 2^126, the reciprocal of the divisor is flushed (PTX ISA,
/// "div").
pub(crate) fn div_approx(a: f32, b: f32) -> f32 {
    let huge = b.abs() > 2f32.powi(126) && b.is_finite();
    if !huge {
        canon((f64::from(a) / f64::from(b)) as f32)
    } else if a.is_finite() {
        f32::from_bits((a.to_bits() ^ b.to_bits()) & 0x8000_0000)
    } else {
        // The flushed reciprocal is zero, and infinity times zero is NaN.
        NAN32
    }
}

/// A 16-bit float format, computed in single or double precision.
pub(crate) trait Half: Copy {
    fn wide(self) -> f32;
    /// Rounds to nearest even. Any NaN becomes the canonical one.
    fn round(x: f64) -> Self;
}

impl Half for f16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(widen16(self.to_bits()))
    }
    #[inline(always)]
    fn round(x: f64) -> f16 {
        f16::from_bits(narrow16(x, Round::Nearest))
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn round(x: f64) -> bf16 {
        bf16::from_bits(narrow_bf16(x, Round::Nearest))
    }
}

/// Returns the `f32` bits of an `f16`. There are no branches, so the lanes of a warp are computed
/// together.
#[inline(always)]
fn widen16(h: u16) -> u32 {
    let sign = u32::from(h & 0x8000) << 16;
    let shifted = u32::from(h & 0x7fff) << 13;
    let exponent = shifted & 0x0f80_0000;

    // A multiplication by 2^112 rebiases normal numbers and renormalizes subnormal ones exactly.
    let scaled = (f32::from_bits(shifted) * f32::from_bits(0x7780_0000)).to_bits();
    let special = shifted | 0x7f80_0000;
    sign | if exponent == 0x0f80_0000 {
        special
    } else {
        scaled
    }
}

/// Returns `2^exponent`, which must be a normal number.
#[inline]
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..1024).contains(&exponent));
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Returns the nearest integral value, with ties to even. The standard library would call a
/// function on x86-64.
#[inline]
pub(crate) fn nearest(x: f64) -> f64 {
    // The smallest number from which on all `f64` are integral. Adding it rounds to an integral
    // value.
    const INTEGRAL: f64 = (1u64 << 52) as f64;
    if x.abs() < INTEGRAL {
        ((x.abs() + INTEGRAL) - INTEGRAL).copysign(x)
    } else {
        x
    }
}

/// Rounds to a format with `mantissa` stored bits whose smallest normal number is `2^least`.
pub(crate) fn narrow(x: f64, mantissa: i32, least: i32, round: Round) -> f64 {
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    let unit = power_of_two(exponent - mantissa);
    let scaled = x / unit;
    unit * match round {
        Round::Nearest => nearest(scaled),
        Round::Zero => scaled.trunc(),
        Round::Down => scaled.floor(),
        Round::Up => scaled.ceil(),
    }
}

/// Returns the `f16` bits of an `f64`, which is exact or rounded to odd.
pub(crate) fn narrow16(x: f64, round: Round) -> u16 {
    let sign = (x.to_bits() >> 48) as u16 & 0x8000;
    if x.is_nan() {
        return 0x7fff;
    }

    let rounded = narrow(x, 10, -14, round).abs();
    let finite_limit = !toward_infinity(x, round) && x.is_finite();
    let magnitude = match rounded {
        _ if rounded > 65504.0 && finite_limit => 0x7bff,
        _ if rounded > 65504.0 => 0x7c00,
        _ if rounded < power_of_two(-14) => (rounded * power_of_two(24)) as u16,
        _ => ((rounded.to_bits() >> 42) as i64 - (1008 << 10)) as u16,
    };
    sign | magnitude
}

/// Returns the `bf16` bits of an `f64`, which is exact or rounded to odd.
pub(crate) fn narrow_bf16(x: f64, round: Round) -> u16 {
    let sign = (x.to_bits() >> 48) as u16 & 0x8000;
    if x.is_nan() {
        return 0x7fff;
    }

    let rounded = narrow(x, 7, -126, round).abs();
    let largest = f64::from(f32::from_bits(0x7f7f_0000));
    let finite_limit = !toward_infinity(x, round) && x.is_finite();
    let magnitude = match rounded {
        _ if rounded > largest && finite_limit => 0x7f7f,
        _ if rounded > largest => 0x7f80,
        _ => ((rounded as f32).to_bits() >> 16) as u16,
    };
    sign | magnitude
}

/// Returns true if a result that is too large becomes infinity instead of the largest finite
/// number.
fn toward_infinity(x: f64, round: Round) -> bool {
    match round {
        Round::Nearest => true,
        Round::Zero => false,
        Round::Down => x < 0.0,
        Round::Up => x > 0.0,
    }
}

/// Returns the `f16` bits of an `f32`, rounded to nearest even with integer steps.
#[inline(always)]
pub(crate) fn narrow_single(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let even = magnitude >> 13 & 1;
    let normal = (magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + even) >> 13) as u16;

    // An addition of 0.5 leaves units of 2^-24, and rounds to them.
    let subnormal = ((f32::from_bits(magnitude) + 0.5).to_bits() & 0xffff) as u16;
    sign | match magnitude {
        0x7f80_0001.. => return 0x7fff,
        0x477f_f000.. => 0x7c00,
        0x3880_0000.. => normal,
        _ => subnormal,
    }
}

/// Returns the value of an 8-bit float with `exponent_bits` bits of exponent. With 4 bits there are
/// no infinities and one NaN.
pub(crate) fn small_float(bits: u32, exponent_bits: u32) -> f32 {
    let fraction_bits = 7 - exponent_bits;
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let fraction = bits & ((1 << fraction_bits) - 1);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let scale = |e: i32| 2f32.powi(e - fraction_bits as i32);

    // `e4m3` uses its highest exponent for finite values, except for the pattern of all ones.
    // `e5m2` follows IEEE 754.
    let magnitude = match (exponent_bits, exponent, fraction) {
        (4, 15, 7) => f32::NAN,
        (5, 31, 0) => f32::INFINITY,
        (5, 31, _) => f32::NAN,
        // Subnormal values have no implicit leading bit.
        (_, 0, _) => fraction as f32 * scale(1 - bias),
        _ => (fraction | 1 << fraction_bits) as f32 * scale(exponent as i32 - bias),
    };
    if bits & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// Rounds to ten mantissa bits, with ties away from zero.
pub(crate) fn tf32(x: f32) -> u32 {
    if x.is_nan() {
        0x7fff_ffff
    } else if x.is_infinite() {
        x.to_bits()
    } else {
        x.to_bits().wrapping_add(0x1000) & !0x1fff
    }
}

#[cfg(test)]
mod tests {
    use super::{canon, fma32_many, nearest, power_of_two};

    /// Lanes together give what the standard library's fused operation gives, also halfway and
    /// where results are tiny.
    #[test]
    fn many_lanes_are_fused() {
        let corners = [
            0,
            1,
            0x8000_0000,
            0x0080_0000,
            0x3f80_0000,
            0x3f80_0001,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0000,
        ];
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let bits = (state >> 32) as u32;
            match bits % 4 {
                0 => corners[bits as usize / 4 % corners.len()],
                // Few bits of the fraction: products and sums that end halfway.
                1 => (bits & 0x8fff_f000) | 0x3000_0000,
                // Products of small numbers: subnormal results.
                2 => (bits & 0x8fff_ffff) | 0x1000_0000,
                _ => bits,
            }
        };
        for _ in 0..5000 {
            let [a, b, c]: [[u32; 32]; 3] =
                std::array::from_fn(|_| std::array::from_fn(|_| next()));
            let all = fma32_many(&a, &b, &c, |x| x);
            // Also alone, as other lanes in doubt lead all to the exact way.
            for i in 0..32 {
                let [x, y, z] = [a[i], b[i], c[i]].map(f32::from_bits);
                let wanted = canon(x.mul_add(y, z)).to_bits();
                let alone = fma32_many(&[a[i]; 32], &[b[i]; 32], &[c[i]; 32], |x| x);
                assert_eq!((all[i], alone[7]), (wanted, wanted), "{x:e} {y:e} {z:e}");
            }
        }
    }

    #[test]
    fn shortcuts_are_the_standard_librarys() {
        for exponent in -1022..1024 {
            assert_eq!(power_of_two(exponent), 2f64.powi(exponent));
        }

        let halves = (-40..40).map(|i| f64::from(i) / 2.0);
        let edges = [
            0.49999999999999994,
            4503599627370495.5,
            4503599627370496.0,
            9e15,
            1e300,
            f64::INFINITY,
        ];
        for x in halves.chain(edges).chain(edges.map(|x| -x)) {
            assert_eq!(nearest(x).to_bits(), x.round_ties_even().to_bits(), "{x}");
        }

        assert!(nearest(f64::NAN).is_nan());
    }
}
