//! The channels of a texel as a kernel reads them.

use half::f16;

use crate::machine::device::images::descriptor::ReadMode;
use crate::machine::device::images::texel_format::{ChannelType, TexelFormat};

/// Returns the bits of a channel that a kernel reads: a float, or a 32-bit integer.
///
/// A normalized float is `v / (2^n - 1)` for an unsigned integer of `n` bits, and `max(v / (2^(n-1)
/// - 1), -1)` for a signed one.
fn channel(of: ChannelType, bytes: &[u8], read: ReadMode) -> u32 {
    let mut word = [0; 4];
    let size = bytes.len().min(4);
    word[..size].copy_from_slice(&bytes[..size]);
    let unsigned = u32::from_le_bytes(word);
    let unused = 32 - 8 * of.bytes();
    let signed = (unsigned << unused).cast_signed() >> unused;
    let normal = read == ReadMode::NormalizedFloat;
    match of {
        ChannelType::F32 | ChannelType::U32 | ChannelType::S32 => unsigned,
        ChannelType::F16 => f16::from_bits(unsigned as u16).to_f32().to_bits(),
        ChannelType::U8 if normal => (unsigned as f32 / 255.0).to_bits(),
        ChannelType::U16 if normal => (unsigned as f32 / 65_535.0).to_bits(),
        ChannelType::S8 if normal => (signed as f32 / 127.0).max(-1.0).to_bits(),
        ChannelType::S16 if normal => (signed as f32 / 32_767.0).max(-1.0).to_bits(),
        ChannelType::U8 | ChannelType::U16 => unsigned,
        ChannelType::S8 | ChannelType::S16 => signed.cast_unsigned(),
    }
}

/// Returns the bits of the channels of a texel. The format decides how many are set.
pub(crate) fn channels(format: TexelFormat, read: ReadMode, bytes: &[u8]) -> [u32; 4] {
    let size = format.channel.bytes() as usize;
    let mut all = [0; 4];
    for (to, bytes) in all
        .iter_mut()
        .zip(bytes.chunks(size))
        .take(format.channels as usize)
    {
        *to = channel(format.channel, bytes, read);
    }

    all
}
