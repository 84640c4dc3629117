//! Keys as the cache has them: `f16`, in which a number beyond its range is NaN.
//!
//! Infinite, a key could be lost: the score of its position is minus infinity where the query has the other sign, and
//! attention then leaves that position out. NaN reaches the logits whatever the query is.
//! A value may be infinite: its share of a sum is infinite or NaN.

use ptx_gen::*;

/// A key on the CPU.
pub(crate) fn key(x: f32) -> f16 {
    let x = f16::from_f32(x);
    if x.to_f32().is_infinite() { f16::from_f32(f32::NAN) } else { x }
}

/// Two keys.
pub(crate) fn keys<'k>(k: Builder<'k>, pair: [F32<'k>; 2]) -> [Val<'k, f16>; 2] {
    key_pair(k, pair).unpack()
}

/// Two keys in a register: `x * 0 + x` is `x`, and NaN where `x` is infinite.
pub(crate) fn key_pair<'k>(k: Builder<'k>, [x, y]: [F32<'k>; 2]) -> Val<'k, f16x2> {
    let pair = x.cvt::<f16>().pack(y.cvt::<f16>());
    let zero = k.val(0u32).bits::<f16x2>();
    pair.fma(zero, pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_range_of_f16_there_is_no_key() {
        for (x, found) in [(65504.0, 65504.0), (-65519.0, -65504.0), (-0.0, -0.0)] {
            assert_eq!(key(x).to_f32().to_bits(), f32::to_bits(found));
        }
        assert!([65520.0, -1e9, f32::INFINITY, f32::NAN].into_iter().all(|x| key(x).to_f32().is_nan()));
    }
}
