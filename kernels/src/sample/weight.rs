//! A token's mass: `exp((z - largest) / temperature)` in units of 2^-44, the same integer everywhere.
//!
//! ```text
//! d + e = z - largest                    exactly (Knuth, The Art of Computer Programming 2, 4.2.2: TwoSum)
//! n + f = (d + e) * log2(e) / temperature    n whole, |f| <= 1/2 and a little
//! mass  = floor(2^44 * 2^f) >> -n        2^f by its series up to f^7, in f32
//! ```
//!
//! All operations are IEEE's, rounded to nearest, so the bits are those of the same function on the CPU. The logarithm's
//! product keeps its rounding error as a second number; what is left is the error of the series and its roundings, about
//! 2^-23 relative. A token 2^-44 times as probable as the first one has no mass.

use ptx_gen::*;

/// Fraction bits of a mass: that of the largest logit is `1 << FRACTION`.
pub const FRACTION: u32 = 44;

/// Bits of the series' result.
const BITS: u32 = 24;

/// `ln(2)^i / i!`, from the last to the first.
const SERIES: [f32; 8] = {
    let mut series = [1f32; 8];
    let (mut i, mut term) = (1, 1f64);
    while i < 8 {
        term *= std::f64::consts::LN_2 / i as f64;
        series[7 - i] = term as f32;
        i += 1;
    }
    series
};

/// `log2(e) / temperature` as the sum of two.
pub const fn scale(temperature: f64) -> [f32; 2] {
    let scale = std::f64::consts::LOG2_E / temperature;
    [scale as f32, (scale - scale as f32 as f64) as f32]
}

/// The mass of `z` beside `largest`, which is at least as large.
pub fn weight(z: f32, largest: f32, [hi, lo]: [f32; 2]) -> u64 {
    let d = z - largest;
    let b = d - z;
    let e = (z - (d - b)) + (-largest - b);
    let y = d * hi;
    let rest = e.mul_add(hi, d.mul_add(lo, d.mul_add(hi, -y)));
    let n = y.round_ties_even();
    let f = (y - n) + rest;
    let power = SERIES[1..]
        .iter()
        .fold(SERIES[0], |sum, &term| sum.mul_add(f, term));
    let whole = (power * (1 << BITS) as f32) as u32;
    (u64::from(whole) << (FRACTION - BITS)) >> ((-n) as i32 as u32).min(63)
}

/// [`weight`] in a thread.
pub(crate) fn on_device<'k>(z: F32<'k>, largest: F32<'k>, [hi, lo]: [F32<'k>; 2]) -> U64<'k> {
    let d = z - largest;
    let b = d - z;
    let e = (z - (d - b)) + (-largest - b);
    let y = d * hi;
    let rest = e.fma(hi, d.fma(lo, d.fma(hi, -y)));
    let n = y.round();
    let f = (y - n) + rest;
    let power = SERIES[2..]
        .iter()
        .fold(f.fma(SERIES[0], SERIES[1]), |sum, &term| sum.fma(f, term));
    let whole = (power * (1 << BITS) as f32).cvt::<u32>();
    (whole.cvt::<u64>() << (FRACTION - BITS)) >> (-n).nearest().bits::<u32>().min(63)
}

/// `floor(total * share / 2^32)`.
pub(crate) fn times<'k>(total: U64<'k>, share: U32<'k>) -> U64<'k> {
    let [low, high] = halves(total);
    high.mad_wide(share, low.mul_wide(share) >> 32)
}

/// `ceil(total * share / 2^32) - 1`: the first sum that exceeds it is the first of at least that share.
pub(crate) fn border<'k>(total: U64<'k>, share: U32<'k>) -> U64<'k> {
    let [low, high] = halves(total);
    high.mad_wide(share, (low.mul_wide(share) + u64::from(u32::MAX)) >> 32) - 1
}

/// The low and the high word.
pub(crate) fn halves(v: U64<'_>) -> [U32<'_>; 2] {
    [v.cvt(), (v >> 32).cvt()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mass_is_the_exponential() {
        let mut worst = 0f64;
        for temperature in [0.01, 0.3, 0.7, 1.0, 1.9, 100.0] {
            let scale = scale(temperature);
            for i in 0..20_000u32 {
                let (z, largest) = (17.3 - i as f32 * 0.001_37, 17.3 + i as f32 * 1e-5);
                let exact = ((f64::from(z) - f64::from(largest)) / temperature).exp();
                let found = weight(z, largest, scale) as f64 / 2f64.powi(FRACTION as i32);
                // What is cut off is at most one unit.
                let error = ((found - exact).abs() - 2f64.powi(-(FRACTION as i32))).max(0.0)
                    / exact.max(1e-30);
                worst = worst.max(error);
            }
        }
        assert!(worst < 2e-7, "{worst:e}");
        assert!(worst > 1e-8, "the comparison compares nothing: {worst:e}");
    }

    #[test]
    fn masses_of_far_logits_are_defined() {
        let one = scale(1.0);
        assert_eq!(weight(3.5, 3.5, one), 1 << FRACTION);
        assert_eq!(weight(-1e4, 3.0, one), 0);
        assert_eq!(weight(f32::MIN, f32::MAX, one), 0);
        assert_eq!(
            weight(-30.0, 0.0, one),
            ((-30f64).exp() * 2f64.powi(44)) as u64
        );
    }
}
