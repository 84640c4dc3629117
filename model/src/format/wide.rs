//! Conversion of 16-bit and 32-bit weights to F64 and back, with a single rounding.

use half::{bf16, f16};
use safetensors::Dtype;

use crate::format::weight_format::WeightFormat;

/// A format without quantization blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WideFormat {
    F32,
    F16,
    Bf16,
}

impl WideFormat {
    /// Returns the format of unquantized weights, or `None` for quantized ones.
    pub(crate) fn for_weights(format: WeightFormat) -> Option<WideFormat> {
        match format {
            WeightFormat::F32 => Some(WideFormat::F32),
            WeightFormat::F16 => Some(WideFormat::F16),
            WeightFormat::BF16 => Some(WideFormat::Bf16),
            _ => None,
        }
    }

    /// Returns the format of a safetensors type, or `None` for other types.
    pub(crate) fn for_dtype(dtype: Dtype) -> Option<WideFormat> {
        match dtype {
            Dtype::F32 => Some(WideFormat::F32),
            Dtype::F16 => Some(WideFormat::F16),
            Dtype::BF16 => Some(WideFormat::Bf16),
            _ => None,
        }
    }

    /// Returns the bytes of a value.
    pub(crate) fn bytes(self) -> usize {
        if self == WideFormat::F32 { 4 } else { 2 }
    }

    /// Returns the value in these bytes. The slice must be as long as a value.
    pub(crate) fn read(self, bytes: &[u8]) -> f64 {
        match self {
            WideFormat::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
            WideFormat::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32().into(),
            WideFormat::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32().into(),
        }
    }

    /// Writes the nearest value of the format, rounding ties to even, and returns it. Values that
    /// are out of range become infinite.
    pub(crate) fn write(self, number: f64, bytes: &mut [u8]) -> f64 {
        match self {
            WideFormat::F32 => bytes.copy_from_slice(&(number as f32).to_le_bytes()),
            // `half` converts from f32 and would round a second time, so the first rounding is to
            // odd.
            WideFormat::F16 => bytes.copy_from_slice(&f16::from_f32(to_odd(number)).to_le_bytes()),
            WideFormat::Bf16 => {
                bytes.copy_from_slice(&bf16::from_f32(to_odd(number)).to_le_bytes());
            }
        }
        self.read(bytes)
    }
}

/// Rounds to odd: returns `x` if it is an f32, and otherwise the neighbor with an odd last bit.
///
/// Rounding the result again, to a format with at least two bits less, gives the same value as
/// rounding `x` once (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved
/// algorithms using rounding to odd", IEEE Transactions on Computers, 2008).
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

    fn rounded(format: WideFormat, x: f64) -> f64 {
        format.write(x, &mut vec![0; format.bytes()])
    }

    const TINY: f64 = 1e-12;

    /// Each case is next to the midpoint of two neighbors, where an earlier rounding would have put
    /// it.
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
            assert_eq!(rounded(WideFormat::F16, x), wanted, "{x:e}");
        }
    }

    #[test]
    fn bf16_and_f32_are_rounded_once() {
        let (step, small) = (2f64.powi(-7), 2f64.powi(-23));
        for (format, x, wanted) in [
            (WideFormat::Bf16, 1.0 + step / 2.0 + TINY, 1.0 + step),
            (WideFormat::Bf16, 1.0 + step / 2.0, 1.0),
            (WideFormat::Bf16, -1.0 - step * 1.5 + TINY, -1.0 - step),
            (WideFormat::Bf16, 1e39, f64::INFINITY),
            (WideFormat::F32, 1.0 + small / 2.0 + TINY, 1.0 + small),
            (WideFormat::F32, 1.0 + small / 2.0, 1.0),
        ] {
            assert_eq!(rounded(format, x), wanted, "{format:?} {x:e}");
        }
    }

    #[test]
    fn numbers_of_a_format_are_kept() {
        for bits in 0..=u16::MAX {
            for format in [WideFormat::F16, WideFormat::Bf16] {
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
