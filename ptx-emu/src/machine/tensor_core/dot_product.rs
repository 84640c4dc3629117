//! Addition on tensor cores: the sum so far and the products of one step are added together.
//!
//! Let e be the largest exponent among the sum and the products. The exponent of a product is the
//! sum of the exponents of its factors. Each addend is truncated toward zero to a multiple of `2^(e
//! - fraction)`. They are added exactly, and the result is truncated toward zero to the 24 bits of
//! an `f32`. The result therefore does not depend on the order of the products within a step.
//!
//! On an H200 (driver 580.159), `fraction` is 25. For 8-bit floats it is 13, and results have 14
//! bits. In November 2026 we compared two steps of each form of `wgmma` on random bits, with 4096
//! sums in each of 66 data sets and exponents up to 60 apart. All sums had the bits that are
//! computed here. `mma.sync` gives the same bits as `wgmma` for 16-bit elements.
//!
//! An `f16` sum is rounded once, from the sum of the truncated addends. An H100 gave the bits
//! computed here, except for the bits of NaN, for each form of `mma`, `wgmma` and their sparse
//! forms. The inputs included all exponents, infinities and NaN. Results that are subnormal as
//! `f32` were not probed.

use std::ops::RangeInclusive;

use crate::module::isa::arithmetic::float_number::power_of_two;

/// The exponent of zero. It is below the exponent of every product.
const ZERO: i16 = -1 << 13;
/// The maximum number of factors in a step.
const MOST: usize = 32;
/// The number of factors that are multiplied in one vector.
const LANES: usize = 8;

/// The factors of a step: a row of the left matrix, or a column of the right matrix, padded with
/// zeros.
///
/// A value has at most 12 significant bits, which includes TF32. A product of two values is
/// therefore an exact `f32`.
#[derive(Clone, Debug)]
pub(crate) struct DotFactors {
    len: usize,
    values: [f32; MOST],
    exponents: [i16; MOST],
    /// Whether a factor is infinite or NaN.
    special: bool,
}

impl DotFactors {
    /// Creates the factors from at most 32 values. `least` is the smallest exponent of the type,
    /// which smaller values also use.
    pub(crate) fn new(values: impl Iterator<Item = f32>, least: i32) -> DotFactors {
        let mut all = DotFactors {
            len: 0,
            values: [0.0; MOST],
            exponents: [ZERO; MOST],
            special: false,
        };
        for value in values {
            all.values[all.len] = value;
            all.exponents[all.len] = exponent(value, least);
            all.special |= !value.is_finite();
            all.len += 1;
        }
        all
    }
}

/// Returns the exponent of a value, but at least `least`.
fn exponent(value: f32, least: i32) -> i16 {
    let exponent = (value.to_bits() >> 23 & 0xff) as i32 - 127;
    if value == 0.0 {
        ZERO
    } else {
        exponent.max(least).max(-126) as i16
    }
}

/// The precision of a step: the bits of an addend below the largest exponent, and the bits of the
/// result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepPrecision {
    fraction: i32,
    result: i32,
    /// Whether the last bit of the result is set if bits were cut off, so that it can be rounded
    /// again.
    odd: bool,
}

/// The precision of products of 16-bit and 19-bit elements.
pub(crate) const WIDE: StepPrecision = StepPrecision {
    fraction: 25,
    result: 24,
    odd: false,
};
/// The precision of products of 16-bit elements whose result is rounded to `f16`.
pub(crate) const HALVES: StepPrecision = StepPrecision { odd: true, ..WIDE };
/// The precision of products of 8-bit floats.
pub(crate) const NARROW: StepPrecision = StepPrecision {
    fraction: 13,
    result: 14,
    odd: false,
};
/// The precision of products of 8-bit floats whose result is rounded to `f16`.
pub(crate) const NARROW_HALVES: StepPrecision = StepPrecision {
    odd: true,
    ..NARROW
};

