//! The mass of a token: `exp((z - largest) / temperature)` in units of 2^-44, as an integer that is
//! equal on every device.
//!
//! ```text
//! d + e = z - largest                      exact (TwoSum: Knuth, The Art of Computer Programming,
//!                                          volume 2, section 4.2.2)
//! n + f = (d + e) * log2(e) / temperature  n an integer, |f| <= 1/2 and a little
//! mass  = floor(2^44 * 2^f) >> -n          2^f as its Taylor polynomial of degree 7, in f32
//! ```
//!
//! All operations are those of IEEE 754 with rounding to nearest, so the CPU gives the same bits.
//! The multiplication by the logarithm keeps its rounding error as a second number. The remaining
//! relative error is the error of the series and its rounding, about 2^-23. A token whose
//! probability is less than 2^-44 times the first one's has no mass.

use ptx_gen::*;

/// The number of fraction bits of a mass: the largest logit has the mass `1 << FRACTION`.
pub const FRACTION: u32 = 44;

/// The number of fraction bits of the polynomial's result.
const BITS: u32 = 24;

/// The coefficients `ln(2)^i / i!`, from the last to the first.
const SERIES: [f32; 8] = {
    let mut series = [1f32; 8];
    let mut i = 1;
    let mut term = 1f64;
    while i < 8 {
        term *= std::f64::consts::LN_2 / i as f64;
        series[7 - i] = term as f32;
        i += 1;
    }
    series
};

/// Returns `log2(e) / temperature` as the sum of two numbers.
pub const fn scale(temperature: f64) -> [f32; 2] {
    let scale = std::f64::consts::LOG2_E / temperature;
    [scale as f32, (scale - scale as f32 as f64) as f32]
}

/// Returns the mass of the logit `z`. `largest` must be at least as large as `z`.
pub fn weight(z: f32, largest: f32, [hi, lo]: [f32; 2]) -> u64 {
    // The exact difference is `d + e` (Knuth's TwoSum).
    let d = z - largest;
    let b = d - z;
    let e = (z - (d - b)) + (-largest - b);

    // The exponent is `y + rest`. What `y` loses by rounding is part of the rest.
    let y = d * hi;
    let lost = d.mul_add(hi, -y);
    let rest = e.mul_add(hi, d.mul_add(lo, lost));

    // 2^(y + rest) = 2^n 2^f
    let n = y.round_ties_even();
    let f = (y - n) + rest;
    let power = SERIES[1..]
        .iter()
        .fold(SERIES[0], |sum, &term| sum.mul_add(f, term));
    let whole = (power * (1 << BITS) as f32) as u32;

    // `z` is at most `largest`, so the shift is not negative. A shift of 63 leaves nothing of 45
    // bits.
    let shift = ((-n) as i32 as u32).min(63);
    (u64::from(whole) << (FRACTION - BITS)) >> shift
}

/// Returns [`weight`] on the device.
pub(crate) fn on_device<'k>(z: F32<'k>, largest: F32<'k>, [hi, lo]: [F32<'k>; 2]) -> U64<'k> {
    // Each operation is the CPU's, in the same order, so that the bits are equal.
    let d = z - largest;
    let b = d - z;
    let of_z = z - (d - b);
    let of_largest = -largest - b;
    let e = of_z + of_largest;
    let y = d * hi;
    let lost = d.fma(hi, -y);
    let rest = e.fma(hi, d.fma(lo, lost));
    let n = y.round();
    let f = (y - n) + rest;
    let power = SERIES[2..]
        .iter()
        .fold(f.fma(SERIES[0], SERIES[1]), |sum, &term| sum.fma(f, term));
    let whole = (power * (1 << BITS) as f32).cvt::<u32>();
    let mass = whole.cvt::<u64>() << (FRACTION - BITS);
    let shift = (-n).nearest().bits::<u32>().min(63);
    mass >> shift
}

/// Returns `floor(total * share / 2^32)`.
pub(crate) fn times<'k>(total: U64<'k>, share: U32<'k>) -> U64<'k> {
    let [low, high] = halves(total);
    let carried = low.mul_wide(share) >> 32;
    high.mad_wide(share, carried)
}

/// Returns `ceil(total * share / 2^32) - 1`. The first sum that exceeds it is the first one with at
/// least that share.
pub(crate) fn border<'k>(total: U64<'k>, share: U32<'k>) -> U64<'k> {
    let [low, high] = halves(total);
    let rounded_up = low.mul_wide(share) + u64::from(u32::MAX);
    high.mad_wide(share, rounded_up >> 32) - 1
}

/// Returns the low and the high word.
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
                let z = 17.3 - i as f32 * 0.001_37;
                let largest = 17.3 + i as f32 * 1e-5;
                let exact = ((f64::from(z) - f64::from(largest)) / temperature).exp();
                let found = weight(z, largest, scale) as f64 / 2f64.powi(FRACTION as i32);
                // At most one unit is cut off.
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
