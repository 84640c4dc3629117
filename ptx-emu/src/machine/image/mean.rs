//! The weighted mean of texels, with the bits of an H100.
//!
//! Floats become fixed-point numbers. The texels of a layer are truncated 4 bits below the last bit
//! of the largest texel, and added with their weights. Of two layers, the sum with the smaller
//! exponent keeps only one bit below the last bit of the other. The result is rounded once, half
//! away from zero, to 24 bits, or to 11 bits for `f16`. Integers that are read as normalized floats
//! are averaged as integers, and the mean has 16 bits.

use crate::machine::device::images::texel_format::ChannelType;

/// A texel of a mean.
#[derive(Clone, Copy, Default)]
pub(crate) struct WeightedTexel {
    /// The channels, as bits of floats or as integers that are read as floats.
    pub(crate) channels: [u32; 4],
    /// The weight in 1/256.
    pub(crate) weight: u32,
    /// The layer: 0, or 1 for the second one in z.
    pub(crate) layer: usize,
}

/// Returns the integer that represents 1 in a normalized channel.
fn one(channel: ChannelType) -> Option<u16> {
    match channel {
        ChannelType::U8 => Some(0xff),
        ChannelType::S8 => Some(0x7f),
        ChannelType::U16 => Some(0xffff),
        ChannelType::S16 => Some(0x7fff),
        ChannelType::U32 | ChannelType::S32 | ChannelType::F16 | ChannelType::F32 => None,
    }
}

/// Converts a channel of the border from float bits to the representation of a texel. The rounding
/// to an integer was not compared with a device.
pub(crate) fn border(channel: ChannelType, bits: u32) -> u32 {
    let Some(one) = one(channel) else { return bits };
    let least = if matches!(channel, ChannelType::S8 | ChannelType::S16) {
        -1.0
    } else {
        0.0
    };
    ((f32::from_bits(bits).clamp(least, 1.0) * f32::from(one)).round() as i32).cast_unsigned()
}

/// Returns the means of the channels as float bits.
pub(crate) fn mean(channel: ChannelType, parts: &[WeightedTexel]) -> [u32; 4] {
    if let ([alone], None) = (parts, one(channel)) {
        return alone.channels;
    }
    std::array::from_fn(|i| {
        let all = parts.iter().map(|p| (p.channels[i], p.weight, p.layer));
        if one(channel).is_some() {
            let sum = all
                .map(|(value, weight, _)| i64::from(value.cast_signed()) * i64::from(weight))
                .sum();
            return of_integers(channel, sum).to_bits();
        }
        let floats = all.map(|(bits, weight, layer)| (f32::from_bits(bits), weight, layer));
        of_floats(channel == ChannelType::F16, floats).to_bits()
    })
}

/// Returns the mean of integers from their sum in 1/256. The smallest value of a signed type counts
/// in full, and the mean is at least -1.
fn of_integers(channel: ChannelType, sum: i64) -> f32 {
    let rounded = |sum: i64| (sum + 128) >> 8;
    match channel {
        ChannelType::U8 => rounded(sum * 0x101) as f32 / 65_535.0,
        ChannelType::U16 => rounded(sum) as f32 / 65_535.0,
        // From a unit of 127 * 256 to one of 32,767: the 12 upper bits once more, further down.
        ChannelType::S8 => {
            ((sum + (((sum >> 4) * 0x101 + (1 << 10)) >> 11)) as f32 / 32_767.0).max(-1.0)
        }
        _ => (rounded(sum) as f32 / 32_767.0).max(-1.0),
    }
}

/// The number of additional bits of a texel below the last bit of the largest one.
const GUARD: i32 = 4;

/// The sum of the texels of a layer.
#[derive(Clone, Copy)]
struct LayerSum {
    sum: i64,
    /// The exponent of the largest texel.
    exponent: i32,
}

fn of_floats(half: bool, floats: impl Iterator<Item = (f32, u32, usize)> + Clone) -> f32 {
    if !floats.clone().all(|(x, ..)| x.is_finite()) {
        return floats
            .map(|(x, weight, _)| f64::from(x) * f64::from(weight) / 256.0)
            .sum::<f64>() as f32;
    }

    let (bits, least) = if half { (11, -14) } else { (24, -126) };
    let layers = [0, 1].map(|layer| {
        let floats = floats.clone().filter(move |part| part.2 == layer);
        let exponent = floats
            .clone()
            .map(|(x, ..)| exponent(x).max(least))
            .max()
            .unwrap_or(least);
        let lowest = exponent - (bits - 1) - GUARD;
        let sum = floats
            .map(|(x, weight, _)| fixed(x, lowest) * i64::from(weight))
            .sum();
        LayerSum { sum, exponent }
    });
    let exponent = layers[0].exponent.max(layers[1].exponent);
    let sum = layers
        .iter()
        .map(|layer| (layer.sum << 1) >> (exponent - layer.exponent).min(63))
        .sum();
    rounded(sum, exponent - (bits - 1) - GUARD - 9, (bits, least))
}

/// Returns the exponent of a finite number, but at least the smallest normal one.
fn exponent(x: f32) -> i32 {
    ((x.to_bits() >> 23 & 0xff) as i32).max(1) - 127
}

/// Returns a finite number in units of a power of two, truncated.
fn fixed(x: f32, unit: i32) -> i64 {
    let bits = x.to_bits();
    let implied = if bits >> 23 & 0xff == 0 { 0 } else { 1 << 23 };
    let significand = i64::from(bits & 0x7f_ffff | implied);
    let up = exponent(x) - 23 - unit;
    let size = if up >= 0 {
        significand << up
    } else {
        significand >> (-up).min(63)
    };
    if x.is_sign_negative() { -size } else { size }
}

/// Returns a number in units of a power of two, rounded half away from zero. The significand has
/// `bits` bits, or fewer below the smallest normal exponent.
fn rounded(sum: i64, unit: i32, (bits, least): (i32, i32)) -> f32 {
    let size = sum.unsigned_abs();
    let long = 64 - size.leading_zeros() as i32;
    let drop = (long - bits).max(least - (bits - 1) - unit).clamp(0, 63);
    let kept = if drop == 0 {
        size
    } else {
        (size + (1 << (drop - 1))) >> drop
    };
    let value = kept as f64 * 2f64.powi(unit + drop);
    (if sum < 0 { -value } else { value }) as f32
}