/// Executes one step: adds the products of the factors to `sum`.
///
/// Products are exact, and so is their scaling by a power of two, unless a product is so small that
/// nothing of it is kept. A truncated addend is an integer below `2^(fraction + 2)`.
pub(crate) fn add_products(sum: f32, a: &DotFactors, b: &DotFactors, kept: StepPrecision) -> f32 {
    let fraction = kept.fraction;
    if a.special || b.special || !sum.is_finite() {
        return add_special(sum, a, b);
    }

    let rows = |factors: &DotFactors| factors.len.div_ceil(LANES);
    let rows = rows(a).max(rows(b));
    let mut largest = [exponent(sum, -126); LANES];
    for (a, b) in a
        .exponents
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(b.exponents.as_chunks::<LANES>().0)
        .take(rows)
    {
        for ((largest, a), b) in largest.iter_mut().zip(a).zip(b) {
            *largest = (*largest).max(a.wrapping_add(*b));
        }
    }

    let largest = i32::from(largest.into_iter().fold(ZERO, i16::max));
    if largest <= i32::from(ZERO / 2) {
        return 0.0;
    }

    let scale = power_of_two(fraction - largest);
    let total = if IN_SINGLES.contains(&largest) {
        total(a, b, rows, |a, b| (a * b * scale as f32) as i32)
    } else {
        total(a, b, rows, |a, b| {
            (f64::from(a) * f64::from(b) * scale) as i32
        })
    };
    single(
        total + i64::from((f64::from(sum) * scale) as i32),
        largest - fraction,
        kept,
    )
}

/// The largest exponents of products for which products and scaled products stay in the range of
/// `f32`.
const IN_SINGLES: RangeInclusive<i32> = -100..=125;

/// Returns the sum of truncated products. `cut` truncates one product to its unit.
#[inline(always)]
fn total(a: &DotFactors, b: &DotFactors, rows: usize, cut: impl Fn(f32, f32) -> i32) -> i64 {
    let mut total = [0i32; LANES];
    for (a, b) in a
        .values
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(b.values.as_chunks::<LANES>().0)
        .take(rows)
    {
        for ((total, a), b) in total.iter_mut().zip(a).zip(b) {
            // Below 2^27 each: without the check for overflow of test builds, this is done side by
            // side.
            *total = total.wrapping_add(cut(*a, *b));
        }
    }
    total.iter().map(|part| i64::from(*part)).sum()
}

/// Returns `n * 2^e` as an `f32` with limited precision, rounded toward zero.
fn single(n: i64, e: i32, kept: StepPrecision) -> f32 {
    let spare = 64 - n.unsigned_abs().leading_zeros() as i32 - kept.result;

    // Below the least exponent, a single has fewer bits.
    let spare = spare.max(-149 - e);
    let magnitude = if spare > 0 {
        n.unsigned_abs() >> spare.min(63)
    } else {
        n.unsigned_abs()
    };
    let cut = spare > 0 && magnitude << spare.min(63) != n.unsigned_abs();
    let magnitude = magnitude | u64::from(kept.odd && cut);
    let value = magnitude as f64 * power_of_two(e + spare.max(0));

    // Any value above the largest `f32` is infinite, but `as` would round some of them down to it.
    let value = if value > f64::from(f32::MAX) {
        f32::INFINITY
    } else {
        value as f32
    };
    if n < 0 { -value } else { value }
}

