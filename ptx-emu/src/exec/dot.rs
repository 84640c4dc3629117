//! How tensor cores add: the products of one step and the sum so far, together.
//!
//! Let e be the largest exponent among the sum and the products, where that of a product is the sum of its factors'.
//! Each is cut, toward zero, to a multiple of `2^(e - fraction)`. They are added exactly, and the result is cut toward
//! zero to the 24 bits of a single. So neither the order within a step nor the position of a product matters.
//!
//! On an H200 (driver 580.159), `fraction` is 25, and for 8-bit floats 13, whose results have 14 bits. In November 2026
//! the sums of two steps of each form of `wgmma` on random bits, 4096 of each of 66 data sets with exponents up to 60
//! apart, were those computed here. `mma.sync` gives the same bits as `wgmma`. Not probed: infinities, and results that
//! are denormal.

use crate::isa::number::power_of_two;

/// The exponent of zero: below that of any product, also where the other factor is large.
const ZERO: i32 = -1 << 16;

/// A factor: `m * 2^(e - 23)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    m: i32,
    e: i32,
    /// Its value, where it is infinite or no number.
    special: bool,
    value: f32,
}

impl Factor {
    /// A value of a type whose least exponent is this: below it, `m` has fewer bits.
    pub(crate) fn new(value: f32, least: i32) -> Factor {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 23 & 0xff) as i32, (bits & 0x7f_ffff) as i32);
        let (m, e) = match exponent {
            0 => (fraction, -126),
            _ if exponent - 127 < least => ((fraction | 1 << 23) >> (least - exponent + 127).min(31), least),
            _ => (fraction | 1 << 23, exponent - 127),
        };
        let e = if m == 0 { ZERO } else { e };
        Factor { m: if value.is_sign_negative() { -m } else { m }, e, special: exponent == 0xff, value }
    }
}

impl From<f32> for Factor {
    fn from(value: f32) -> Factor {
        Factor::new(value, -126)
    }
}

/// What is kept: of an addend, bits below the largest exponent; of the result, bits in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    fraction: i32,
    result: i32,
}

/// Of products of 16-bit and 19-bit elements.
pub(crate) const WIDE: Kept = Kept { fraction: 25, result: 24 };
/// Of products of 8-bit floats.
pub(crate) const NARROW: Kept = Kept { fraction: 13, result: 14 };

/// One step: the sum and the products of these factors.
pub(crate) fn add_products(sum: f32, a: &[Factor], b: &[Factor], kept: Kept) -> f32 {
    let Kept { fraction, result } = kept;
    let c = Factor::from(sum);
    if c.special || a.iter().zip(b).any(|(a, b)| a.special || b.special) {
        return add_special(sum, a, b);
    }
    let largest = a.iter().zip(b).map(|(a, b)| a.e + b.e).fold(c.e, i32::max);
    if largest <= ZERO / 2 {
        return 0.0;
    }
    let mut total = cut(i64::from(c.m), largest - c.e + 23 - fraction);
    for (a, b) in a.iter().zip(b) {
        total += cut(i64::from(a.m) * i64::from(b.m), largest - a.e - b.e + 46 - fraction);
    }
    single(total, largest - fraction, result)
}

/// A number without its last bits, toward zero; or with more of them, of which `fraction` never asks for more than 2.
fn cut(n: i64, bits: i32) -> i64 {
    let magnitude = (n.unsigned_abs() << 2) >> (bits + 2).clamp(0, 63);
    if n < 0 { -(magnitude as i64) } else { magnitude as i64 }
}

/// `n * 2^e` as a single of so many bits, toward zero.
fn single(n: i64, e: i32, bits: i32) -> f32 {
    let spare = 64 - n.unsigned_abs().leading_zeros() as i32 - bits;
    // Below the least exponent, a single has fewer bits.
    let spare = spare.max(-149 - e);
    let magnitude = if spare > 0 { n.unsigned_abs() >> spare.min(63) } else { n.unsigned_abs() };
    let value = magnitude as f64 * power_of_two(e + spare.max(0));
    // Toward zero from what no single holds, too.
    let value = if value > f64::from(f32::MAX) { f32::INFINITY } else { value as f32 };
    if n < 0 { -value } else { value }
}

/// The same where something is infinite or no number.
fn add_special(sum: f32, a: &[Factor], b: &[Factor]) -> f32 {
    let products = a.iter().zip(b).map(|(a, b)| f64::from(a.value) * f64::from(b.value));
    let total = products.fold(f64::from(sum), |total, product| total + product);
    if total.is_nan() { f32::from_bits(0x7fff_ffff) } else { total as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(start: f32, products: &[(f32, f32)]) -> f32 {
        let factors = |which: fn(&(f32, f32)) -> f32| -> Vec<Factor> {
            products.iter().map(|p| Factor::from(which(p))).collect()
        };
        add_products(start, &factors(|p| p.0), &factors(|p| p.1), WIDE)
    }

    /// What an H200 gave for one and fifteen equal products.
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
        let at =
            |i: usize| (0..16).map(|j| if j == i { (3.0, 0.5) } else { (0.25, -1.0) }).collect::<Vec<_>>();
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
    fn defined(sum: f32, products: &[(f32, f32)], Kept { fraction, result }: Kept) -> f32 {
        let parts = |x: f32| {
            let (bits, sign) = (x.to_bits(), if x < 0.0 { -1 } else { 1 });
            let (exponent, m) = ((bits >> 23 & 0xff) as i32, i128::from(bits & 0x7f_ffff));
            if exponent == 0 { (sign * m, -126) } else { (sign * (m | 1 << 23), exponent - 127) }
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
        let Some(largest) = addends.iter().filter(|(m, _)| *m != 0).map(|(_, e)| *e).max() else {
            return 0.0;
        };
        let cut = |(m, e): &(i128, i32)| {
            let bits = (largest - e + 46 - fraction).min(127);
            m.signum() * (m.abs() >> bits)
        };
        let total: i128 = addends.iter().filter(|(m, _)| *m != 0).map(cut).sum();
        single(total as i64, largest - fraction, result)
    }

    #[test]
    fn random_products_are_added_as_defined() {
        let mut state = 7u64;
        let mut random = |spread: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bits = (state >> 32) as u32;
            match bits % 17 {
                0 => 0.0,
                1 => f32::from_bits(bits & 0x807f_ffff),
                _ => {
                    f32::from_bits(bits & 0x807f_ffff | (127 - spread / 2 + (bits >> 8) % (spread + 1)) << 23)
                }
            }
        };
        for round in 0..20_000 {
            let spread = [0, 4, 30, 60, 120][round % 5];
            let products: Vec<_> = (0..round % 17).map(|_| (random(spread), random(spread))).collect();
            let (start, kept) = (random(spread), if round % 3 == 0 { NARROW } else { WIDE });
            let factors = |which: fn(&(f32, f32)) -> f32| -> Vec<Factor> {
                products.iter().map(|p| Factor::from(which(p))).collect()
            };
            let found = add_products(start, &factors(|p| p.0), &factors(|p| p.1), kept);
            let wanted = defined(start, &products, kept);
            assert_eq!(found.to_bits(), wanted.to_bits(), "{start} {products:?}: {found}, not {wanted}");
        }
    }
}
