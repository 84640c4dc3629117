//! Weights of 16 and 32 bits as numbers, and back, rounded once.

use half::{bf16, f16};
use warpwright_kernels::Format;

/// A format whose numbers stand alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wide {
    F32,
    F16,
    Bf16,
}

impl Wide {
    /// That of unquantized weights.
    pub(crate) fn of(format: Format) -> Option<Wide> {
        match format {
            Format::F32 => Some(Wide::F32),
            Format::F16 => Some(Wide::F16),
            Format::BF16 => Some(Wide::Bf16),
            _ => None,
        }
    }

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        if self == Wide::F32 { 4 } else { 2 }
    }

    /// The number in these bytes, as many as one has.
    pub(crate) fn read(self, bytes: &[u8]) -> f64 {
        match self {
            Wide::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
            Wide::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32().into(),
            Wide::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32().into(),
        }
    }

    /// Writes the nearest number, of two the even one, and gives it; infinite beyond the largest.
    pub(crate) fn write(self, number: f64, bytes: &mut [u8]) -> f64 {
        match self {
            Wide::F32 => bytes.copy_from_slice(&(number as f32).to_le_bytes()),
            Wide::F16 => bytes.copy_from_slice(&f16::from_f32(to_odd(number)).to_le_bytes()),
            Wide::Bf16 => bytes.copy_from_slice(&bf16::from_f32(to_odd(number)).to_le_bytes()),
        }
        self.read(bytes)
    }
}

/// Rounds to odd: of the two numbers around `x` the one with an odd last bit. Rounded again, to a format with two bits
/// less or fewer, it is what `x` itself is rounded to (Boldo and Melquiond, 2008, "Emulation of FMA and correctly
/// rounded sums: proved algorithms using rounding to odd").
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) == x || !near.is_finite() || near.to_bits() & 1 == 1 {
        near
    } else if f64::from(near) < x {
        near.next_up()
    } else {
        near.next_down()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(format: Wide, x: f64) -> f64 {
        format.write(x, &mut vec![0; format.bytes()])
    }

    const TINY: f64 = 1e-12;

    /// Each case is just beside the middle of two neighbours, so that a first rounding would put it there.
    #[test]
    fn f16_is_rounded_once() {
        let step = 2f64.powi(-10);
        for (x, wanted) in [
            (1.0 + step / 2.0 + TINY, 1.0 + step),
            (1.0 + step / 2.0, 1.0),
            (1.0 + step * 1.5 - TINY, 1.0 + step),
            (-1.0 - step / 2.0 - TINY, -1.0 - step),
            (1.5 * 2f64.powi(-24) + 2f64.powi(-70), 2f64.powi(-23)),
            (65519.999, 65504.0),
            (65520.0, f64::INFINITY),
        ] {
            assert_eq!(rounded(Wide::F16, x), wanted, "{x:e}");
        }
    }

    #[test]
    fn bf16_and_f32_are_rounded_once() {
        let (step, small) = (2f64.powi(-7), 2f64.powi(-23));
        for (format, x, wanted) in [
            (Wide::Bf16, 1.0 + step / 2.0 + TINY, 1.0 + step),
            (Wide::Bf16, 1.0 + step / 2.0, 1.0),
            (Wide::Bf16, -1.0 - step * 1.5 + TINY, -1.0 - step),
            (Wide::Bf16, 1e39, f64::INFINITY),
            (Wide::F32, 1.0 + small / 2.0 + TINY, 1.0 + small),
            (Wide::F32, 1.0 + small / 2.0, 1.0),
        ] {
            assert_eq!(rounded(format, x), wanted, "{format:?} {x:e}");
        }
    }

    #[test]
    fn numbers_of_a_format_are_kept() {
        for bits in 0..=u16::MAX {
            for format in [Wide::F16, Wide::Bf16] {
                let mut bytes = bits.to_le_bytes();
                let number = format.read(&bytes);
                if !number.is_nan() {
                    format.write(number, &mut bytes);
                    assert_eq!(bytes, bits.to_le_bytes(), "{format:?}");
                }
            }
        }
    }
}