/// Executes one step with an infinite or NaN factor.
fn add_special(sum: f32, a: &DotFactors, b: &DotFactors) -> f32 {
    let products = a
        .values
        .iter()
        .zip(&b.values)
        .take(a.len)
        .map(|(a, b)| f64::from(*a) * f64::from(*b));
    let total = products.fold(f64::from(sum), |total, product| total + product);
    if total.is_nan() {
        f32::from_bits(0x7fff_ffff)
    } else {
        total as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(start: f32, products: &[(f32, f32)]) -> f32 {
        let factors =
            |which: fn(&(f32, f32)) -> f32| DotFactors::new(products.iter().map(which), -126);
        add_products(start, &factors(|p| p.0), &factors(|p| p.1), WIDE)
    }

    /// Checks the results of an H200 for one large and fifteen equal products.
    #[test]
    fn sums_are_those_that_were_probed() {
        let one = |n: usize, small: f32| {
            let mut products = vec![(1.0, 1.0)];
            products.resize(n + 1, (small, 1.0));
            sum(0.0, &products)
        };
        let two = |n: i32| 2f32.powi(n);
        assert_eq!(one(1, two(-24)), 1.0);
        assert_eq!(one(15, two(-24)), 1.0 + 14.0 * two(-24));
        assert_eq!(one(15, two(-25)), 1.0 + 12.0 * two(-25));
        assert_eq!(one(15, two(-26)), 1.0);
        assert_eq!(one(1, -two(-25)), 1.0 - two(-24));
        assert_eq!(one(1, -two(-26)), 1.0);
    }

    #[test]
    fn the_sum_is_one_addend_among_the_products() {
        let at = |i: usize| {
            (0..16)
                .map(|j| if j == i { (3.0, 0.5) } else { (0.25, -1.0) })
                .collect::<Vec<_>>()
        };
        for i in 0..16 {
            assert_eq!(sum(100.0, &at(i)), 100.0 + 1.5 - 15.0 * 0.25);
        }

        assert_eq!(sum(0.0, &[(0.0, 5.0)]), 0.0);
        assert_eq!(sum(-2.5, &[]), -2.5);
    }

    #[test]
    fn limits_of_singles() {
        let tiny = f32::from_bits(1);
        assert_eq!(sum(tiny, &[(0.0, 0.0)]), tiny);
        assert_eq!(sum(tiny, &[(tiny, 1.0)]), 2.0 * tiny);
        assert_eq!(sum(f32::MAX, &[(f32::MAX, 1.0)]), f32::INFINITY);
        assert_eq!(sum(1.0, &[(f32::INFINITY, -1.0)]), f32::NEG_INFINITY);
        assert!(sum(1.0, &[(f32::INFINITY, 0.0)]).is_nan());
    }

    /// The definition at the top of this file, in integers of 128 bits.
    fn defined(sum: f32, products: &[(f32, f32)], kept: StepPrecision) -> f32 {
        let fraction = kept.fraction;
        let parts = |x: f32| {
            let (bits, sign) = (x.to_bits(), if x < 0.0 { -1 } else { 1 });
            let (exponent, m) = ((bits >> 23 & 0xff) as i32, i128::from(bits & 0x7f_ffff));
            if exponent == 0 {
                (sign * m, -126)
            } else {
                (sign * (m | 1 << 23), exponent - 127)
            }
        };
        let mut addends = vec![{
            let (m, e) = parts(sum);
            (m << 23, e)
        }];
        addends.extend(products.iter().map(|&(a, b)| {
            let ((a, e), (b, f)) = (parts(a), parts(b));
            (a * b, e + f)
        }));

        // Each is `m * 2^(e - 46)`.
        let Some(largest) = addends
            .iter()
            .filter(|(m, _)| *m != 0)
            .map(|(_, e)| *e)
            .max()
        else {
            return 0.0;
        };

        let cut = |(m, e): &(i128, i32)| {
            let bits = (largest - e + 46 - fraction).min(127);
            m.signum() * (m.abs() >> bits)
        };
        let total: i128 = addends.iter().filter(|(m, _)| *m != 0).map(cut).sum();
        single(total as i64, largest - fraction, kept)
    }

    /// A half is rounded from all that is left of the sum: just above a tie, it goes up.
    #[test]
    fn halves_are_rounded_once() {
        let sum = |kept| add_products(1.0 + f32::powi(2.0, -11), &tiny(), &tiny(), kept);
        assert_eq!(sum(WIDE).to_bits(), (1.0 + f32::powi(2.0, -11)).to_bits());
        assert_eq!(
            sum(HALVES).to_bits(),
            (1.0 + f32::powi(2.0, -11)).to_bits() + 1
        );
    }

    /// Its square is 2^-24.
    fn tiny() -> DotFactors {
        DotFactors::new(std::iter::once(f32::powi(2.0, -12)), -14)
    }

    #[test]
    fn random_products_are_added_as_defined() {
        let mut state = 7u64;
        let mut random = |spread: u32| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let bits = (state >> 32) as u32;
            match bits % 17 {
                0 => 0.0,
                1 => f32::from_bits(bits & 0x807f_ffff),
                _ => f32::from_bits(
                    bits & 0x807f_ffff | (127 - spread / 2 + (bits >> 8) % (spread + 1)) << 23,
                ),
            }
        };
        for round in 0..20_000 {
            let spread = [0, 4, 30, 60, 120, 250][round % 6];
            let mut factor = || f32::from_bits(random(spread).to_bits() & !0xfff);
            let products: Vec<_> = (0..round % 17).map(|_| (factor(), factor())).collect();
            let (start, kept) = (random(spread), if round % 3 == 0 { NARROW } else { WIDE });
            let factors =
                |which: fn(&(f32, f32)) -> f32| DotFactors::new(products.iter().map(which), -126);
            let found = add_products(start, &factors(|p| p.0), &factors(|p| p.1), kept);
            let wanted = defined(start, &products, kept);
            assert_eq!(
                found.to_bits(),
                wanted.to_bits(),
                "{start} {products:?}: {found}, not {wanted}"
            );
        }
    }
}
